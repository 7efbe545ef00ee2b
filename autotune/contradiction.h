// An implausible result is raced once more before it is believed.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "autotune/algos.h"
#include "autotune/measure/ceilings.h"
#include "autotune/tuning_entry.h"

namespace convlab {

// How the choice contradicts other knowledge: its prediction although its rivals' predictions hold,
// the machine's peak, an earlier run, or another pass of the same convolution among `all`. nullopt
// for a choice that was never run.
std::optional<std::string> contradiction(const TuningEntry&, std::span<const TuningEntry> all,
                                         const Algos&, Device&, const Ceilings&);

}  // namespace convlab
