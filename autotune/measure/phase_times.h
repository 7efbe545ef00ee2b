// The time that one run of an algorithm spends in each phase.
#pragma once

#include <vector>

#include "autotune/result.h"
#include "autotune/testbed/testbed.h"
#include "conv/algo.h"

namespace convlab {

struct PhaseTimes {
  double ms = 0;                 // of one run with phase timing on: a median
  std::vector<double> phase_ms;  // of that, indexed as WorkEstimate::phases: the mean over the
                                 // recording threads
  double other_ms = 0;           // the rest: thread start, waiting, imbalance
};

// Runs it a few times with hot or cold operands; its work estimate has this many phases. Rethrows
// whatever running throws.
PhaseTimes measure_phases(PlannedRun&, std::size_t phases, CacheMode, Device&, Stream&);
// The same on the case's data. The problem is the case's with layouts, and not refused; the
// expected outputs are not used. Rethrows whatever planning and running throw.
PhaseTimes measure_phases(const ConvAlgo&, const ConvProblem&, const Config&, CacheMode,
                          const ReferenceCase&, Device&);

}  // namespace convlab
