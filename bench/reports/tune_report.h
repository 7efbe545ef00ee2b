// A tuning run's table in every format.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "autotune/tuner.h"
#include "bench/options/choice.h"
#include "bench/reports/report.h"

namespace convlab {

// The version of `convlab_tune` that is written, and that diff reads.
inline constexpr int tune_format = 1;

// One row a layer and pass; the table fits a terminal unless it is `wide`, md is always wide. In
// both, equal problems are one row, their counts added. JSON is design's: provenance, layers with
// all their candidates, totals. hpp is render_header()'s.
std::string render(const TuneTable&, Format, bool wide = false);

// The same with every candidate, best first within its layer and pass, one a row. JSON as above.
std::string render_candidates(const TuneTable&, Format, bool wide = false);

// A C++ header of constexpr choices, which needs nothing but the standard library.
std::string render_header(const TuneTable&);

// How many rows are UNSURE and what to do about it; empty when none is. `resumes`: whether the same
// command goes on from what is known.
std::string unsure_note(const TuneTable&, bool resumes);
std::string unsure_note(std::size_t unsure, std::size_t all, const Disturbances&, bool resumes);
// Exit code 0, or 1 when no row has an algorithm.
int exit_code(const TuneTable&);

// An element of the JSON's `layers`.
nlohmann::ordered_json layer_json(const LayerResult&);

}  // namespace convlab
