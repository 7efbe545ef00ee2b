// Where one run of an algorithm spends its time, phase by phase.
#pragma once

#include <cstdint>
#include <vector>

#include "autotune/result.h"
#include "conv/algo.h"

namespace convlab {

struct PhaseTimes {
  double ms = 0;                 // of one run with the clocks of its phases going: a median
  std::vector<double> phase_ms;  // of that, as WorkEstimate::phases are numbered: the mean over the
                                 // threads that recorded anything
  double other_ms = 0;           // the rest: threads that start, wait, or have less to do
};

// Runs the algorithm a few times on N(0,1) data, with hot or cold operands. The problem has its
// layouts and is not refused. Throws whatever planning and running throw.
PhaseTimes measure_phases(const ConvAlgo&, const ConvProblem&, const Config&, CacheMode, Device&,
                          std::uint64_t seed = 1);

}  // namespace convlab
