#include "nets/distributed/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "conv/error.h"

namespace convlab::nets {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t long_average = 4 << 20;

}  // namespace

double median_average_s(Communicator& ranks, Span values, const Average& how) {
  std::array<double, 5> runs_s;
  for (double& s : runs_s) {
    ranks.barrier();
    const Clock::time_point begin = Clock::now();
    ranks.average(values, how);
    s = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  const auto middle = runs_s.begin() + runs_s.size() / 2;
  std::nth_element(runs_s.begin(), middle, runs_s.end());
  return *middle;
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
  std::vector<std::byte> values(long_average);
  const auto time = [&](std::size_t bytes) {
    return TimedAverage{double(bytes), median_average_s(ranks, Span(values).first(bytes), {})};
  };
  const std::array times{time(64 * std::size_t(ranks.size())), time(1 << 20), time(values.size())};
  return ranks.all_gather(ranks.rank() == 0 ? link_from(ranks.size(), times) : Link()).front();
}

SteadyAverages::SteadyAverages(Communicator& ranks)
    : ranks_(ranks.duplicate()),
      values_(long_average / sizeof(float)),
      thread_([this] { run(); }) {}

SteadyAverages::~SteadyAverages() {
  give_up_ = true;
  if (thread_.joinable()) thread_.join();
}

double SteadyAverages::stop() {
  stop_ = true;
  thread_.join();
  if (error_) std::rethrow_exception(error_);
  return mean_s_;
}

void SteadyAverages::count_anew() { count_anew_ = true; }

// All end after the same average: the first value is above 0 once a rank wants to stop.
void SteadyAverages::run() {
  const Span bytes = std::as_writable_bytes(std::span(values_));
  Clock::time_point begin = Clock::now();
  try {
    for (int count = 1; values_[0] == 0; ++count) {
      if (count_anew_.exchange(false)) {
        begin = Clock::now();
        count = 1;
      }
      values_[0] = stop_ ? 1.0f : 0.0f;
      const auto average = ranks_->start_average(bytes, {});
      if (!ranks_->complete(*average, &give_up_)) return;
      mean_s_ = std::chrono::duration<double>(Clock::now() - begin).count() / count;
    }
  } catch (...) {
    error_ = std::current_exception();
  }
}

}  // namespace convlab::nets
