#include "conv/refusals.h"

#include <fmt/format.h>

namespace convlab {

std::optional<Refusal> refuse_all_but_dense(const ConvProblem& p) {
  if (p.stride_h != 1 || p.stride_w != 1)
    return Refusal{fmt::format("needs stride 1, has {}x{}", p.stride_h, p.stride_w)};
  if (p.dilation_h != 1 || p.dilation_w != 1)
    return Refusal{fmt::format("needs dilation 1, has {}x{}", p.dilation_h, p.dilation_w)};
  if (p.groups != 1) return Refusal{fmt::format("needs 1 group, has {}", p.groups)};
  return {};
}

Layout blocked_layout(const DeviceInfo& device) {
  return device.vector_bytes >= 64 ? Layout::nchw16c : Layout::nchw8c;
}

std::optional<Refusal> refuse_all_but_blocked(const ConvProblem& p, const DeviceInfo& device) {
  const Layout blocked = blocked_layout(device);
  for (const Layout layout : {p.x_layout, p.y_layout})
    if (layout != blocked)
      return Refusal{fmt::format("takes {} on this instruction set, not {}", to_string(blocked),
                                 to_string(layout))};
  return {};
}

std::optional<Refusal> refuse_blocked_layouts(const ConvProblem& p) {
  for (const Layout layout : {p.x_layout, p.y_layout})
    if (is_blocked(layout))
      return Refusal{fmt::format("needs nchw or nhwc, has {}", to_string(layout))};
  return {};
}

}  // namespace convlab
