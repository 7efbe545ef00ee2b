// Algorithms that are right but slow, wrong, or worse: what a tuner must survive.
#pragma once

#include "conv/registry.h"

namespace convlab {

// "plain" and "slow" are right in every layout ("slow" takes 10 ms more), "nchw_only" refuses
// other layouts, "picky" refuses everything, "chooser" says what it took, "sloppy" is off by 1e-3,
// "liar" is wrong, "greedy" runs out of memory, "thrower" throws, "tired" does at its third run,
// "loser" loses the device for all of its process, "segfault", "abort", "exit", "killed", "limited"
// and "starved" end the process, "threadless" gets no thread, "hang" does not come back,
// "late_segfault" is right once and then crashes.
void append_test_algos(AlgoRegistry&);

// Indices of devices that a worker cannot make ready.
inline constexpr int device_that_exits = 1, device_that_is_killed = 2, device_that_is_lost = 3;

}  // namespace convlab
