// What the network between ranks takes, measured by averages around a ring.
#pragma once

#include <array>

#include "nets/distributed/communicator.h"
#include "nets/scaling/network.h"

namespace convlab::nets {

// Seconds of an average of these values: the best of a few. Collective.
double best_average_s(Communicator&, Span values, const Average&);

struct TimedAverage {
  double bytes = 0, seconds = 0;
};
// The link with which all_reduce_s of a ring takes these times: its bandwidth from the larger two,
// whose difference has no latency and no burst that a shaped link lets pass, and its latency from
// the smallest. Ascending sizes. Throws InputError for fewer than two ranks, and EnvironmentError
// if the largest takes no longer than the second.
Link link_from(int ranks, const std::array<TimedAverage, 3>&);

// The link between these ranks, as their averages of up to 4 MiB see it: additions and copies
// count as transfer. Collective; the same on all ranks.
Link measured_link(Communicator&);

}  // namespace convlab::nets
