// Short texts for a candidate.
#pragma once

#include <string>

#include "autotune/result.h"

namespace convlab {

// One of the candidate's layouts; empty where there are none to choose.
std::string show_layout(const Candidate&, Layout);
// "nchw16c", or "nchw>nchw16c" where x and y differ.
std::string show_layouts(const Candidate&);
std::string show_choice(const Candidate&);  // "winograd tile=4 nchw16c"
// Whether `name` is the algorithm's id or the part before its dot: "onednn" matches
// "onednn.direct". That is the family of an id from a file, and this build may lack the algorithm.
bool stands_for(const std::string& name, const std::string& algo);

}  // namespace convlab
