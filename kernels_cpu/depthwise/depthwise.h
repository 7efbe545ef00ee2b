// The plan of depthwise.cpp and the loops that run it. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "conv/algo.h"
#include "kernels_cpu/depthwise/lines.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/direct/family.h"

namespace convlab::cpu {

std::optional<Refusal> refuse_depthwise(const ConvProblem&, const DeviceInfo&);

// The register tiles of the instruction set in force, the same for f32 and f64.
struct DepthwiseTiles {
  std::int64_t pixels, few_pixels;  // of a row of outputs
  std::int64_t taps;                // the most that a chunk has, beside the pixels
  std::int64_t filter_taps;         // likewise in backward_filter, ...
  std::int64_t filter_sums;         // ... where this many taps of several rows are summed at once
  std::int64_t filter_rows(std::int64_t taps) const { return taps * 3 <= filter_sums ? 3 : 2; }
};
DepthwiseTiles depthwise_tiles();

// Offsets are in elements. The packed filter is [vector of channels][r][slot][lane]; the channels
// are those of y, in backward_data those of dx.

// Some taps of one filter row, for the pixels of a tile: column c of the input is read by output
// c - t through tap t.
struct TapChunk {
  std::int64_t in = 0;        // of column 0, from the row's start; columns are in_step apart
  std::int64_t slot = 0;      // of tap 0
  std::int64_t taps = 0;      // up to DepthwiseTiles::taps
  std::uint32_t columns = 0;  // bit c: column c is in the image, and one of these outputs reads it
  bool all_columns = false;   // of a whole tile
};
struct PixelTile {
  std::int64_t out = 0;    // of pixel 0, from the row's start; pixels are out_step apart
  std::int64_t count = 0;  // pixels that exist
  bool few = false;        // computed as few_pixels
  std::int64_t chunks_begin = 0, chunks_end = 0;
  Range ahead;  // columns of the input that this tile prefetches
};
struct RowTap {
  std::int64_t in = 0, filter = 0;  // of the input's row, and of the filter's row
};

// backward_filter: some taps of every filter row, over one line of an output row. Column c is read
// by output c - t through tap t; columns outside of [begin, end) are padding, or read by no output.
struct FilterSweep {
  std::int64_t x = 0, dy = 0;  // of column `begin`, and of that output
  std::int64_t begin = 0, end = 0, outputs = 0;
};
struct FilterChunk {
  std::int64_t slot = 0, taps = 0;
  std::vector<FilterSweep> sweeps;
};

struct Depthwise {
  ConvProblem problem;
  ChannelView in, out;                     // in backward_filter of x and dy
  std::int64_t multiplier = 1;             // filters of a channel
  std::int64_t lanes = 1, vectors = 1;     // of channels of `out`
  std::int64_t last_lanes = 1;             // that the last vector has in memory
  std::int64_t in_step = 1, out_step = 1;  // between columns
  // A packed filter row: slot by slot filter * S + s, where `filter` is one of the channel's in
  // backward_data, and 0 in the other passes.
  std::vector<std::int64_t> order;

  // forward and backward_data
  std::vector<PixelTile> tiles;  // of an output row, from left to right
  std::vector<TapChunk> chunks;
  std::vector<RowTap> row_taps;  // of output row p from row_begin[p] to row_begin[p + 1]
  std::vector<std::int64_t> row_begin;
  std::vector<Range> rows_ahead;  // by output row: input rows that the next one is first to read
  std::int64_t tile_rows = 1;     // output rows of a tile before the next tile is computed
  bool prefetch = false;          // the input

  // backward_filter
  std::vector<FilterChunk> filter_chunks;
  std::vector<std::int64_t> x_rows;   // by output row and filter row; negative outside of the image
  std::vector<std::int64_t> slot_of;  // of a filter row's taps: the inverse of `order`
  std::int64_t parts = 1;  // of all images' rows of dy, each with partial sums of its own

  // A block of work: vectors of channels, output rows, tiles.
  std::int64_t group = 1, band = 1, span = 1;

  std::int64_t filter_row() const { return std::int64_t(order.size()) * lanes; }
  std::int64_t filter_vector() const { return problem.r * filter_row(); }
  // backward_filter sums a chunk's taps in several filter rows at once: in how many blocks of rows.
  std::int64_t row_blocks(const FilterChunk& chunk) const {
    return ceil_div(problem.r, depthwise_tiles().filter_rows(chunk.taps));
  }
};

// One thread's part.
void depthwise_pixels(const Depthwise&, const ConvArgs&, bool non_temporal, std::int64_t thread,
                      std::int64_t threads);
// Sums to [part][vector of channels][r][slot][lane]. With one part these are of the same channels
// as depthwise_add_parts's.
void depthwise_filter(const Depthwise&, const ConvArgs&, void* sums, std::int64_t thread,
                      std::int64_t threads);
// dw from the sums of all parts, added in a fixed order.
void depthwise_add_parts(const Depthwise&, const ConvArgs&, const void* sums, std::int64_t thread,
                         std::int64_t threads);

}  // namespace convlab::cpu
