#include "autotune/measure/sampler.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "autotune/measure/disturbance.h"

namespace convlab {
namespace {

constexpr int tries_at_once = 3;
constexpr double first_pause_s = 0.01, longest_pause_s = 0.2;
constexpr double patience_at_start_s = 20, most_patience_s = 60;
constexpr double refill = 0.5;  // seconds of patience per second of undisturbed work

}  // namespace

RaceClock real_clock() {
  return {.now =
              [] {
                return std::chrono::duration<double>(
                           std::chrono::steady_clock::now().time_since_epoch())
                    .count();
              },
          .sleep = [](double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }};
}

Sampler::Sampler(std::function<bool()> stop, RaceClock clock)
    : stop_(std::move(stop)), clock_(std::move(clock)), patience_s_(patience_at_start_s) {}

std::optional<double> Sampler::take(CandidateRunner& runner, const Candidate& c, Timed timed,
                                    int runs) {
  double pause_s = first_pause_s;
  // Some candidates disturb themselves, with more threads than there are processors: one sample
  // uses at most half of the remaining patience.
  const double least_patience_s = std::max(0.0, patience_s_ / 2);
  for (int tried = 1;; ++tried) {
    const double start_s = clock_.now();
    const Sample sample = runner.sample(c, timed, runs);
    const double took_s = clock_.now() - start_s;
    ++samples_;
    if (sample.lost <= most_lost) {
      patience_s_ = std::min(most_patience_s, patience_s_ + refill * took_s);
      return 1e3 * sample.seconds;
    }
    ++disturbed_;
    patience_s_ -= took_s;
    if (stopped()) return {};
    if (tried < tries_at_once) continue;
    if (patience_s_ <= least_patience_s) return {};
    clock_.sleep(pause_s);
    patience_s_ -= pause_s;
    pause_s = std::min(longest_pause_s, 2 * pause_s);
  }
}

}  // namespace convlab
