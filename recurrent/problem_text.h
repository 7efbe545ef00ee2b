// Texts of recurrent problems as people write them, with warnings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recurrent/problem.h"

namespace convlab {

// parse_recurrent_problem that also adds a warning when there is no mb.
NamedRecurrentProblem parse_recurrent_problem(std::string_view text,
                                              std::vector<std::string>& warnings);

}  // namespace convlab
