// Plans whose vectors write every lane of a channel block. Internal.
#pragma once

#include <memory>

#include "conv/algo.h"

namespace convlab::cpu {

// The plan, and behind it a pass over the lanes that pad y, where its activation would leave
// something else than zero there.
std::unique_ptr<ConvPlan> with_zero_padding(const ConvProblem&, std::unique_ptr<ConvPlan>);

}  // namespace convlab::cpu
