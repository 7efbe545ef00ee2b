// Problem texts as people and benchdnn write them, with warnings. Padding derived from oh is
// refused if it exceeds the filter.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "conv/problem.h"

namespace convlab {

// parse_problem that also adds a warning when there is no mb.
NamedProblem parse_problem(std::string_view text, std::vector<std::string>& warnings);

// Calls `take` with each line of the file `name` that has a problem, without its comment. It
// returns whether the line says a batch. Skips and warns as read_problem_file does, and throws what
// `take` throws, with the file and line.
void for_each_problem_line(std::string_view text, const std::string& name,
                           std::vector<std::string>* warnings,
                           const std::function<bool(std::string_view)>& take);

// Parses the text of the file `name` as read_problem_file does. Options (`--dir=FWD_B`) may also
// stand before a problem.
std::vector<NamedProblem> parse_problems(std::string_view text, const std::string& name,
                                         std::vector<std::string>* warnings = nullptr);

}  // namespace convlab
