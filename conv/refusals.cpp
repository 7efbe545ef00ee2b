#include "conv/refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace convlab {

std::string Refusal::reason() const {
  if (needs.empty()) return has;
  return has.empty() ? "needs " + needs : fmt::format("needs {}, has {}", needs, has);
}

std::string extent(std::int64_t height, std::int64_t width) {
  return fmt::format("{}x{}", height, width);
}

std::optional<Refusal> refuse_all_but(std::initializer_list<DType> dtypes, const ConvProblem& p) {
  std::vector<std::string_view> names;
  for (const DType dtype : dtypes) {
    if (p.dtype == dtype) return {};
    names.push_back(to_string(dtype));
  }
  return Refusal{Field::dtype, fmt::format("{}", fmt::join(names, " or ")),
                 std::string(to_string(p.dtype))};
}

std::optional<Refusal> refuse_groups(const ConvProblem& p) {
  if (p.groups == 1) return {};
  return Refusal{Field::groups, "1 group", std::to_string(p.groups)};
}

std::optional<Refusal> refuse_all_but_relu(const ConvProblem& p) {
  const std::optional<ActivationKind> kind = p.epilogue.activation;
  if (!kind || *kind == ActivationKind::relu) return {};
  return Refusal{Field::epilogue, "relu or no activation", std::string(to_string(*kind))};
}

std::optional<Refusal> refuse_all_but_dense(const ConvProblem& p) {
  if (p.stride_h != 1 || p.stride_w != 1)
    return Refusal{Field::stride, "stride 1", extent(p.stride_h, p.stride_w)};
  if (p.dilation_h != 1 || p.dilation_w != 1)
    return Refusal{Field::dilation, "dilation 1", extent(p.dilation_h, p.dilation_w)};
  return refuse_groups(p);
}

Layout blocked_layout(const DeviceInfo& device) {
  return device.vector_bytes >= 64 ? Layout::nchw16c : Layout::nchw8c;
}

std::optional<Refusal> refuse_all_but_blocked(const ConvProblem& p, const DeviceInfo& device) {
  const Layout blocked = blocked_layout(device);
  for (const Layout layout : {p.x_layout, p.y_layout})
    if (layout != blocked)
      return Refusal{Field::layout, fmt::format("{} on this instruction set", to_string(blocked)),
                     std::string(to_string(layout))};
  return {};
}

std::optional<Refusal> refuse_two_layouts(const ConvProblem& p) {
  if (p.x_layout == p.y_layout) return {};
  return Refusal{Field::layout, "one layout for x and y",
                 fmt::format("{} and {}", to_string(p.x_layout), to_string(p.y_layout))};
}

std::optional<Refusal> refuse_blocked_layouts(const ConvProblem& p) {
  for (const Layout layout : {p.x_layout, p.y_layout})
    if (is_blocked(layout))
      return Refusal{Field::layout, "nchw or nhwc", std::string(to_string(layout))};
  return {};
}

}  // namespace convlab
