// A tuning run's table in every format.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "autotune/tuner.h"
#include "bench/report.h"

namespace convlab {

// One row a layer and pass. JSON is design's: provenance, layers with all their candidates, totals.
// hpp is a C++ header of constexpr choices that needs nothing but the standard library.
std::string render(const TuneTable&, Format);

// The same with every candidate, best first within its layer and pass, one a row. JSON as above.
std::string render_candidates(const TuneTable&, Format);

// "nchw16c", or "nchw>nchw16c" where x and y differ.
std::string show_layouts(const Candidate&);
std::string show_choice(const Candidate&);    // "winograd tile=4 nchw16c"
std::string show_layer(const NamedProblem&);  // its name, or its text when it has none
// The runner-up and its ms over the chosen's; of one of the same algorithm, what differs.
std::string show_next_best(const LayerResult&);

// An element of the JSON's `layers`.
nlohmann::ordered_json layer_json(const LayerResult&);

}  // namespace convlab
