// A result that cannot be right is raced once more before it is believed.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "autotune/measure/ceilings.h"
#include "autotune/tuning_entry.h"
#include "conv/registry.h"

namespace convlab {

// In which way the choice contradicts what is known: its prediction where those of its rivals hold,
// the machine's peak, an earlier run, another pass of the same layer among `all`. Nothing for a
// choice that was never run.
std::optional<std::string> contradiction(const TuningEntry&, std::span<const TuningEntry> all,
                                         const AlgoRegistry&, Device&, const Ceilings&);

}  // namespace convlab
