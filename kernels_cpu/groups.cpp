#include "kernels_cpu/groups.h"

#include <fmt/format.h>

#include <utility>

#include "conv/text/counted.h"
#include "kernels_cpu/gemm/tile_shape.h"

namespace convlab::cpu {
namespace {

class PlanByGroups final : public ConvPlan {
 public:
  PlanByGroups(const ConvProblem& whole, std::unique_ptr<ConvPlan> plan)
      : problem_(whole), group_(problem_of_group(whole)), plan_(std::move(plan)) {}

  std::size_t workspace_bytes() const noexcept override { return plan_->workspace_bytes(); }
  std::size_t packed_filter_bytes() const noexcept override {
    return std::size_t(problem_.groups) * packed_bytes();
  }

  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    for (std::size_t group = 0; group < std::size_t(problem_.groups); ++group)
      plan_->pack_filter(w.subspan(group * filter_bytes(), filter_bytes()),
                         packed.subspan(group * packed_bytes(), packed_bytes()), stream);
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    const std::int64_t size = size_of(problem_.dtype);
    for (std::int64_t group = 0; group < problem_.groups; ++group) {
      const std::int64_t x = size * problem_.x_desc().offset(0, group * group_.c, 0, 0);
      const std::int64_t y = size * problem_.y_desc().offset(0, group * group_.k, 0, 0);
      const std::int64_t dw = group * group_.filter_bytes();
      const std::int64_t w = packed_bytes() > 0 ? group * std::int64_t(packed_bytes()) : dw;
      ConvArgs own = args;
      own.x = advance(args.x, x);
      own.w = advance(args.w, w);
      own.dy = advance(args.dy, y);
      own.bias = advance(args.bias, group * group_.k * size);
      own.residual = advance(args.residual, y);
      own.out = const_cast<void*>(advance(args.out, problem_.pass == Pass::forward         ? y
                                                    : problem_.pass == Pass::backward_data ? x
                                                                                           : dw));
      plan_->run(own, workspace, stream);
    }
  }

 private:
  // Packed filters begin at cache lines.
  std::size_t packed_bytes() const {
    return std::size_t(round_up(std::int64_t(plan_->packed_filter_bytes()), 64));
  }
  std::size_t filter_bytes() const { return std::size_t(group_.filter_bytes()); }

  static const void* advance(const void* data, std::int64_t bytes) {
    return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + bytes;
  }

  const ConvProblem problem_, group_;
  const std::unique_ptr<ConvPlan> plan_;
};

}  // namespace

std::unique_ptr<ConvPlan> make_plan_by_groups(const ConvProblem& p,
                                              std::unique_ptr<ConvPlan> of_group) {
  if (p.groups == 1) return of_group;
  return std::make_unique<PlanByGroups>(p, std::move(of_group));
}

ConvProblem problem_of_group(ConvProblem p) {
  if (p.groups == 1) return p;
  p.x_steps.image = p.x_desc().image_step();
  p.y_steps.image = p.y_desc().image_step();
  p.c /= p.groups;
  p.k /= p.groups;
  p.groups = 1;
  return p;
}

WorkEstimate work_of_groups(WorkEstimate estimate, std::int64_t groups) {
  const auto multiply = [&](PhaseWork& work) {
    for (double* const part : {&work.flops, &work.bytes_read, &work.bytes_written})
      *part *= double(groups);
  };
  for (PhaseWork& phase : estimate.phases) multiply(phase);
  multiply(estimate.pack);
  return estimate;
}

std::optional<Refusal> refuse_parts_of_blocks_in_groups(const ConvProblem& p) {
  const std::int64_t block = tile_shape().block, c = p.c / p.groups, k = p.k / p.groups;
  if (p.groups == 1 || (c % block == 0 && k % block == 0)) return {};
  return Refusal{
      Field::groups, fmt::format("channels and filters of a group in multiples of {}", block),
      fmt::format("{} groups of {} and {}", p.groups, counted(c, "channel"), counted(k, "filter"))};
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
