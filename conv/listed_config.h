// Configs that come from outside: a file, another program.
#pragma once

#include <memory>

#include "conv/algo.h"

namespace convlab {

// A plan by a config that the algorithm itself lists for this problem, with or without its
// epilogue, and whether it adds to its output or not: configs are chosen before that is known.
// Throws InputError for every other config, listing those, and for a problem that is refused.
std::unique_ptr<ConvPlan> plan_listed(const ConvAlgo&, const ConvProblem&, const Config&, Device&);

}  // namespace convlab
