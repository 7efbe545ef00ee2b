// What the network between ranks takes, measured by averages around a ring.
#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "nets/distributed/communicator.h"
#include "nets/scaling/network.h"

namespace convlab::nets {

// Seconds of an average of these values, in the median of a few. Collective.
double median_average_s(Communicator&, Span values, const Average&);

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

// Averages of 4 MiB one after another, on a thread of its own: what an exchange is to the
// computation beside it.
class SteadyAverages {
 public:
  explicit SteadyAverages(Communicator&);  // collective; they begin
  ~SteadyAverages();                       // gives up those that are not stopped
  void count_anew();                       // those that begin from now on
  // Collective, once. Seconds of one in the mean. Throws what ended them before.
  double stop();

 private:
  void run();

  const std::unique_ptr<Communicator> ranks_;
  std::vector<float> values_;
  std::atomic<bool> stop_ = false, give_up_ = false, count_anew_ = false;
  double mean_s_ = 0;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace convlab::nets
