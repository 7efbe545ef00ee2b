// Shared by depthwise and the algorithms of the family direct: which of them takes a problem, where
// channels lie, and the arguments of their loops. Internal.
#pragma once

#include <cstdint>
#include <optional>

#include "conv/algo.h"
#include "kernels_cpu/epilogue.h"
#include "kernels_cpu/gemm/tile_shape.h"

namespace convlab::cpu {

// Whether whole channel blocks of this instruction set are neighbours: in its blocked layout, which
// pads them, or in nhwc.
bool in_whole_blocks(Layout, std::int64_t channels);

std::optional<Refusal> refuse_direct(const ConvProblem&, const DeviceInfo&);
std::optional<Refusal> refuse_direct_first_layer(const ConvProblem&, const DeviceInfo&);
std::optional<Refusal> refuse_direct_grouped(const ConvProblem&, const DeviceInfo&);

// Refuses channel blocks of another instruction set, for x or y.
std::optional<Refusal> refuse_other_blocks(const ConvProblem&, const DeviceInfo&);
// Refuses `tensor` ("x") unless in_whole_blocks.
std::optional<Refusal> refuse_parts_of_blocks(const char* tensor, Layout, std::int64_t channels,
                                              const DeviceInfo&);

// Where a tensor's channels lie, in elements: channel c of pixel (h, w) of image n is at
// n * image + c / B * block + (h * width + w) * pixel + c % B, with B the channel block.
struct ChannelView {
  std::int64_t image = 0, block = 0, pixel = 0;
  std::int64_t height = 0, width = 0;
};
ChannelView view_of(const TensorDesc&);

// The output's channels in panels of one register tile's width; no panel crosses a group.
struct Panels {
  std::int64_t groups = 1;
  std::int64_t channels = 0;   // of one group
  std::int64_t per_group = 0;  // panels
  std::int64_t count() const { return groups * per_group; }
};
Panels panels_of(std::int64_t groups, std::int64_t channels);

// The columns of a panel that exist, and those that are computed.
struct PanelColumns {
  std::int64_t first, count, computed;
  PanelColumns(const Panels&, std::int64_t index);
};

// The tensors that a run of the f32 loops reads and writes; null where the pass has none.
struct DirectOperands {
  const float* in = nullptr;  // x, or dy in backward_data
  const float* filter = nullptr;
  const float* dy = nullptr;  // in backward_filter
  OutputEpilogue<float> output;
  float* workspace = nullptr;
};
DirectOperands direct_operands(const ConvProblem&, const ConvArgs&, Workspace,
                               bool non_temporal = false);

// Bytes that loops over output pixels move, given how often they pass over their input and over the
// filter; reads for ownership are not counted.
PhaseWork direct_pixel_work(const ConvProblem&, double in_passes, double filter_passes);

}  // namespace convlab::cpu
