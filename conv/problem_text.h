// Problems' texts as people and benchdnn write them, with what is worth a warning. Padding that
// follows from oh is refused where it is more than the filter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "conv/problem.h"

namespace convlab {

// parse_problem, which says in `warnings` when there is no mb.
NamedProblem parse_problem(std::string_view text, std::vector<std::string>& warnings);

// What read_problem_file makes of the text of a file `name`. Options (`--dir=FWD_B`) may also stand
// before a problem.
std::vector<NamedProblem> parse_problems(std::string_view text, const std::string& name,
                                         std::vector<std::string>* warnings = nullptr);

}  // namespace convlab
