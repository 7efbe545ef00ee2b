// 1x1 convolution as the plain sum that it is: y[n,k,i] = sum over c of w[k,c] x[n,c,i], for every
// pixel i. Forward, f32, NCHW; a thread takes whole output planes.
#include <fmt/format.h>

#include <algorithm>

#include "conv/refusals.h"
#include "kernels_cpu/algos.h"

namespace convlab::cpu {
namespace {

class PointwisePlan final : public ConvPlan {
 public:
  PointwisePlan(const ConvProblem& problem, int threads) : p_(problem), threads_(threads) {}

  std::size_t workspace_bytes() const noexcept override { return 0; }

  void run(const ConvArgs& args, Workspace, Stream&) const override {
    const auto* x = static_cast<const float*>(args.x);
    const auto* w = static_cast<const float*>(args.w);
    auto* y = static_cast<float*>(args.out);
    const std::int64_t pixels = p_.h * p_.w;
#pragma omp parallel for collapse(2) num_threads(threads_)
    for (std::int64_t n = 0; n < p_.n; ++n)
      for (std::int64_t k = 0; k < p_.k; ++k) {
        const PhaseScope scope(args.phases, 0);
        float* const plane = y + (n * p_.k + k) * pixels;
        std::fill_n(plane, pixels, 0.0f);
        for (std::int64_t c = 0; c < p_.c; ++c)
          for (std::int64_t i = 0; i < pixels; ++i)
            plane[i] += w[k * p_.c + c] * x[(n * p_.c + c) * pixels + i];
      }
  }

 private:
  const ConvProblem p_;
  const int threads_;
};

class Pointwise final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "pointwise",
                               .version = 1,
                               .device = DeviceKind::cpu,
                               .origin = Origin::own,
                               .summary = "1x1 as a plain sum over channels",
                               .libraries = {}};
    return info;
  }

  std::optional<Refusal> refuse(const ConvProblem& p, Device&) const override {
    const auto text = [](auto value) { return std::string(to_string(value)); };
    if (p.pass != Pass::forward) return Refusal{Field::pass, "fwd", text(p.pass)};
    if (p.dtype != DType::f32) return Refusal{Field::dtype, "f32", text(p.dtype)};
    if (p.r != 1 || p.s != 1)
      return Refusal{Field::filter, "a 1x1 filter", fmt::format("{}x{}", p.r, p.s)};
    if (auto refusal = refuse_all_but_dense(p)) return refusal;  // strides, dilation, groups
    if (p.pad_h != 0 || p.pad_w != 0 || !p.symmetric_padding())
      return Refusal{Field::padding, "no padding", fmt::format("{}x{}", p.pad_h, p.pad_w)};
    for (const Layout layout : {p.x_layout, p.y_layout})
      if (layout != Layout::nchw) return Refusal{Field::layout, "nchw", text(layout)};
    if (!p.epilogue.empty() || p.accumulate)
      return Refusal{Field::epilogue, "no epilogue and no accumulation"};
    return {};
  }

  std::vector<Config> configs(const ConvProblem&, Device&) const override { return {Config{}}; }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }

  WorkEstimate work(const ConvProblem& p, const Config&, Device&) const override {
    return {{{.name = "sum",
              .flops = p.flops(),
              .bytes_read = double(p.x_bytes() + p.filter_bytes()),
              .bytes_written = double(p.y_bytes()),
              .efficiency = 0.1}}};
  }

  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& config,
                                 Device& device) const override {
    config.require_only({});
    return std::make_unique<PointwisePlan>(p, device.info().threads);
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_pointwise() { return std::make_unique<Pointwise>(); }

}  // namespace convlab::cpu
