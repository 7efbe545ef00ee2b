#include "kernels_cpu/direct/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "conv/refusals.h"

namespace convlab::cpu {

bool in_whole_blocks(Layout layout, std::int64_t channels) {
  const std::int64_t block = tile_shape().block;
  return channel_block(layout) == block || (layout == Layout::nhwc && channels % block == 0);
}

std::optional<Refusal> refuse_other_blocks(const ConvProblem& p, const DeviceInfo& device) {
  const Layout blocked = blocked_layout(device);
  for (const Layout layout : {p.x_layout, p.y_layout})
    if (is_blocked(layout) && layout != blocked)
      return Refusal{Field::layout, fmt::format("{} on this instruction set", to_string(blocked)),
                     std::string(to_string(layout))};
  return {};
}

std::optional<Refusal> refuse_parts_of_blocks(const char* tensor, Layout layout,
                                              std::int64_t channels, const DeviceInfo& device) {
  if (in_whole_blocks(layout, channels)) return {};
  return Refusal{Field::layout,
                 fmt::format("{} as {}, or as nhwc with a multiple of {} channels", tensor,
                             to_string(blocked_layout(device)), tile_shape().block),
                 fmt::format("{} with {}", to_string(layout), channels)};
}

ChannelView view_of(const TensorDesc& t) {
  const std::int64_t block = tile_shape().block;
  if (t.layout == Layout::nhwc) return {t.image_step(), block, t.c, t.h, t.w};
  return {t.image_step(), t.channel_step(), block, t.h, t.w};
}

Panels panels_of(std::int64_t groups, std::int64_t channels) {
  return {groups, channels / groups, ceil_div(channels / groups, tile_shape().cols)};
}

PanelColumns::PanelColumns(const Panels& panels, std::int64_t index) {
  const TileShape shape = tile_shape();
  const std::int64_t within = index % panels.per_group * shape.cols;
  first = index / panels.per_group * panels.channels + within;
  count = std::min(shape.cols, panels.channels - within);
  computed = shape.panel_cols(count);
}

DirectOperands direct_operands(const ConvProblem& p, const ConvArgs& args, Workspace workspace,
                               bool non_temporal) {
  const auto floats = [](const void* data) { return static_cast<const float*>(data); };
  DirectOperands data;
  data.in = floats(p.pass == Pass::backward_data ? args.dy : args.x);
  if (p.pass == Pass::backward_filter)
    data.dy = floats(args.dy);
  else
    data.filter = floats(args.w);
  data.output = output_epilogue<float>(p, args, non_temporal);
  data.workspace = reinterpret_cast<float*>(workspace.data());
  return data;
}

PhaseWork direct_pixel_work(const ConvProblem& p, double in_passes, double filter_passes) {
  const bool forward = p.pass == Pass::forward;
  const double in = double(forward ? p.x_bytes() : p.y_bytes());
  const double out = double(p.output_bytes());
  PhaseWork loops{.name = "loops"};
  loops.bytes_read = in * in_passes + double(p.filter_bytes()) * filter_passes;
  if (p.epilogue.residual || p.accumulate) loops.bytes_read += out;
  loops.bytes_written = out;
  return loops;
}

}  // namespace convlab::cpu
