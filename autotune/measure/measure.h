// Timing samples: statistics on them (pure functions) and how they are taken.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "autotune/result.h"

namespace convlab {

double median(std::span<const double> samples);  // 0 when empty
double median_abs_deviation(std::span<const double> samples);

// {2.5%, median, 97.5%} of the median of a[i] / b[i], where a[i] and b[i] are from the same round,
// by resampling whole rounds (percentile bootstrap; Efron & Tibshirani 1993). Pairing cancels a
// slowdown of a whole round, and a single lucky sample cannot move the median. Equal seeds give
// equal intervals. All zero when there are no rounds.
std::array<double, 3> paired_ratio(std::span<const double> a, std::span<const double> b,
                                   std::uint64_t seed);

// Student's t with `freedom` degrees of freedom exceeds this with probability `tail`. Degrees above
// most_student_freedom are treated as that many, which is 3% wider than the normal distribution.
inline constexpr int most_student_freedom = 100;
double student_quantile(double tail, int freedom);

// Runs per sample so that it takes at least min_sample_s and the clock's resolution and cost become
// negligible. 1 when a single run is longer; 10000 at most.
int runs_per_sample(double seconds_per_run, double min_sample_s);

// Mean seconds of one call over `runs` calls back to back.
double time_runs(const std::function<void()>& run, int runs);
// Median of the calls that fill a millisecond, after an untimed one.
double quick_s(const std::function<void()>& work);

struct NoiseFloor {
  double clock_s = 0;   // smallest step of the clock
  double mad = 0;       // of repeated timings of one work item, relative to their median
  double interval = 0;  // half the width of that work's ratio to itself; should contain 1
};
// Times `work`, in samples of at least about min_sample_s, against itself. Well under 0.2 s for 1
// ms.
NoiseFloor measure_noise_floor(const std::function<void()>& work, double min_sample_s = 1e-3);

}  // namespace convlab
