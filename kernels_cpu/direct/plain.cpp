// The loops of the definition, for problems that neither another algorithm of the family nor
// depthwise takes: f64 with several channels a group, groups that are not whole channel blocks,
// plain layouts, nhwc with parts of blocks. One loop over a row of pixels per filter element, in
// f32 and f64 and in any layout; it vectorises in NCHW, where pixels are neighbours.
//
// It refuses problems that another one takes: it is some fifty times slower, and would only
// lengthen races.
#include "kernels_cpu/direct/plain.h"

#include <fmt/format.h>

#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/depthwise/depthwise.h"
#include "kernels_cpu/direct/family.h"
#include "kernels_cpu/gemm/non_temporal.h"

namespace convlab::cpu {
namespace {

class PlainPlan : public ConvPlan {
 public:
  PlainPlan(const ConvProblem& p, const DeviceInfo& device)
      : problem_(p), threads_(device.threads) {}

  std::size_t workspace_bytes() const noexcept override { return 0; }
  void run(const ConvArgs& args, Workspace, Stream&) const override {
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (int thread = 0; thread < threads_; ++thread) {
      const PhaseScope scope(args.phases, 0);
      plain_loops(problem_, args, thread, threads_);
    }
  }

 private:
  ConvProblem problem_;
  int threads_;
};

class DirectPlain : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{
        .id = "direct_plain",
        .version = 1,
        .summary =
            "the definition's loops as they are, for what no other direct and not depthwise takes",
        .libraries = {},
        .family = "direct"};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device& device) const override {
    if (auto refusal = refuse_all_but({DType::f32, DType::f64}, p)) return refusal;
    if (auto refusal = refuse_other_blocks(p, device.info())) return refusal;
    if (auto refusal = refuse_two_layouts(p)) return refusal;
    // direct_first_layer takes x and y in two layouts only.
    const char* const other = !refuse_direct(p, device.info())           ? "direct"
                              : !refuse_direct_grouped(p, device.info()) ? "direct_grouped"
                              : !refuse_depthwise(p, device.info())      ? "depthwise"
                                                                         : nullptr;
    if (other != nullptr)
      return Refusal{Field::layout, "a problem that direct, direct_grouped and depthwise refuse",
                     fmt::format("one that {} takes", other)};
    return {};
  }

  std::vector<Config> configs(const ConvProblem&, Device&) const override { return {Config{}}; }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config& config, Device& device) const override {
    PhaseWork loops{.name = "loops"};
    if (p.pass == Pass::backward_filter) {
      loops.bytes_read = double(p.x_bytes() + p.y_bytes());
      loops.bytes_written = double(p.filter_bytes());
    } else {
      loops = direct_pixel_work(p, 1, double(device.info().threads));
      loops.bytes_read += bytes_read_for_ownership(p, config, device.info());
    }
    loops.flops = p.flops();
    loops.efficiency = 0.01;
    return {{loops}};
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({});
    return std::make_unique<PlainPlan>(p, device.info());
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_direct_plain() { return std::make_unique<DirectPlain>(); }

}  // namespace convlab::cpu
