// Shared by direct.cu, which plans, and the files with its kernels. Internal.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "conv/algo.h"
#include "kernels_cuda/depth.h"
#include "kernels_cuda/divisor.h"
#include "kernels_cuda/epilogue.h"
#include "kernels_cuda/kernel.h"
#include "kernels_cuda/view.h"

namespace convlab::cuda {

// staged: through shared memory, in register tiles. plain: through L1, for groups with too few
// channels to share what is staged, such as depthwise convolution.
enum class DirectKernel : std::uint8_t { staged, plain };
inline constexpr std::array<std::string_view, 2> direct_kernel_names{"staged", "plain"};

// Coordinates with their padding are below this, so that some multiples of them fit in int.
inline constexpr int most_reach = 1 << 26;

// The outputs of one stride phase along one axis: output i < count lies at out_first + i * out_step
// and is the sum over j < taps of
// source[first + i * step + j * dilation] * filter[filter_first + j * filter_step].
struct Axis {
  int count, out_first, out_step;
  int first, step, dilation;
  int taps, filter_first, filter_step;
};

// One direction of forward or backward_data. Forward has one stride phase. In backward_data the
// outputs h = a mod stride are a phase: they have the taps r with r * dilation = a + pad mod
// stride, which read dy's row p = (h + pad - r * dilation) / stride. So each phase is a correlation
// of stride 1, and every tap belongs to one phase. Taps are flipped, so that the source's rows
// ascend.
struct Direction {
  int in, out, taps, stride, pad, dilation;
  bool backward;
  int common;  // greatest common divisor of stride and dilation

  Direction(bool backward_, std::int64_t x, std::int64_t y, std::int64_t taps_,
            std::int64_t stride_, std::int64_t pad_, std::int64_t dilation_)
      : in(int(backward_ ? y : x)),
        out(int(backward_ ? x : y)),
        taps(int(taps_)),
        stride(int(stride_)),
        pad(int(pad_)),
        dilation(taps == 1 ? 1 : int(dilation_)),
        backward(backward_),
        common(std::gcd(stride, dilation)) {}

  __host__ __device__ int phases() const { return backward ? stride : 1; }
  __host__ __device__ int phase_count() const { return (out + phases() - 1) / phases(); }
  // Distance of a phase's taps: the least d > 0 with d * dilation = 0 mod stride.
  __host__ __device__ int tap_step() const { return backward ? stride / common : 1; }
  __host__ __device__ int phase_of(int tap) const {
    if (!backward) return 0;
    const int a = (tap * dilation - pad) % stride;
    return a < 0 ? a + stride : a;
  }
  __host__ __device__ Axis axis(int a) const {
    if (!backward) return {out, 0, 1, -pad, stride, dilation, taps, 0, 1};
    const int count = a < out ? (out - a + stride - 1) / stride : 0, between = tap_step();
    int r = 0;
    while (r < taps && r < between && phase_of(r) != a) ++r;
    if (r == taps || r == between) return {count, a, stride, 0, 1, 1, 0, 0, 1};
    const int n = (taps - 1 - r) / between + 1, last = r + (n - 1) * between;
    return {count, a,    stride,  (a + pad - last * dilation) / stride, 1, dilation / common,
            n,     last, -between};
  }
  // Of a strip in the plain kernel: the distance of its outputs, and of the source's rows that it
  // reads. What leads out of every image needs no greater number.
  __host__ __device__ int strip_apart() const { return min(dilation / common, phase_count()); }
  __host__ __device__ int strip_pitch() const {
    const std::int64_t pitch = std::int64_t(dilation / common) * (backward ? 1 : stride);
    return int(min(pitch, std::int64_t(most_reach)));
  }
  __host__ __device__ int strip_classes() const { return backward ? 1 : stride / common; }
  __host__ __device__ int taps_before(int a) const {  // of the phases before a
    int sum = 0;
    for (int b = 0; b < a; ++b) sum += axis(b).taps;
    return sum;
  }
};

// `h` rows of `w` columns of each channel in shared memory: element (c, i, j) at
// c * plane + i * pitch + j % step * part + j / step. With the convolution's stride as step, the
// inputs of neighbouring outputs are neighbours.
struct Box {
  int h = 0, w = 0;
  int pitch = 0, plane = 0;
  int step = 1, part = 0;
};

// Copies channels [0, channels) of the rows from h0 and columns from w0 on; zeros outside of the
// image and for channels >= valid. Elements are widened. The caller commits.
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
using Quad = Vector<A, 16 / int(sizeof(A))>;

// ---- forward and backward_data: pixels.cu

// The most warps of a block: fewer if the accumulators fill the registers.
constexpr int most_warps(int k, int pixels, int sum_bytes) {
  return k * pixels * sum_bytes < 256 ? 8 : 4;
}

// The packed filter is [stride phase][tap in depth][channel of the source][tap in h and w][group]
// [output channel], where each group's output channels are padded to a multiple of the block's.
struct DirectPixels {
  View in, out;  // a slice
  int n, groups;
  int in_channels, out_channels;  // of one group
  Direction d, h, w;
  int padded_channels;  // of one group of the packed filter

