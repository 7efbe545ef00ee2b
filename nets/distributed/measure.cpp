#include "nets/distributed/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "conv/error.h"

namespace convlab::nets {

double best_average_s(Communicator& ranks, Span values, const Average& how) {
  using Clock = std::chrono::steady_clock;
  constexpr int runs = 5;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    ranks.barrier();
    const Clock::time_point begin = Clock::now();
    ranks.average(values, how);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

// A ring takes 2 (n-1) latency + 2 (n-1) / (n bandwidth) bytes.
Link link_from(int ranks, const std::array<TimedAverage, 3>& times) {
  if (ranks < 2) throw InputError(fmt::format("a network of {} ranks: expected 2 or more", ranks));
  const auto& [small, medium, large] = times;
  const double s_per_byte = (large.seconds - medium.seconds) / (large.bytes - medium.bytes);
  if (!(s_per_byte > 0))
    throw EnvironmentError("the network takes no longer for more bytes: something else used it");
  const double steps = 2.0 * (ranks - 1);
  return {.latency_s = std::max(small.seconds - s_per_byte * small.bytes, 0.0) / steps,
          .bytes_per_s = steps / (ranks * s_per_byte)};
}

Link measured_link(Communicator& ranks) {
  std::vector<std::byte> values(std::size_t{4} << 20);
  const auto time = [&](std::size_t bytes) {
    return TimedAverage{double(bytes), best_average_s(ranks, Span(values).first(bytes), {})};
  };
  const std::array times{time(64 * std::size_t(ranks.size())), time(1 << 20), time(values.size())};
  return ranks.all_gather(ranks.rank() == 0 ? link_from(ranks.size(), times) : Link()).front();
}

}  // namespace convlab::nets
