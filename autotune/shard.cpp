#include "autotune/shard.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autotune/race/race.h"
#include "autotune/testbed/testbed.h"

namespace convlab {

Ceilings nominal_ceilings(const DeviceInfo& device) {
  constexpr double core_flops = 5e10, core_l2 = 5e10, core_l3 = 2e10, memory = 2e10;
  Ceilings c;
  c.threads = device.threads;
  c.measured = false;
  if (device.kind == DeviceKind::cuda) {
    c.set_flops(DType::f32, device.peak_f32_flops);
    c.set_flops(DType::f64, device.peak_f64_flops);
    c.l2_bandwidth = c.l3_bandwidth = c.memory_bandwidth = device.peak_bandwidth;
    return c;
  }
  c.set_flops(DType::f32, core_flops * device.threads);
  c.set_flops(DType::f64, core_flops / 2 * device.threads);
  c.l2_bandwidth = core_l2 * device.threads;
  c.l3_bandwidth = core_l3 * device.threads;
  c.memory_bandwidth = memory;
  return c;
}

double tuning_cost_s(const TuningEntry& entry, double prune_factor) {
  constexpr double preparing_s = 0.01;
  constexpr int screening_samples = 6, finals_samples = 20;
  const RaceOptions race;
  std::vector<double> times_s;
  double best_s = std::numeric_limits<double>::infinity();
  for (const Candidate& c : entry.candidates) {
    if (!is_open(c)) continue;
    times_s.push_back(c.ms * 1e-3);
    best_s = std::min(best_s, times_s.back());
  }
  std::sort(times_s.begin(), times_s.end());
  double cost_s = reference_s(entry.problem);
  for (std::size_t i = 0; i < times_s.size() && times_s[i] <= prune_factor * best_s; ++i) {
    const int samples = screening_samples + (i < race.finalists ? finals_samples : 0);
    cost_s += preparing_s + samples * std::max(times_s[i], race.min_sample_s);
  }
  return cost_s;
}

std::vector<std::int64_t> balanced_shards(const std::vector<double>& costs, std::int64_t shards) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<double> loads(std::size_t(shards), 0.0);
  std::vector<std::int64_t> shard(costs.size());
  for (const std::size_t i : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += costs[i];
    shard[i] = least - loads.begin();
  }
  return shard;
}

}  // namespace convlab
