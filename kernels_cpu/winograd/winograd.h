// What winograd.cpp plans and kernels.cpp runs. Internal.
//
// Tiles of the output (m x m; of dy in backward_filter) go through three steps, a block of tiles at
// a time: transform the input into V, multiply for each of the T^2 points, transform back.
//
// Tiles rarely fit an image: of 13 x 13 outputs a third of F(4,3)'s work is beyond the edge. So
// images may lie side by side in mosaics, with just the padding that neighbours share between them,
// and tiles cover a mosaic: one may hold outputs of four images, and only the mosaic's edge and the
// padding between are wasted. 16 images of 14 x 14 in a mosaic of 4 x 4 take 100 tiles of F(6,3)
// instead of 144.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "conv/algo.h"
#include "kernels_cpu/device/work_shares.h"
#include "kernels_cpu/gemm/filter_block.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

namespace convlab::cpu {

// A stride of two splits into phases (polyphase): output o of a 3-tap filter reads x at
// 2 (o + j) + a - pad through tap 2 j + a, so phase a = 0 of x meets the two taps 0 and 2, and
// phase a = 1 the one tap 1. Both are F(m, 2), of stride 1, over the pixels of their phase; four
// phases in two dimensions are so many more channels of x. A filter (g, 0) has nothing at the point
// at infinity, where its value is the leading coefficient: those products are left out, which makes
// (m + m + 1)^2 for m^2 outputs in place of 9 m^2. In this order of the phases (a of rows, a of
// columns), those that a point meets are neighbours.
struct WinogradPhase {
  std::int64_t h = 0, w = 0;
};
inline constexpr WinogradPhase kWinogradPhases[] = {{0, 1}, {0, 0}, {1, 0}, {1, 1}};

// With few channels of x, a stride s folds into them instead (space to depth): the channels
// (c, a, b) of pixel (i, j) are x[c][s i + a - pad][s j + b - pad], C s^2 of them, and the filter
// has ceil(R / s) taps and stride 1. 7x7/2 over 3 channels is 4x4 over 12, which F(4,4) does with
// 37 multiplications an output instead of 147; 11x11/4 is 3x3 over 48. x is plain NCHW, as nets
// read it, and is folded a tile at a time (winograd_fold-inl.h). Backwards, dx[u] in folded pixels
// gets dy[u - j] through tap j of each channel, and what comes out is unfolded.
struct WinogradFold {
  TensorDesc x;
  std::int64_t pad_h = 0, pad_w = 0;
};

// The pixels of one side of the convolution: one grid, or four with every second row and column.
struct WinogradGrid {
  std::int64_t phases = 1;
  std::int64_t h = 0, w = 0;                      // of one phase
  std::int64_t first_h[2] = {}, first_w[2] = {};  // of phase a, in the tensor

  std::int64_t at_h(std::int64_t phase) const { return first_h[kWinogradPhases[phase].h]; }
  std::int64_t at_w(std::int64_t phase) const { return first_w[kWinogradPhases[phase].w]; }
};

struct WinogradShape {
  Pass pass = Pass::forward;
  std::int64_t m = 0, r = 0;  // F(m, r); backward_filter is F(r, m), of the same T
  std::int64_t stride = 1;    // in phases, 2 with r = 2, or folded
  std::int64_t kernel = 0;    // taps of the whole filter
  // Forward from `in` to `out`: backward_data is the forward of dy with the flipped filter; in
  // backward_filter `in` is x and `out` is dy.
  TensorDesc in, out;
  std::optional<WinogradFold> fold;   // `in`, backwards `out`, is what x folds to
  WinogradGrid in_grid, out_grid;     // that of x has phases
  std::int64_t pad_h = 0, pad_w = 0;  // of in_grid
  Epilogue epilogue;
  bool accumulate = false;

  std::int64_t grid_h = 1, grid_w = 1;  // images of a mosaic; their product divides out.n

