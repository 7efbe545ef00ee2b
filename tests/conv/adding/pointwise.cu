// 1x1 convolution as the plain sum that it is, on a card. Forward, f32, NCHW.
#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/kernel.h"

namespace convlab::cuda {
namespace {

// One thread a pixel of one output plane; neighbours in x read neighbours in memory.
__global__ void pointwise_forward(int pixels, int c_count, const float* x, const float* w,
                                  float* y) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  const int k = int(blockIdx.y), n = int(blockIdx.z);
  if (i >= pixels) return;
  float sum = 0;
  for (int c = 0; c < c_count; ++c)
    sum += w[k * c_count + c] * x[(std::int64_t(n) * c_count + c) * pixels + i];
  y[(std::int64_t(n) * gridDim.y + k) * pixels + i] = sum;
}

class PointwisePlan final : public ConvPlan {
 public:
  explicit PointwisePlan(const ConvProblem& problem) : p_(problem) {}

  std::size_t workspace_bytes() const noexcept override { return 0; }

  void run(const ConvArgs& args, Workspace, Stream& stream) const override {
    const dim3 grid(unsigned(ceil_div(p_.h * p_.w, 128)), unsigned(p_.k), unsigned(p_.n));
    run_phase(args.phases, 0, stream, [&] {
      launch(pointwise_forward, grid, 128, 0, stream, int(p_.h * p_.w), int(p_.c),
             static_cast<const float*>(args.x), static_cast<const float*>(args.w),
             static_cast<float*>(args.out));
    });
  }

 private:
  const ConvProblem p_;
};

class Pointwise final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "pointwise",
                               .version = 1,
                               .device = DeviceKind::cuda,
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
    // Planes and weights are counted in int, and blocks in y and z.
    constexpr std::int64_t most = (std::int64_t(1) << 31) - 128, most_blocks = 65535;
    if (const std::int64_t size = std::max(p.h * p.w, p.filter_elements()); size > most)
      return Refusal{Field::size, "at most 2^31 - 128 pixels and weights", fmt::format("{}", size)};
    if (const std::int64_t blocks = std::max(p.n, p.k); blocks > most_blocks)
      return Refusal{Field::size, "at most 65535 images and filters", fmt::format("{}", blocks)};
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
                                 Device&) const override {
    if (config != Config{}) throw InputError("pointwise has no config '" + config.text() + "'");
    return std::make_unique<PointwisePlan>(p);
  }
};

}  // namespace

std::unique_ptr<ConvAlgo> make_pointwise() { return std::make_unique<Pointwise>(); }

}  // namespace convlab::cuda
