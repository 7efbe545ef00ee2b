// A tuning run's table in every format.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "autotune/tuner.h"
#include "bench/options/choice.h"
#include "bench/reports/report.h"

namespace convlab {

// The version of `convlab_tune` that is written, and that diff reads.
inline constexpr int tune_format = 1;

// One row per layer and pass. The table fits a terminal unless it is `wide`; md is always wide.
// Both merge equal problems into one row and add their counts. JSON has provenance, layers with all
// their candidates, and totals. hpp is render_header()'s.
std::string render(const TuneTable&, Format, bool wide = false);

// The same with one row per candidate, best first within its layer and pass. JSON as above.
std::string render_candidates(const TuneTable&, Format, bool wide = false);

// A C++ header of constexpr choices that needs only the standard library.
std::string render_header(const TuneTable&);

// Which part of a table this is; empty for a whole one.
std::string shard_note(const TuneTable&);
// The number of UNSURE rows and what to do about it; empty if there are none. `resumes`: whether
// the same command continues from the stored results.
std::string unsure_note(const TuneTable&, bool resumes);
std::string unsure_note(std::size_t unsure, std::size_t all, const Disturbances&, bool resumes);
// Exit code 0, or 1 when no row has an algorithm.
int exit_code(const TuneTable&);

// [x's, y's]; empty where there are none to choose.
nlohmann::ordered_json layouts_json(const Candidate&);
// A ratio's low, middle and high; null where there is none.
nlohmann::ordered_json ratio_json(const std::array<double, 3>&);
// An element of the JSON's `layers`.
nlohmann::ordered_json layer_json(const LayerResult&);

}  // namespace convlab
