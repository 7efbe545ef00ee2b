#include "kernels_cuda/cudnn/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "conv/error.h"
#include "conv/refusals.h"
#include "conv/two_dimensional.h"

namespace convlab::cuda {

std::optional<Refusal> refuse_pass(const CudnnAlgo& algo, Pass pass) {
  if (algo.number[std::size_t(pass)] >= 0) return {};
  std::string passes;
  for (const Pass p : all_passes)
    if (algo.number[std::size_t(p)] >= 0)
      passes += (passes.empty() ? "" : " or ") + std::string(to_string(p));
  return Refusal{Field::pass, passes, std::string(to_string(pass))};
}

std::string cudnn_version_text(std::size_t v) {
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

std::string cudnn_version_obstacle(std::size_t version) {
  constexpr std::size_t oldest = 90800;  // as in cmake/ for find_package(cuDNN)
  if (version >= oldest) return {};
  return fmt::format("needs cuDNN {} or newer, has {}", cudnn_version_text(oldest),
                     cudnn_version_text(version));
}

std::string choice_text(Pass pass, int number, CudnnMath math) {
  std::string name = fmt::format("algorithm {}", number);
  for (const CudnnAlgo& algo : cudnn_algos)
    if (algo.number[std::size_t(pass)] == number) name = algo.name;
  return fmt::format("took {} {}", name,
                     math == CudnnMath::fma            ? "without tensor cores"
                     : math == CudnnMath::tensor_cores ? "with tensor cores allowed"
                                                       : "with its default math");
}

std::optional<std::size_t> first_usable(std::span<const CudnnAnswer> answers, bool strict_f32) {
  for (std::size_t i = 0; i < answers.size(); ++i)
    if (answers[i].works && (!strict_f32 || answers[i].math == CudnnMath::fma)) return i;
  return {};
}

bool is_deterministic(const CudnnAlgo* algo, const ConvProblem& p) {
  if (p.pass == Pass::forward) return true;
  if (!algo) return false;
  const std::string_view name = algo->name;
  return name != "algo_0" && name != "algo_3";
}

std::optional<std::int64_t> padding_after(std::int64_t inputs, std::int64_t outputs,
                                          std::int64_t taps, std::int64_t stride,
                                          std::int64_t dilation, std::int64_t padding_before) {
  const std::int64_t extent = (taps - 1) * dilation + 1;
  const auto gives = [&](std::int64_t after) {
    const std::int64_t room = inputs + padding_before + after - extent;
    return room >= 0 && room / stride + 1 == outputs;
  };
  const std::int64_t exact = (outputs - 1) * stride + extent - inputs - padding_before;
  for (const std::int64_t after : {padding_before, std::max<std::int64_t>(exact, 0)})
    if (gives(after)) return after;
  return {};
}

std::optional<Refusal> refuse_shape(const ConvProblem& p, CudnnInterface interface) {
  if (auto refusal = refuse_all_but_relu(p)) return refusal;
  if (auto refusal = refuse_depth(p)) return refusal;
  if (auto refusal = refuse_blocked_layouts(p)) return refusal;
  if (auto refusal = refuse_two_layouts(p)) return refusal;
  const std::int64_t most =
      std::max({p.x_desc().elements(), p.y_desc().elements(), p.filter_elements()});
  if (most >= std::int64_t(1) << 31)
    return Refusal{Field::size, "tensors of fewer than 2^31 elements", std::to_string(most)};

  const auto after_h = padding_after(p.h, p.p, p.r, p.stride_h, p.dilation_h, p.pad_h),
             after_w = padding_after(p.w, p.q, p.s, p.stride_w, p.dilation_w, p.pad_w);
  if (!after_h || !after_w)
    return Refusal{
        Field::padding, "all of the input to be read",
        fmt::format("padding {} below and {} to the right", p.pad_bottom(), p.pad_right())};
  if (interface == CudnnInterface::legacy && (*after_h != p.pad_h || *after_w != p.pad_w))
    return Refusal{
        Field::padding, "the same padding on both sides",
        fmt::format("{}x{} before and {}x{} after", p.pad_h, p.pad_w, *after_h, *after_w)};
  return {};
}

std::vector<MathType> math_types(DType dtype) {
  if (dtype == DType::f32) return {MathType::f32, MathType::tf32};
  return {MathType::f32};
}

bool does_math(DType dtype, MathType math, EngineNotes notes) {
  if (dtype != DType::f32) return true;
  return (math == MathType::tf32) == (notes.tensor_cores || notes.rounds_inputs);
}

bool rearranges_filter(const ConvProblem& p) {
  return p.x_layout == Layout::nhwc && p.r * p.s > 1 && p.c / p.groups > 1;
}

CudnnWorkspace cudnn_workspace(const ConvProblem& p, std::size_t library_bytes) {
  CudnnWorkspace w{library_bytes, 0, library_bytes};
  if (p.pass != Pass::backward_filter || !rearranges_filter(p)) return w;
  w.filter_at = std::size_t(round_up(std::int64_t(library_bytes), 256));
  w.total_bytes = w.filter_at + std::size_t(p.filter_bytes());
  return w;
}

WorkEstimate cudnn_work(const CudnnAlgo* algo, const ConvProblem& p, MathType math) {
  const CudnnAlgo shares = algo ? *algo : CudnnAlgo{};
  const double in = p.pass == Pass::forward         ? double(p.x_bytes() + p.filter_bytes())
                    : p.pass == Pass::backward_data ? double(p.y_bytes() + p.filter_bytes())
                                                    : double(p.x_bytes() + p.y_bytes());
  const bool tensor_cores = math == MathType::tf32 || size_of(p.dtype) == 2;
  return {{{.name = "convolution",
            .flops = p.flops(),
            .bytes_read = in,
            .bytes_written = double(p.output_bytes()),
            .efficiency = tensor_cores ? shares.tensor_cores : shares.fma}}};
}

}  // namespace convlab::cuda
