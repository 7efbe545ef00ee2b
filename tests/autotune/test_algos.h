// Algorithms that are right but slow, wrong, or worse. A tuner must survive all of them.
#pragma once

#include "autotune/algos.h"

namespace convlab {

// "plain" and "slow" are right in every layout ("slow" pretends to be slow), "nchw_only" refuses
// other layouts, "picky" refuses everything, "chooser" reports its choice, "sloppy" is off by 1e-3,
// "liar" is wrong, "greedy" runs out of memory, "thrower" throws, "tired" throws at its third run,
// "loser" loses the device for its whole process, "segfault", "abort", "exit", "killed", "limited"
// and "starved" end the process, "threadless" gets no thread, "hang" never returns, "late_segfault"
// is right once and then crashes.
void append_test_algos(AlgoRegistry&);
// For recurrent layers, all right but for what they are named after, by the CPU's `stepwise`:
// "plain_rnn", "slow_rnn", "last_row" (the last row of a batch has another's result), "forgetful"
// (writes no final states), "overrunning" (writes past y), "crashing". "own_format" keeps
// what it saves in a format of its own, and does backward_filter's products in backward_data.
void append_test_algos(RecurrentRegistry&);
void append_test_algos(Algos&);
// The seconds that their runs in this process have pretended to take: 10 ms each, 100 ms "slow".
double pretended_s();

// Indices of devices that a worker cannot set up.
inline constexpr int device_that_exits = 1, device_that_is_killed = 2, device_that_is_lost = 3;

}  // namespace convlab
