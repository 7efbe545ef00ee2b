// depthwise's forward loops for other algorithms, which take some rows at a time. Internal.
#pragma once

#include <cstdint>
#include <optional>

#include "conv/algo.h"
#include "kernels_cpu/depthwise/depthwise.h"
#include "kernels_cpu/device/range.h"

namespace convlab::cpu {

// The layouts of x and y may differ, nhwc and blocked; refuse_depthwise refuses that.
Depthwise plan_depthwise(const ConvProblem&, const DeviceInfo&);
std::int64_t packed_depthwise_bytes(const Depthwise&);
void pack_depthwise(const Depthwise&, ConstSpan w, Span packed);

// Some rows of one image's output in f32, written to a buffer. They lie there as in y, but for the
// distance of channel blocks.
struct DepthwiseRows {
  const float* in = nullptr;      // the image
  const float* filter = nullptr;  // packed
  const float* bias = nullptr;    // by channel, or null
  std::optional<ActivationKind> activation = {};
  Range rows;
  float* out = nullptr;        // of the first of these rows
  std::int64_t out_block = 0;  // from one channel block to the next, in elements
};
void depthwise_rows(const Depthwise&, const DepthwiseRows&, Range vectors);

}  // namespace convlab::cpu
