// The two products that implicit_gemm.cpp plans, and the loops that run them. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "conv/algo.h"
#include "kernels_cpu/epilogue.h"
#include "kernels_cpu/gemm/pixel_grid.h"
#include "kernels_cpu/gemm/tile_shape.h"

namespace convlab::cpu {

// The rows of a plain NCHW image that one output row reads, with their padding.
struct PlainRows {
  std::int64_t channels = 0, h = 0, w = 0;  // of the image
  std::int64_t r = 0, s = 0, step_h = 1, step_w = 1;
  std::int64_t width = 0;  // of a padded row
  std::int64_t channel_step = 0;

  std::int64_t elements() const { return channels * r * width; }
};

// Forward and backward_data are the same product, C[pixel][channel] = A[pixel][depth] B, where a
// row is an output pixel and depth runs over (input channel, tap). A is never stored: a tile of its
// rows is gathered, a cache line (the channel block of one pixel) at a time. A grouped problem has
// one such product a group.
struct PixelGemm {
  DType dtype = DType::f32;
  TensorDesc in, out;       // the channels of one group
  std::int64_t groups = 1;  // of the tensors
  TileShape tile;           // threads share rows in units of its own
  std::int32_t in_step_h = 1, in_step_w = 1;
  std::int64_t out_step_h = 1, out_step_w = 1;
  std::vector<PixelGrid> grids;
  PlainRows plain;  // of a plain input

  // A group is the channels of a block at one tap. A plain input is copied row by row into a padded
  // buffer; there a group is one channel's neighbouring taps.
  std::int64_t group_depth = 0;
  std::int64_t block_rows = 0;   // rows gathered at a time, so that they stay in L2
  std::int64_t chunk = 0;        // groups of depth at a time, so that a panel of B stays in L1
  std::int64_t row_threads = 1;  // threads = row_threads x panel_threads
  std::int64_t panel_threads = 1;
  std::size_t thread_bytes = 0;  // workspace of one thread
  bool non_temporal = false;     // non-temporal stores
  bool prefetch_rows = false;    // of the next block, if they miss L2 and both blocks fit in it
  // The only grid is of backward_data, and the pixels between its own are to become zero.
  bool zeros_between = false;

  bool plain_in() const { return !is_blocked(in.layout); }
  // A last panel of 17 to 24 columns is multiplied by QuadTile, in fours of columns.
  bool in_fours(std::int64_t channels) const {
    return tile.lanes == 16 && tile.cols == 32 && !plain_in() && channels > 16 && channels <= 24;
  }
  // Columns of a panel as they are packed.
  std::int64_t packed_cols(std::int64_t channels) const {
    return in_fours(channels) ? 24 : tile.panel_cols(channels);
  }
  // Threads and blocks are split between lines of the grid.
  bool whole_lines() const { return plain_in() || zeros_between; }
  // Rows of A are neighbours in the input: only tiles across two images are gathered.
  bool in_place() const {
    return !plain_in() && grids.size() == 1 && grids[0].taps.size() == 1 && in_step_h == 1 &&
           in_step_w == 1;
  }
  std::int64_t depth_groups(const PixelGrid& g) const {
    return in.padded_c() * std::int64_t(g.taps.size()) / group_depth;
  }
  // Of one group.
  std::int64_t packed_elements() const {
    std::int64_t depth = 0;
    for (const PixelGrid& g : grids) depth += depth_groups(g) * group_depth;
    return depth * ceil_div(out.c, tile.cols) * tile.cols;
  }
};

// The problem of one group. A pointwise one has its rows joined where that changes nothing.
ConvProblem problem_of_pixels(const ConvProblem&);
// Its tensors, grids and steps; the rest is left to who plans the product.
PixelGemm describe_pixels(const ConvProblem& of_group, std::int64_t groups);

template <class T>
struct PixelOperands {
  const T *in, *packed;
  OutputEpilogue<T> output;

  PixelOperands of_group(const PixelGemm& gemm, std::int64_t group) const {
    return of_group(gemm, group, gemm.packed_elements());
  }
  PixelOperands of_group(const PixelGemm& gemm, std::int64_t group,
                         std::int64_t packed_elements) const {
    const std::int64_t out_c = group * gemm.out.c;
    return {in + gemm.in.offset(0, group * gemm.in.c, 0, 0), packed + group * packed_elements,
            output.at(gemm.out.offset(0, out_c, 0, 0), out_c)};
  }
};

// Bytes of workspace that one thread needs; reads all but the thread fields.
std::size_t thread_workspace(const PixelGemm&);
// One thread's part.
void run_thread(const PixelGemm&, const PixelOperands<float>&, std::byte* workspace,
                std::int64_t thread, PhaseRecorder*);
void run_thread(const PixelGemm&, const PixelOperands<double>&, std::byte* workspace,
                std::int64_t thread, PhaseRecorder*);

// The pixels that one tap reads: `width` of them in each of the output rows [begin, end), from
// these elements of a plane on for row 0. If the rows of both operands follow one another, or have
// one pixel each, they are one run.
struct FilterTap {
  std::int64_t begin, end, width, x_at, dy_at;
  bool joined;
};

// backward_filter: C[(c, tap)][k] = sum over pixels of x[pixel at tap][c] dy[pixel][k]. Both
// operands are read in place, a row of dy with a row of x. The sums are dw transposed.
//
// dw is cut into panel_splits x block_splits rectangles, the pixels into `parts`. A unit is one
// part of one rectangle; with more than one part the sums of each are kept and added at the end.
// All this is of one group.
struct FilterGemm {
  ConvProblem problem;          // of a group
  std::int64_t groups = 1;      // of the tensors
  bool plain_x = false;         // x is NCHW: its rows are copied, and there is one block
  std::vector<FilterTap> taps;  // but of a plain x
  PlainRows plain;
  std::vector<std::ptrdiff_t> row_at;   // where c lies in x; of a plain x (c, tap) in its rows
  std::int64_t panels = 0, blocks = 0;  // of tile_shape().cols k, of tile_shape().block c
  std::int64_t block_rows = 0;          // rows (c, tap) of a block
  std::int64_t panel_splits = 1, block_splits = 1, parts = 1;
  std::int64_t chunk_lines = 0;  // rows of dy at a time, so that those of a panel stay cached
  std::int64_t threads = 1;
  std::size_t unit_sums = 0;        // sums of the largest unit
  std::size_t buffer_elements = 0;  // the copied rows of one thread

  std::int64_t rectangles() const { return panel_splits * block_splits; }
};

// The cost of so many neighbouring channels at one tap times one panel, in rows of full tiles. A
// tile of fewer than four rows is bound by the latency of its multiply-adds, and costs as much as
// one of four.
std::int64_t row_cost(std::int64_t channels);
// Rectangles are counted over all groups: [group][rectangle].
// Sums one unit into sums[panel][block][row][column].
void run_unit(const FilterGemm&, const void* x, const void* dy, void* sums, void* buffer,
              std::int64_t rectangle, std::int64_t part);
// Adds the parts' sums, part_stride elements apart, and writes (or adds) them to dw.
void finish_rectangle(const FilterGemm&, const void* sums, std::size_t part_stride, void* dw,
                      std::int64_t rectangle);

}  // namespace convlab::cpu
