// What direct.cu plans and the kernels that run it. Internal.
#pragma once

#include <cstdint>

#include "conv/algo.h"
#include "kernels_cuda/kernel.h"
#include "kernels_cuda/view.h"

namespace convlab::cuda {

// In one direction, the outputs of one class: output i < count lies at out_first + i * out_step and
// is the sum over j < taps of source[first + i * step + j * dilation] * filter[filter_first + j *
// filter_step].
struct Axis {
  int count, out_first, out_step;
  int first, step, dilation;
  int taps, filter_first, filter_step;
};

// One direction of forward or backward_data. Forward has one class. In backward_data the outputs
// h = a mod stride are one: they see the taps r with r * dilation = a + pad mod stride, of dy's row
// p = (h + pad - r * dilation) / stride. So each class is a correlation of stride 1 by itself, and
// every tap belongs to exactly one. Taps are turned round, so that the source's rows ascend.
struct Direction {
  int out, taps, stride, pad, dilation;
  bool backward;

  __host__ __device__ int classes() const { return backward ? stride : 1; }
  // The taps of one class are this far apart: the least d > 0 with d * dilation = 0 mod stride.
  __host__ __device__ int tap_step() const {
    int d = 1;
    if (backward)
      while (std::int64_t(d) * dilation % stride != 0) ++d;
    return d;
  }
  __host__ __device__ int class_of(int tap) const {
    if (!backward) return 0;
    const int a = int((std::int64_t(tap) * dilation - pad) % stride);
    return a < 0 ? a + stride : a;
  }
  __host__ __device__ Axis axis(int a) const {
    if (!backward) return {out, 0, 1, -pad, stride, dilation, taps, 0, 1};
    const int count = a < out ? (out - a + stride - 1) / stride : 0, apart = tap_step();
    int r = 0;
    while (r < taps && r < apart && class_of(r) != a) ++r;
    if (r == taps || r == apart) return {count, a, stride, 0, 1, 1, 0, 0, 1};
    const int n = (taps - 1 - r) / apart + 1, last = r + (n - 1) * apart;
    const auto first = (std::int64_t(a) + pad - std::int64_t(last) * dilation) / stride;
    const auto step = std::int64_t(apart) * dilation / stride;
    return {count, a, stride, int(first), 1, int(step), n, last, -apart};
  }
  __host__ __device__ int taps_before(int a) const {  // of the classes before a
    int sum = 0;
    for (int b = 0; b < a; ++b) sum += axis(b).taps;
    return sum;
  }
};

// How `h` rows of `w` columns of each channel lie in shared memory: element (c, i, j) at
// c * plane + i * pitch + j % step * part + j / step. With step the stride of what is read there,
// neighbouring outputs find their inputs side by side.
struct Box {
  int h = 0, w = 0;
  int pitch = 0, plane = 0;
  int step = 1, part = 0;
};

// Copies channels [0, channels) of the rows from h0 and columns from w0 on; zeros for what is
// outside of the image and for channels >= valid. Elements are widened. The caller commits.
template <class T>
__device__ __forceinline__ void stage(const View& v, const T* from, int channels, int valid, int h0,
                                      int w0, const Box& box, Accumulator<T>* to) {
  const int threads = int(blockDim.x), thread = int(threadIdx.x);
  // NHWC: eight channels of a pixel make a sector of 32 bytes, for neighbouring threads.
  const int lanes = v.channels_last ? 8 : 1;
  for (int i = thread / lanes; i < box.h * box.w; i += threads / lanes) {
    const int row = i / box.w, column = i - row * box.w;
    const int h = h0 + row, w = w0 + column;
    const bool inside = unsigned(h) < unsigned(v.h) && unsigned(w) < unsigned(v.w);
    const T* const source = from + (inside ? h * v.row + w * v.column : 0);
    Accumulator<T>* const target =
        to + row * box.pitch +
        (box.step == 1 ? column : column % box.step * box.part + column / box.step);
    for (int c = thread % lanes; c < channels; c += lanes) {
      const bool there = inside && c < valid;
      if constexpr (sizeof(T) >= 4)
        cp_async<int(sizeof(T))>(target + c * box.plane,
                                 there ? source + std::int64_t(c) * v.channel : from,
                                 there ? int(sizeof(T)) : 0);
      else
        target[c * box.plane] = there ? widen(source[std::int64_t(c) * v.channel]) : 0;
    }
  }
}

// 16 bytes in shared memory.
template <class A>
struct alignas(16) Quad {
  static constexpr int size = 16 / sizeof(A);
  A v[size];
};

// ---- forward and backward_data: direct_pixels.cu

// The warps of a block, at most: fewer where sums fill the registers.
constexpr int most_warps(int k, int pixels, int sum_bytes) {
  return k * pixels * sum_bytes < 256 ? 8 : 4;
}

// The packed filter is [class][channel of the source][tap of the class][group][output channel],
// where each group's output channels are padded to a multiple of the block's.
struct DirectPixels {
  View in, out;
  int n, groups;
  int in_channels, out_channels;  // of one group
  Direction h, w;
  int padded_channels;  // of one group of the packed filter

