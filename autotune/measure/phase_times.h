// Where one run of an algorithm spends its time, phase by phase.
#pragma once

#include <vector>

#include "autotune/result.h"
#include "autotune/verify.h"
#include "conv/algo.h"

namespace convlab {

struct PhaseTimes {
  double ms = 0;                 // of one run with the clocks of its phases going: a median
  std::vector<double> phase_ms;  // of that, as WorkEstimate::phases are numbered: the mean over the
                                 // threads that recorded anything
  double other_ms = 0;           // the rest: threads that start, wait, or have less to do
};

// Runs the algorithm a few times on the case's data, with hot or cold operands. The problem is the
// case's with layouts, and not refused; what the outputs should be is not asked for. Throws
// whatever planning and running throw.
PhaseTimes measure_phases(const ConvAlgo&, const ConvProblem&, const Config&, CacheMode,
                          const ReferenceCase&, Device&);

}  // namespace convlab
