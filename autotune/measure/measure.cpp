#include "autotune/measure/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <random>
#include <vector>

namespace convlab {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Reorders its argument, a scratch vector.
double median_in_place(std::vector<double>& v) {
  if (v.empty()) return 0;
  const auto middle = v.begin() + std::ptrdiff_t(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  if (v.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(v.begin(), middle)) / 2;
}

}  // namespace

double median(std::span<const double> samples) {
  std::vector<double> v(samples.begin(), samples.end());
  return median_in_place(v);
}

double median_abs_deviation(std::span<const double> samples) {
  const double m = median(samples);
  std::vector<double> deviations;
  for (double s : samples) deviations.push_back(std::abs(s - m));
  return median_in_place(deviations);
}

std::array<double, 3> paired_ratio(std::span<const double> a, std::span<const double> b,
                                   std::uint64_t seed) {
  constexpr std::size_t resamples = 1000;
  const std::size_t rounds = std::min(a.size(), b.size());
  if (rounds == 0) return {};
  std::vector<double> ratios(rounds);
  for (std::size_t i = 0; i < rounds; ++i) ratios[i] = a[i] / b[i];

  std::mt19937_64 random(seed);
  std::vector<double> medians(resamples), drawn(rounds);
  for (double& m : medians) {
    for (double& d : drawn) d = ratios[random() % rounds];
    m = median_in_place(drawn);
  }
  std::sort(medians.begin(), medians.end());
  return {medians[resamples * 25 / 1000], median(ratios), medians[resamples * 975 / 1000]};
}

// With t = sqrt(freedom) / tan(x) the tail's integral becomes that of sin^(freedom-1) from 0 to x,
// which integration by parts reduces by two powers at a time.
double student_quantile(double tail, int freedom) {
  freedom = std::min(freedom, most_student_freedom);
  const auto integral = [freedom](double x) {
    int power = (freedom - 1) % 2;
    double value = power == 0 ? x : 1 - std::cos(x);
    double sine = power == 0 ? std::sin(x) : std::sin(x) * std::sin(x);  // ^(power + 1)
    while ((power += 2) < freedom) {
      value = ((power - 1) * value - sine * std::cos(x)) / power;
      sine *= std::sin(x) * std::sin(x);
    }
    return value;
  };
  constexpr double right = std::numbers::pi / 2;
  const double wanted = 2 * tail * integral(right);
  double low = 0, high = right;
  for (int i = 0; i < 40; ++i) {
    const double x = (low + high) / 2;
    (integral(x) < wanted ? low : high) = x;
  }
  return std::sqrt(freedom) / std::tan(high);
}

int runs_per_sample(double seconds_per_run, double min_sample_s) {
  constexpr double most = 10000;
  if (seconds_per_run <= 0) return int(most);
  return int(std::clamp(std::ceil(min_sample_s / seconds_per_run), 1.0, most));
}

double time_runs(const std::function<void()>& run, int runs) {
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < runs; ++i) run();
  return seconds_since(start) / runs;
}

double quick_s(const std::function<void()>& work) {
  constexpr double enough_s = 1e-3;
  work();
  std::vector<double> s;
  for (double sum_s = 0; sum_s < enough_s; sum_s += s.back()) s.push_back(time_runs(work, 1));
  return median(s);
}

NoiseFloor measure_noise_floor(const std::function<void()>& work, double min_sample_s) {
  NoiseFloor floor{.clock_s = 1};
  for (int i = 0; i < 100; ++i) {
    const Clock::time_point start = Clock::now();
    double step = 0;
    while ((step = seconds_since(start)) == 0) {
    }
    floor.clock_s = std::min(floor.clock_s, step);
  }
  const int runs = runs_per_sample(time_runs(work, 1), min_sample_s);
  std::vector<double> a, b;
  for (int round = 0; round < 31; ++round) {
    a.push_back(time_runs(work, runs));
    b.push_back(time_runs(work, runs));
  }
  const std::array<double, 3> ratio = paired_ratio(a, b, 1);
  floor.mad = median_abs_deviation(a) / median(a);
  floor.interval = (ratio[2] - ratio[0]) / 2;
  return floor;
}

}  // namespace convlab