  std::int64_t threads = 1;
  // Either each thread takes blocks and has buffers of its own, which stay in its L2, or all share
  // each block: the transforms split over tiles, the product over points and panels, barriers
  // between.
  bool shared = false;
  // Or each thread has panels of every phase's filter, of dw in backward_filter, and transforms all
  // tiles of the other operand for itself in buffers of its own: the filter passes through the
  // caches once, as with a shared block, and nothing else from core to core.
  bool panels = false;
  // Or the one block is of all tiles, and each thread transforms the filters of panels of its own,
  // some channels at a time, which meet the block and are forgotten: nothing is packed. The block
  // is shared, or with `panels` each thread's own.
  bool fused = false;
  std::int64_t block = 0;       // tiles transformed at a time
  bool stream = false;          // results past the caches: lines of them need not be read first
  bool prefetch_input = false;  // for the input: what comes from afar the machine foresees too late
  std::int64_t depth = 1;       // of a product before its operand leaves L1
  std::int64_t chunk = 1;       // channel blocks whose sums, or filters if fused, stay in L2
  TileShape tile;               // of the product

  std::int64_t t() const { return m + r - 1; }
  std::int64_t points() const { return t() * t(); }
  // From image to image of a mosaic: no output sees an input of another image.
  std::int64_t pitch_h() const {
    return std::max({in_grid.h, out_grid.h, in_grid.h + pad_h, out_grid.h + r - 1 - pad_h});
  }
  std::int64_t pitch_w() const {
    return std::max({in_grid.w, out_grid.w, in_grid.w + pad_w, out_grid.w + r - 1 - pad_w});
  }
  std::int64_t tiles_h() const { return ceil_div((grid_h - 1) * pitch_h() + out_grid.h, m); }
  std::int64_t tiles_w() const { return ceil_div((grid_w - 1) * pitch_w() + out_grid.w, m); }
  std::int64_t tiles() const { return out.n / (grid_h * grid_w) * tiles_h() * tiles_w(); }
  // Channel blocks and panels of one phase, and of all: [phase][block], [phase][panel].
  std::int64_t phase_blocks() const { return in.padded_c() / tile.block; }
  std::int64_t phase_panels() const { return ceil_div(out.c, tile.cols); }
  std::int64_t in_blocks() const { return in_grid.phases * phase_blocks(); }
  std::int64_t out_panels() const { return out_grid.phases * phase_panels(); }
  // Of a panel of a phase, and of all, those that are multiplied.
  std::int64_t panel_columns(std::int64_t panel) const {
    return tile.panel_cols(out.c - panel * tile.cols);
  }
  // How many fours of columns QuadTile multiplies in a panel of a single vector; 0 in others.
  std::int64_t panel_fours(std::int64_t panel) const {
    const bool single = tile.lanes == 16 && panel_columns(panel) == tile.lanes;
    if (!single || fused || pass == Pass::backward_filter) return 0;
    return out.c - panel * tile.cols <= 12 ? 3 : 4;
  }
  // Floats that a channel of the packed filter takes in a panel.
  std::int64_t packed_columns(std::int64_t panel) const {
    const std::int64_t fours = panel_fours(panel);
    return fours > 0 ? 4 * fours : panel_columns(panel);
  }
  std::int64_t columns() const {
    const std::int64_t last = phase_panels() - 1;
    return out_grid.phases * (last * tile.cols + panel_columns(last));
  }
  std::int64_t multiplied_columns() const {  // the same, in fours where they are multiplied so
    const std::int64_t last = phase_panels() - 1;
    return out_grid.phases * (last * tile.cols + packed_columns(last));
  }
  std::int64_t panels_of_thread() const {  // at most, at a time
    const std::int64_t of_phase = fused    ? 1
                                  : panels ? ceil_div(phase_panels(), threads)
                                           : phase_panels();
    return out_grid.phases * of_phase;
  }
  std::int64_t phases() const { return in_grid.phases * out_grid.phases; }  // of one side
  bool phased() const { return phases() > 1; }
  // Plain x is folded where it is read, and unfolded where it is written.
  bool folds() const { return fold && pass != Pass::backward_data; }
  bool unfolds() const { return fold && pass == Pass::backward_data; }
  // How many channels of `in`, `out` are one channel of the filter.
  std::int64_t in_fold() const { return folds() ? stride * stride : 1; }
  std::int64_t out_fold() const { return unfolds() ? stride * stride : 1; }
  // The filter meets x's channel c in the taps stride * i + a, stride * j + b: a * stride + b.
  std::int64_t tap_phase(std::int64_t c, std::int64_t phase) const {
    if (!phased()) return c % (stride * stride);
    return kWinogradPhases[phase].h * stride + kWinogradPhases[phase].w;
  }

