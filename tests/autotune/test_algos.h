// Algorithms that are right but slow, wrong, or worse: what a tuner must survive.
#pragma once

#include "conv/registry.h"

namespace convlab {

// "plain" and "slow" are right in every layout ("slow" takes 10 ms more), "nchw_only" refuses
// other layouts, "picky" refuses everything, "chooser" says what it took, "sloppy" is off by 1e-3,
// "liar" is wrong, "greedy" runs out of memory, "thrower" throws, "tired" does at its third run,
// "loser" loses the device for all of its process, "segfault", "abort" and "exit" end the process,
// "hang" does not come back, "late_segfault" is right once and then crashes.
void append_test_algos(AlgoRegistry&);

}  // namespace convlab
