// Takes undisturbed samples.
#pragma once

#include <functional>
#include <optional>

#include "autotune/race/candidate_runner.h"

namespace convlab {

// The clock of a race; tests replace it.
struct RaceClock {
  std::function<double()> now;        // seconds
  std::function<void(double)> sleep;  // for at most this many seconds
};
RaceClock real_clock();

// A disturbed sample is taken again, at once and then after growing pauses, since noise comes in
// bursts. Waiting draws on a time budget ("patience") that the whole run shares and that
// undisturbed work refills. A machine that is never quiet thus costs a bounded share of the run,
// and its rows stay open.
class Sampler {
 public:
  explicit Sampler(std::function<bool()> stop = {}, RaceClock = real_clock());

  // Milliseconds; nullopt when every try was disturbed, or stopped. Throws CandidateLost.
  std::optional<double> take(CandidateRunner&, const Candidate&, Timed, int runs);

  bool stopped() const { return stop_ && stop_(); }
  double now() const { return clock_.now(); }
  std::int64_t samples() const { return samples_; }
  std::int64_t disturbed() const { return disturbed_; }

 private:
  std::function<bool()> stop_;
  RaceClock clock_;
  double patience_s_;
  std::int64_t samples_ = 0, disturbed_ = 0;
};

}  // namespace convlab
