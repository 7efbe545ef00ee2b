#include "kernels_cpu/groups.h"

#include <fmt/format.h>

#include "kernels_cpu/gemm/tile_shape.h"

namespace convlab::cpu {

ConvProblem problem_of_group(ConvProblem p) {
  if (p.groups == 1) return p;
  p.x_steps.image = p.x_desc().image_step();
  p.y_steps.image = p.y_desc().image_step();
  p.c /= p.groups;
  p.k /= p.groups;
  p.groups = 1;
  return p;
}

std::optional<Refusal> refuse_parts_of_blocks_in_groups(const ConvProblem& p) {
  const std::int64_t block = tile_shape().block, c = p.c / p.groups, k = p.k / p.groups;
  if (p.groups == 1 || (c % block == 0 && k % block == 0)) return {};
  return Refusal{Field::groups,
                 fmt::format("channels and filters of a group in multiples of {}", block),
                 fmt::format("{} groups of {} channels and {} filters", p.groups, c, k)};
}

// One thread a group unless that leaves more than a fifth of them idle.
GroupTeams::GroupTeams(std::int64_t count, std::int64_t all_threads)
    : groups(count), threads(all_threads) {
  const std::int64_t rounds = ceil_div(groups, all_threads);
  if (5 * groups < 4 * rounds * all_threads) return;
  teams = all_threads;
  threads = 1;
}

DeviceInfo GroupTeams::device_of_team(DeviceInfo device) const {
  device.threads = int(threads);
  return device;
}

}  // namespace convlab::cpu