  // k = 1: no staging, one output channel a thread. Else a thread sums k channels x `pixels`
  // pixels, a warp 32 times the pixels, in `tile_w` columns, a block `warps` times the channels.
  int k, pixels, warps, tile_w;
  int depth;     // channels of the source in shared memory at a time
  int max_taps;  // of a class
  Box box;       // of the class with most taps
  std::size_t shared_bytes;

  DirectPixels(const ConvProblem&, int k, int pixels, int warps, int tile_w);
  std::int64_t packed_elements() const {
    return std::int64_t(h.taps) * w.taps * in_channels * groups * padded_channels;
  }
  void pack(DType, const void* w, void* packed, Stream&) const;
  void run(const ConvProblem&, const ConvArgs&, Stream&) const;
};

// ---- backward_filter: direct_filter.cu

// The partial sums of [split][dw] go to the workspace, unless split is 1.
struct DirectFilter {
  View x, dy;
  int n, groups;
  int channels, filters;  // of one group
  int r, s, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;

  // k = 1: no staging, a thread sums the taps of one channel and filter over some pixels. Else it
  // sums k filters x `columns` (c, r, s), a warp 32 times the columns, a block `warps` times the
  // filters, over tiles of tile_h x tile_w pixels.
  int k, warps, split;
  int tile_h, tile_w;
  int max_channels;  // that the columns of a block meet
  Box box, dy_box;
  int x_elements;  // of shared memory, dy's follow
  std::size_t shared_bytes;

  static constexpr int filters_per_thread = 8, columns = 4;

  DirectFilter(const ConvProblem&, int k, int warps, int split);
  std::int64_t tile_k() const { return warps * filters_per_thread; }
  std::int64_t elements() const {  // of dw
    return std::int64_t(filters) * groups * channels * r * s;
  }
  void run(const ConvProblem&, const ConvArgs&, Workspace, Stream&) const;
};

// The most shared memory that a block may have on the card.
inline constexpr std::size_t max_shared_bytes = 227 * 1024;

// The worst number of lanes of a warp that meet in a bank, if lane i reads `bytes` at offset(i).
template <class Offset>
int bank_conflicts(int bytes, Offset offset) {
  int worst = 1;
  const int lanes = bytes == 8 ? 16 : 32;  // 8-byte reads go by half warps
  for (int first = 0; first < 32; first += lanes) {
    int count[32] = {};
    for (int i = first; i < first + lanes; ++i) {
      bool seen = false;  // lanes at one address share it
      for (int j = first; j < i; ++j) seen |= offset(j) == offset(i);
      if (!seen) worst = max(worst, ++count[offset(i) % lanes]);
    }
  }
  return worst;
}

}  // namespace convlab::cuda
