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

// Whether a text begins with a word that has a cell's name in it, in any case: "LSTM:t8dhc8",
// "vanilla_rnn", "rnn:28-128-10". It is then meant as a recurrent layer, or as a net of them.
bool begins_with_cell(std::string_view text);

}  // namespace convlab
