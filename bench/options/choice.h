// A candidate in a few words.
#pragma once

#include <string>

#include "autotune/result.h"

namespace convlab {

// "nchw16c", or "nchw>nchw16c" where x and y differ.
std::string show_layouts(const Candidate&);
std::string show_choice(const Candidate&);  // "winograd tile=4 nchw16c"
// Whether `name` is the algorithm's id or what stands before its dot, "onednn" of "onednn.direct":
// the family of an id from a file, whose algorithm this build may lack.
bool stands_for(const std::string& name, const std::string& algo);

}  // namespace convlab
