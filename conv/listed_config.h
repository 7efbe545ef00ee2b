// Configs from outside: a file, another program.
#pragma once

#include <memory>

#include "conv/algo.h"

namespace convlab {

// Makes a plan for a config that the algorithm lists for this problem, with or without its epilogue
// and accumulation: configs are chosen before those are known. Throws InputError for every other
// config, listing the valid ones, and for a problem that is refused.
std::unique_ptr<ConvPlan> plan_listed(const ConvAlgo&, const ConvProblem&, const Config&, Device&);

}  // namespace convlab