  // The phases [first, second) of x that have a product at this point.
  std::pair<std::int64_t, std::int64_t> phases_at(std::int64_t point) const {
    if (!phased()) return {0, 1};
    const bool last_h = point / t() == t() - 1, last_w = point % t() == t() - 1;
    return {last_w ? 1 : 0, last_h ? 2 : last_w ? 3 : 4};
  }

  // Forward's product in steps, equal work each: the phases at each point of each panel. Where in
  // [point][panel] the first so many of them end; the last point's phases are known to be few.
  std::int64_t steps() const {
    const std::int64_t t_phased = phased() ? 2 * t() - 1 : t();
    return t_phased * t_phased * phase_panels();
  }
  std::int64_t item_after(std::int64_t steps) const {
    for (std::int64_t point = 0; point < points(); ++point) {
      const auto [first, last] = phases_at(point);
      const std::int64_t here = (last - first) * phase_panels();
      if (steps < here)
        return point * out_panels() + (out_grid.phases > 1 ? first * phase_panels() + steps
                                                           : ceil_div(steps, last - first));
      steps -= here;
    }
    return points() * out_panels();
  }

  // Buffers, in floats. An odd number of lines between neighbours spreads them over the cache's
  // sets. A panel takes the room of a whole one, but columns are as many as it has (panel_columns):
  // the lines of a last one with a single vector are neighbours.
  //   V [point][channel block][tile][channel]
  //   M [point][panel][tile][column]                 (dy transformed, in backward_filter)
  //   S [panel][phase][chunk][point][channel][column]  (backward_filter: sums over tiles)
  //   packed filter [point][panel][channel][column], or of fours of columns as QuadTile has it
  //   U [point][channel][column]                    (fused: of a panel and chunk, and its taps
  //   g [channel block][channel][tap][column]        as they are)
  std::int64_t rows() const { return block | 1; }
  std::int64_t v_point() const { return (in_blocks() * rows() | 1) * tile.block; }
  std::int64_t m_point() const { return (m_panels() * rows() | 1) * tile.cols; }
  std::int64_t s_point() const { return (chunk * tile.block | 1) * tile.cols; }
  std::int64_t phase_chunks() const { return ceil_div(phase_blocks(), chunk); }
  std::int64_t panel_chunks() const { return in_grid.phases * phase_chunks(); }
  std::int64_t chunks() const { return panels_of_thread() * panel_chunks(); }
  std::int64_t chunk_floats() const { return round_up(points() * s_point(), 16); }
  // All tiles are in the one block, so a chunk's sums are final and can go on to dw while in cache;
  // unless it is cheaper to store them all than to pass V once a panel and M once a chunk. Stored,
  // written through and read back by strides, they cost about twelve passes (measured).
  bool sums_at_once() const {
    const std::int64_t m_all = points() * panels_of_thread() * rows() * tile.cols;
    return pass == Pass::backward_filter && (shared || panels) && block >= tiles() &&
           panels_of_thread() * v_floats() + panel_chunks() * m_all <
               12 * chunks() * chunk_floats();
  }
  // Panels of M at a time. Beside a shared V a thread whose sums are final makes M of its panels
  // one by one, for itself: what another core read last is slow to write.
  std::int64_t m_panels() const { return owners() > 1 ? 1 : panels_of_thread(); }
  // Threads that have M and sums of their own beside a shared V.
  std::int64_t owners() const { return shared && sums_at_once() ? threads : 1; }
  // V of a shared block goes past the caches: each line that another core has read would have to be
  // taken from it first, one at a time. Zen 4 writes 10 GB/s of such lines, 2.3 where the cores
  // have not the same L3, and streams 28. Where sums are not final that costs 2 to 4% under one L3
  // (layer2), so V stays in the caches there. Vectors must be whole lines.
  bool streams_v() const {
    return shared && threads > 1 && tile.lanes == 16 &&
           (pass != Pass::backward_filter || sums_at_once());
  }
  std::int64_t packed_panel() const { return in_blocks() * tile.block * tile.cols; }
  std::int64_t packed_point() const {  // the last panel ends with its columns
    const std::int64_t last = packed_columns(phase_panels() - 1);
    return (out_panels() - 1) * packed_panel() + in_blocks() * tile.block * last;
  }
  std::int64_t packed_floats() const { return points() * packed_point(); }
  std::int64_t v_floats() const { return round_up(points() * v_point(), 16); }
  // A thread that goes through the points of its own block in order may store M of a point where V
  // of those before was, which is in cache still: M begins just so far before V that it stays
  // behind what is read. Half the memory crosses L2 while the filter passes through.
  bool overlaid() const { return !shared && !fused && pass != Pass::backward_filter; }
  std::int64_t m_floats() const {  // overlaid: those before V
    const std::int64_t all = points() * m_point();
    const std::int64_t before = std::max(m_point(), all - (points() - 1) * v_point());
    return round_up(overlaid() ? before : all, 16);
  }
  std::int64_t s_floats() const {
    if (pass != Pass::backward_filter) return 0;
    return chunk_floats() * (sums_at_once() ? owners() : chunks());
  }
  // Where a phase's channel block begins in a panel, of the first point.
  std::int64_t packed_at(std::int64_t phase, std::int64_t panel, std::int64_t block) const {
    const bool in_phased = in_grid.phases > 1;
    const std::int64_t of_panel = in_phased ? panel : phase * phase_panels() + panel;
    return of_panel * packed_panel() +
           ((in_phased ? phase * phase_blocks() : 0) + block) * tile.block * packed_columns(panel);
  }
  std::int64_t u_point() const { return (chunk * tile.block + 1) * tile.cols; }
  std::int64_t u_floats() const { return points() * u_point(); }
  std::int64_t g_block() const { return (tile.block * kernel * kernel + 3) * tile.cols; }
  std::int64_t g_floats() const { return chunk * g_block(); }
  std::int64_t fused_floats() const { return u_floats() + g_floats() + m_floats(); }
  std::int64_t set_floats() const { return v_floats() + owners() * m_floats() + s_floats(); }
  std::int64_t workspace_floats() const {
    if (fused) return (shared ? 1 : threads) * v_floats() + threads * fused_floats();
    return set_floats() * (shared ? 1 : threads);
  }
};

struct WinogradOperands {
  const float *in = nullptr, *packed = nullptr, *dy = nullptr, *bias = nullptr, *residual = nullptr;
  const FilterView* filter = nullptr;  // fused, in place of `packed`
  float* out = nullptr;
  float* workspace = nullptr;
  bool stream = false;  // results go past the caches; `out` is aligned to vectors
  PhaseRecorder* phases = nullptr;
  WorkShares* tiles = nullptr;  // those that no thread has taken; winograd_run sets it
};

void winograd_pack(const WinogradShape&, const FilterView&, float* packed);
void winograd_run(const WinogradShape&, WinogradOperands);

// Floating-point operations to transform one tile of one channel.
struct WinogradCosts {
  double input = 0, filter = 0, output = 0;
};
WinogradCosts winograd_costs(const WinogradShape&);

}  // namespace convlab::cpu