  // Staged, a thread sums k channels x `pixels` pixels, a warp 32 times the pixels, in `tile_w`
  // columns, a block `warps` times the channels.
  DirectKernel kernel;
  int k, pixels, warps, tile_w;
  int rows;      // plain: of a thread's strip
  int depth;     // channels of the source in shared memory at a time
  int max_taps;  // of a stride phase, in h and w
  Box box;       // of the phase with most taps
  std::size_t shared_bytes;

  // With kernel=plain.
  DirectPixels(const ConvProblem&, int rows);
  DirectPixels(const ConvProblem&, const DeviceInfo&, int k, int pixels, int warps, int tile_w);
  std::int64_t packed_elements() const {
    return std::int64_t(d.taps) * h.taps * w.taps * in_channels * groups * padded_channels;
  }
  int phases() const { return d.phases() * h.phases() * w.phases(); }
  void pack(DType, const void* w, void* packed, Stream&) const;
  void run(const ConvProblem&, const ConvArgs&, Stream&) const;
};

// ---- backward_filter: filter.cu

// With more than one part, the partial sums [part][dw] go to the workspace.
struct DirectFilter {
  View x, dy;  // a slice
  int n, groups;
  int channels, filters;  // of one group
  int d, z, t, stride_d, pad_d, dilation_d;
  int r, s, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  Divisor image_pixels, slice_pixels, row_pixels;  // of dy: Z P Q, P Q and Q

  // Plain, a thread sums the taps of one channel and filter over some pixels. Staged, it sums
  // filters_per_thread filters x `columns` (c, r, s), a warp 32 times the columns, a block `warps`
  // times the filters, over tiles of tile_h x tile_w pixels.
  DirectKernel kernel;
  int warps;
  int split;  // parts of the pixels
  int tile_h, tile_w;
  int tiles_down, tiles_across;  // of a slice
  int max_channels;              // of a block's columns
  Box box, dy_box;
  int x_elements;  // of shared memory, dy's follow
  std::size_t shared_bytes;

  static constexpr int filters_per_thread = 8, columns = 4;

  DirectFilter(const ConvProblem&, const DeviceInfo&, DirectKernel, int warps, int split);
  std::int64_t tile_k() const { return warps * filters_per_thread; }
  std::int64_t elements() const {  // of dw
    return std::int64_t(filters) * groups * channels * t * r * s;
  }
  // The slices of dy that tap i in depth sums up: there it meets the image, not its padding.
  __host__ __device__ Range slices_of(int i) const {
    return indices_inside(i * dilation_d - pad_d, stride_d, z, d);
  }
  void run(const ConvProblem&, const ConvArgs&, Workspace, Stream&) const;
};

// The most lanes of a warp that access one bank, if lane i reads `bytes` at offset(i).
template <class Offset>
int bank_conflicts(int bytes, Offset offset) {
  int worst = 1, at[32];
  for (int i = 0; i < 32; ++i) at[i] = offset(i);
  const int lanes = bytes == 8 ? 16 : 32;  // 8-byte reads go by half warps
  for (int first = 0; first < 32; first += lanes) {
    int count[32] = {};
    for (int i = first; i < first + lanes; ++i) {
      bool seen = false;  // lanes at one address share it
      for (int j = first; j < i; ++j) seen |= at[j] == at[i];
      if (!seen) worst = max(worst, ++count[at[i] % lanes]);
    }
  }
  return worst;
}

}  // namespace convlab::cuda
