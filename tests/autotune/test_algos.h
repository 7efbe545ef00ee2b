// Algorithms that are right but slow, wrong, or worse. A tuner must survive all of them.
#pragma once

#include "conv/registry.h"

namespace convlab {

// "plain" and "slow" are right in every layout ("slow" pretends to be slow), "nchw_only" refuses
// other layouts, "picky" refuses everything, "chooser" reports its choice, "sloppy" is off by 1e-3,
// "liar" is wrong, "greedy" runs out of memory, "thrower" throws, "tired" throws at its third run,
// "loser" loses the device for its whole process, "segfault", "abort", "exit", "killed", "limited"
// and "starved" end the process, "threadless" gets no thread, "hang" never returns, "late_segfault"
// is right once and then crashes.
void append_test_algos(AlgoRegistry&);
// The seconds that their runs in this process have pretended to take: 10 ms each, 100 ms "slow".
double pretended_s();

// Indices of devices that a worker cannot set up.
inline constexpr int device_that_exits = 1, device_that_is_killed = 2, device_that_is_lost = 3;

}  // namespace convlab
