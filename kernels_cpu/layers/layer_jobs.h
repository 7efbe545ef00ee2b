// The arguments that the layer operations' ordinary code passes to their vector code, which is
// compiled once per instruction set. Pointers are to elements of `dtype`.
#pragma once

#include <algorithm>
#include <cstdint>

#include "conv/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

namespace convlab::cpu {

// ---- channel_copy.cpp ----

constexpr std::int64_t copy_tile_channels = 16;
constexpr std::int64_t copy_tile_pixels = 256;  // 16 KiB of f32 on either side

// ---- dropout.cpp ----

struct DropoutJob {
  DType dtype;
  DropoutDesc dropout;
  const void* from;
  void* to;
};

// ---- gate.cpp ----

constexpr std::int64_t gate_lanes = 64;       // of a block, in one piece of work
constexpr std::int64_t gate_elements = 4096;  // in one piece of work of the forward pass

// Some lanes of a block of one image, at a run of pixels.
struct GatePiece {
  std::int64_t image, block, lane, lanes, pixel, pixels;
};

// Forward: from = x, to = y. Backward: from = dy, to = dx or null.
struct GateJob {
  DType dtype;
  TensorDesc desc;  // of x
  const void* gate;
  const void* from;
  void* to;
  const void* x = nullptr;  // for dgate
  void* dgate = nullptr;    // or null
};

// ---- gemm.cpp ----

constexpr std::int64_t dot_columns = 16;     // of C, in one piece of work
constexpr std::int64_t dot_rows = 4;         // of B at a time
constexpr std::int64_t most_dot_rows = 16;   // of A
constexpr std::int64_t dot_bytes = 1 << 17;  // of A at a time

struct GemmJob {
  DType dtype;
  GemmDesc gemm;
  const void* a;
  const void* b;
  void* c;
  bool non_temporal;  // non-temporal stores of C
};

// A part of C, and of the depth that is summed for it.
struct SumBlock {
  std::int64_t row, rows, column, columns, depth, depths;
};

// ---- loss.cpp ----

// Rows of `classes` elements, `pitch` apart. label and loss may be null.
struct SoftmaxJob {
  DType dtype;
  std::int64_t classes, pitch;
  const void* x;
  const std::int32_t* label;
  void* p;
  void* loss;
};

struct CrossEntropyGradientJob {
  DType dtype;
  std::int64_t classes, pitch;
  const void* p;
  const std::int32_t* label;
  double factor;
  void* dx;
};

// Images have `count` elements in memory; padding lanes are zero in both and add nothing. The mean
// is over `values` of them.
struct SquaredErrorJob {
  DType dtype;
  std::int64_t count, values;
  const void* x;
  const void* target;
  double factor;
  void* loss;
  void* dx;
};

// ---- pooling.cpp ----

// Forward: from = x, to = y. Backward: from = dy, to = dx.
struct PoolJob {
  DType dtype;
  PoolDesc pool;
  const void* from;
  void* to;
  std::uint8_t* index;  // written by the forward pass if not null, read by the backward pass
};

// ---- lrn.cpp ----

constexpr std::int64_t lrn_pixels = 32;  // in one tile
constexpr std::int64_t lrn_tiles = 4;    // in the scratch of one thread

struct LrnJob {
  DType dtype;
  LrnDesc lrn;
  const void* x;
  const void* dy;  // null: forward, and out is y
  void* out;
};

// ---- layer_norm.cpp ----

// The tensor in runs of at most this many pixels of one image, and these in pieces.
constexpr std::int64_t run_pixels = 32;

struct PixelPieces {
  Planes planes;
  std::int64_t runs, count;  // of the tensor

  explicit PixelPieces(const TensorDesc& desc) : planes(desc) {
    if (planes.blocks == 1) {
      planes.pixels *= planes.images;
      planes.images = 1;
    }
    runs = planes.images * runs_of_image();
    // Enough for many threads; each has sums for every channel.
    count = std::min<std::int64_t>(runs, 128);
  }

  std::int64_t runs_of_image() const { return ceil_div(planes.pixels, run_pixels); }
  std::int64_t first_run(std::int64_t piece) const { return runs * piece / count; }

  struct Run {
    std::int64_t image, first, pixels;
  };
  Run run(std::int64_t index) const {
    const std::int64_t first = index % runs_of_image() * run_pixels;
    return {index / runs_of_image(), first, std::min(run_pixels, planes.pixels - first)};
  }
};

// Forward from x to out, backward from x and dy to out and, for each piece, to the sums of dscale
// and dshift over its pixels: 2 x padded_channels.
struct PixelJob {
  enum class Kind { norm, norm_backward, scale, scale_backward, prelu, prelu_backward } kind;
  DType dtype;
  PixelPieces pieces;
  double epsilon;
  const void* x;
  const void* dy;
  const void* scale;
  const void* shift;
  void* out;
  double* sums;
};

// ---- channel_shuffle.cpp ----

struct ShuffleJob {
  DType dtype;
  TensorDesc desc;
  std::int64_t groups;
  const void* from;
  void* to;
};

// ---- resize.cpp ----

// Forward: from = x, to = y. Backward: from = dy, to = dx.
struct ResizeJob {
  DType dtype;
  ResizeDesc resize;
  const void* from;
  void* to;
};

// ---- batch_norm.cpp ----

// The tensor in pieces of one channel block, one image and some of its pixels. With all channels
// side by side, images are one run of pixels.
struct ChannelPieces {
  Planes planes;
  std::int64_t parts;  // of an image

  explicit ChannelPieces(const TensorDesc& desc) : planes(desc) {
    if (planes.blocks == 1) {
      planes.pixels *= planes.images;
      planes.images = 1;
    }
    // Enough for many threads, but no smaller than a few cache lines.
    parts = std::clamp<std::int64_t>(ceil_div(128, planes.images * planes.blocks), 1,
                                     ceil_div(planes.pixels * planes.lanes, 1024));
    parts = std::min(parts, planes.pixels);
  }

  struct Piece {
    std::int64_t channel, offset, pixels;  // of the first channel and element
  };
  std::int64_t per_block() const { return planes.images * parts; }
  std::int64_t count() const { return planes.blocks * per_block(); }
  Piece piece(std::int64_t index) const {
    const std::int64_t channel = index / per_block() * planes.lanes;
    const std::int64_t image = index / parts % planes.images, part = index % parts;
    const std::int64_t begin = planes.pixels * part / parts;
    const std::int64_t end = planes.pixels * (part + 1) / parts;
    return {channel, planes.offset(image, channel, begin), end - begin};
  }
};

// Arrays over channels reach over the padding lanes.

struct AffineJob {  // y = a x + b + residual, then ReLU
  DType dtype;
  ChannelPieces pieces;
  const void* x;
  const void* residual;  // or null
  const void* a;
  const void* b;
  bool relu;
  void* y;
};

// dx = a g + x_scale (x - mean) + constant, and dresidual = g, where g is dy unless the ReLU cut y
// off. Without a residual, y > 0 is found again as a x + b > 0, by the arithmetic of AffineJob.
struct NormGradientJob {
  enum class Mask { none, from_x, from_y } mask;
  DType dtype;
  ChannelPieces pieces;
  const void* x;
  const void* y;
  const void* dy;
  const void* a;
  const void* b;
  const void* mean;
  const void* x_scale;
  const void* constant;
  void* dx;
  void* dresidual;  // or null
};

}  // namespace convlab::cpu
