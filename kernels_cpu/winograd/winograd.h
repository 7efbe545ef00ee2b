// The state of a Winograd convolution: what winograd.cpp plans and kernels-inl.h runs, in f32 and
// f64. Internal.
//
// The output (in backward_filter dy) is cut into tiles. A block of tiles at a time goes through
// three steps: transform the input into V, multiply at each of the T^2 points, transform back.
//
// Tiles rarely fit an image: with 13 x 13 outputs, a third of F(4,3)'s work lies beyond the edge.
// Images may therefore lie side by side in a mosaic, where neighbours share the padding between
// them. Tiles cover the mosaic, and one tile may hold outputs of four images. Only the mosaic's
// edge and the padding inside it are wasted: 16 images of 14 x 14 in a mosaic of 4 x 4 take 100
// tiles of F(6,3) instead of 144.
//
// Dilated by d, output o reads x at o + d r - pad. Outputs o = d i + a and inputs d u + a of one
// remainder a are a dense convolution of their own, with padding pad / d, where that is whole. In
// two dimensions an image is d x d of these, which make up a mosaic.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "conv/algo.h"
#include "conv/types/math_type.h"
#include "kernels_cpu/amx/terms.h"
#include "kernels_cpu/device/work_shares.h"
#include "kernels_cpu/epilogue.h"
#include "kernels_cpu/gemm/filter_block.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "kernels_cpu/gemm/tile_shape.h"

namespace convlab::cpu {

// Polyphase: a stride of two splits x into stride phases. Output o of a 3-tap filter reads x at
// 2 (o + j) + a - pad through tap 2 j + a. Phase a = 0 has the two taps 0 and 2, phase a = 1 has
// the one tap 1. Both are F(m, 2) of stride 1 over the pixels of their phase, and the four phases
// of two dimensions act as four times the channels of x. A filter (g, 0) is zero at the point at
// infinity, where its value is the leading coefficient. Those products are left out, so m^2 outputs
// take (m + m + 1)^2 multiplications instead of 9 m^2. This order of the phases (a of rows, a of
// columns) makes those that have a product at one point neighbours.
//
// With 4 taps each phase has two, and m^2 outputs take 4 (m + 1)^2 multiplications instead of
// 16 m^2.
struct WinogradStridePhase {
  std::int64_t h = 0, w = 0;
};
inline constexpr WinogradStridePhase kWinogradStridePhases[] = {{0, 1}, {0, 0}, {1, 0}, {1, 1}};

// Space to depth: where x has few channels, a stride s folds into them. The channels (c, a, b) of
// folded pixel (i, j) are x[c][s i + a - pad][s j + b - pad]. There are C s^2 of them, and the
// filter has ceil(R / s) taps and stride 1. 7x7/2 over 3 channels becomes 4x4 over 12, which F(4,4)
// does with 37 multiplications an output instead of 147; 11x11/4 becomes 3x3 over 48. x is plain
// NCHW, as nets read it, and is folded a tile at a time (fold-inl.h). Backwards, folded pixel u of
// dx gets dy[u - j] through tap j of each channel, and the result is unfolded.
struct WinogradFold {
  TensorDesc x;
  std::int64_t pad_h = 0, pad_w = 0;
};

// The pixels of one side of the convolution: one grid, or four with every second row and column.
struct WinogradGrid {
  std::int64_t phases = 1;                        // stride phases
  std::int64_t h = 0, w = 0;                      // of one phase
  std::int64_t first_h[2] = {}, first_w[2] = {};  // where phase a begins in the tensor

  std::int64_t at_h(std::int64_t phase) const { return first_h[kWinogradStridePhases[phase].h]; }
  std::int64_t at_w(std::int64_t phase) const { return first_w[kWinogradStridePhases[phase].w]; }
};

// What a thread owns, and what the team shares.
//
// A private block stays in its core's L2, but the filter is read once a block by every thread. A
// team that shares larger blocks reads it once a block: where filters are many and tiles few, that
// saves more than the barriers and the traffic between cores cost. With private panels the filter
// is read once too, and nothing crosses between cores, but every thread transforms all tiles.
// Where the filter changes from run to run, as in training, packing it may cost as much as a run;
// the unpacked schedules transform it on the fly.
enum class WinogradSchedule : std::uint8_t {
  private_blocks,    // a thread owns a block of tiles at a time, with its V and M
  shared_blocks,     // the team shares each block: V, M and the work of all three steps
  private_panels,    // a thread owns panels of the filter (of dw), and V and M of every block
  unpacked_shared,   // a thread owns panels of the filter as it is; the team shares V of all tiles
  unpacked_private,  // the same, but each thread has V of all tiles
};
inline constexpr std::array<std::string_view, 5> winograd_schedules{
    "private", "shared", "panels", "unpacked_shared", "unpacked_private"};

constexpr bool shares_v(WinogradSchedule schedule) {
  return schedule == WinogradSchedule::shared_blocks ||
         schedule == WinogradSchedule::unpacked_shared;
}
constexpr bool packs_filter(WinogradSchedule schedule) {
  return schedule != WinogradSchedule::unpacked_shared &&
         schedule != WinogradSchedule::unpacked_private;
}
// One thread, or the team together, goes through all tiles for the panels it multiplies.
constexpr bool sees_all_tiles(WinogradSchedule schedule) {
  return schedule != WinogradSchedule::private_blocks;
}
// Every thread transforms all tiles of the input.
constexpr bool repeats_transform(WinogradSchedule schedule) {
  return sees_all_tiles(schedule) && !shares_v(schedule);
}

// What is computed: the problem in tiles, points, stride phases, channel blocks and panels. Knows
// nothing of threads and memory.
struct WinogradGeometry {
  Pass pass = Pass::forward;
  DType dtype = DType::f32;
  std::int64_t tile = 0, r = 0;  // F(tile, r); backward_filter is F(r, tile), with the same T
  std::int64_t stride = 1;       // polyphase: 2, with r = 2; or folded
  std::int64_t kernel = 0;       // taps of the whole filter, in one dimension
  // Forward goes from `in` to `out`. backward_data is the forward of dy with the flipped filter; in
  // backward_filter `in` is x and `out` is dy.
  TensorDesc in, out;       // the channels of one group
  std::int64_t groups = 1;  // of the tensors
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::optional<WinogradFold> fold;   // `in`, in backward_data `out`, is folded x
  WinogradGrid in_grid, out_grid;     // x's has the stride phases
  std::int64_t pad_h = 0, pad_w = 0;  // of in_grid
  Epilogue epilogue;
  bool accumulate = false;
  // Images of a mosaic, whose product divides out.n, or the remainders of a dilated one.
  std::int64_t mosaic_h = 1, mosaic_w = 1;
  TileShape register_tile;  // of the product

  std::int64_t element() const { return size_of(dtype); }  // bytes
  std::int64_t t() const { return tile + r - 1; }
  std::int64_t points() const { return t() * t(); }
  // From image to image of a mosaic: no output sees an input of another image.
  std::int64_t pitch_h() const {
    return std::max({in_grid.h, out_grid.h, in_grid.h + pad_h, out_grid.h + r - 1 - pad_h});
  }
  std::int64_t pitch_w() const {
    return std::max({in_grid.w, out_grid.w, in_grid.w + pad_w, out_grid.w + r - 1 - pad_w});
  }
  std::int64_t tiles_h() const { return ceil_div((mosaic_h - 1) * pitch_h() + out_grid.h, tile); }
  std::int64_t tiles_w() const { return ceil_div((mosaic_w - 1) * pitch_w() + out_grid.w, tile); }
  bool dilated() const { return dilation_h * dilation_w > 1; }
  std::int64_t mosaic_images() const { return dilated() ? 1 : mosaic_h * mosaic_w; }
  std::int64_t tiles() const { return out.n / mosaic_images() * tiles_h() * tiles_w(); }

  // Channel blocks of `in` and panels of `out`: of one stride phase, and of all, which are ordered
  // [phase][block] and [phase][panel].
  std::int64_t phase_blocks() const { return in.padded_c() / register_tile.block; }
  std::int64_t phase_panels() const { return ceil_div(out.c, register_tile.cols); }
  std::int64_t in_blocks() const { return in_grid.phases * phase_blocks(); }
  std::int64_t out_panels() const { return out_grid.phases * phase_panels(); }
  // Columns that are multiplied: of one panel of a phase, and of all panels.
  std::int64_t panel_columns(std::int64_t panel) const {
    return register_tile.panel_cols(out.c - panel * register_tile.cols);
  }
  std::int64_t columns() const {
    const std::int64_t last = phase_panels() - 1;
    return out_grid.phases * (last * register_tile.cols + panel_columns(last));
  }

  std::int64_t phases() const { return in_grid.phases * out_grid.phases; }  // one side has them
  bool polyphase() const { return phases() > 1; }
  // Of 3x3 with a stride: those phases of one tap are zero at the last point.
  bool short_phases() const { return polyphase() && kernel % stride != 0; }
  // Plain x is folded where it is read, and unfolded where it is written.
  bool folds() const { return fold && pass != Pass::backward_data; }
  bool unfolds() const { return fold && pass == Pass::backward_data; }
  // How many channels of `in`, `out` are one channel of the filter.
  std::int64_t in_fold() const { return folds() ? stride * stride : 1; }
  std::int64_t out_fold() const { return unfolds() ? stride * stride : 1; }
  // x's channel c has the taps (stride * i + a, stride * j + b) of the filter: a * stride + b.
  std::int64_t tap_phase(std::int64_t c, std::int64_t phase) const {
    if (!polyphase()) return c % (stride * stride);
    return kWinogradStridePhases[phase].h * stride + kWinogradStridePhases[phase].w;
  }
  // The stride phases [first, second) of x that have a product at this point.
  std::pair<std::int64_t, std::int64_t> phases_at(std::int64_t point) const {
    if (!short_phases()) return {0, phases()};
    const bool last_h = point / t() == t() - 1, last_w = point % t() == t() - 1;
    return {last_w ? 1 : 0, last_h ? 2 : last_w ? 3 : 4};
  }

  // The operands of one group.
  double in_bytes() const { return double(element() * (folds() ? fold->x : in).elements()); }
  double out_bytes() const { return double(element() * (unfolds() ? fold->x : out).elements()); }
  double kernel_bytes() const {
    const std::int64_t channels = in.c / in_fold() * (out.c / out_fold());
    return double(element() * channels * kernel * kernel);
  }

  // Products of bf16 terms: of a filter that is packed, in one grid of pixels.
  bool may_split() const {
    return dtype == DType::f32 && r == 3 && pass != Pass::backward_filter && !fold && !polyphase();
  }
  // Unpacked schedules: backward_filter packs nothing anyway, and a first layer's filter is small.
  bool allows(WinogradSchedule schedule) const {
    return packs_filter(schedule) || (pass != Pass::backward_filter && !fold);
  }

  // Forward's product is split into parts of equal work: a stride phase at a point for a panel.
  // How many there are, and how many items [point][panel] the first so many of them make up.
  std::int64_t product_parts() const {
    const std::int64_t t_phases = polyphase() ? 2 * t() - (short_phases() ? 1 : 0) : t();
    return t_phases * t_phases * phase_panels();
  }
  std::int64_t item_after(std::int64_t parts) const {
    for (std::int64_t point = 0; point < points(); ++point) {
      const auto [first, last] = phases_at(point);
      const std::int64_t here = (last - first) * phase_panels();
      if (parts < here)
        return point * out_panels() + (out_grid.phases > 1 ? first * phase_panels() + parts
                                                           : ceil_div(parts, last - first));
      parts -= here;
    }
    return points() * out_panels();
  }
};

// A part of the workspace, in elements. A thread's begins `thread_step` after the thread's before
// it; 0: the team shares it.
struct WinogradBuffer {
  std::int64_t size = 0, begin = 0, thread_step = 0;

  template <class T>
  T* of(T* workspace, std::int64_t thread) const {
    return workspace + begin + thread * thread_step;
  }
};

// Where everything lies, in elements, computed once (set_buffers in spec.cpp). An odd number of
// channel blocks between neighbours spreads them over the cache's sets. Every panel of V's and M's
// matrices takes the room of a full one, but its tiles lie only as many columns apart as are
// multiplied, which may be a single vector.
struct WinogradBuffers {
  WinogradBuffer v;       // V [point][channel block][tile][channel]
  WinogradBuffer m;       // M [point][panel][tile][column]; in backward_filter dy transformed
  WinogradBuffer sums;    // S [panel][phase][chunk][point][channel][column], of backward_filter
  WinogradBuffer filter;  // U [point][channel][column] of a panel and chunk, of unpacked schedules
  WinogradBuffer taps;    //   and its taps as they are, [channel block][channel][tap][column]
  std::int64_t workspace = 0;
  std::int64_t packed = 0;  // [point][panel][channel][column], or fours of columns (QuadTile)

  // Steps from one to the next.
  std::int64_t v_point = 0, m_point = 0, sums_point = 0, filter_point = 0, packed_point = 0;
  std::int64_t sums_chunk = 0, taps_block = 0, packed_panel = 0;
  std::int64_t padded_tiles = 0;  // a channel block of V, or a panel of M, has room for so many

  std::int64_t m_panels = 0;                        // panels that M holds at a time
  std::int64_t phase_chunks = 0, panel_chunks = 0;  // chunks of a stride phase, of a panel
};

struct SplitProducts;
struct SplitProduct;
using MultiplySplit = void (*)(const SplitProducts&, const SplitProduct* items, std::int64_t count);

// The state of one plan. Only winograd_spec makes one.
struct WinogradSpec {
  WinogradGeometry geometry;
  WinogradSchedule schedule = WinogradSchedule::private_blocks;
  std::int64_t threads = 1;
  std::int64_t block_tiles = 0;      // transformed at a time
  std::int64_t part_depth = 1;       // of a product: its operand stays in L1
  std::int64_t chunk_blocks = 1;     // channel blocks whose sums, or unpacked filters, fit in L2
  bool non_temporal_stores = false;  // of the output
  bool non_temporal_v = false;       // of V
  bool prefetch_input = false;       // it misses L2, and the hardware prefetcher reacts too late
  // backward_filter: all tiles are in one block, so the sums of a chunk are final and go on to dw
  // while they are in cache.
  bool final_sums = false;
  WinogradBuffers buffers;
  MathType math = MathType::f32;  // of the product: see split.h
  MultiplySplit multiply_split = nullptr;

  // How often V exists.
  std::int64_t v_copies() const { return shares_v(schedule) ? 1 : threads; }

  bool splits() const { return math != MathType::f32; }
  std::int64_t terms() const { return terms_of(math); }
  // Steps of depth: of 32 channels.
  std::int64_t split_steps() const {
    return ceil_div(geometry.phase_blocks() * geometry.register_tile.block, tile_depth);
  }
  // The room of a tile in V, in channels of f32.
  std::int64_t v_channels() const {
    return splits() ? split_steps() * terms() * tile_depth / 2
                    : geometry.in_blocks() * geometry.register_tile.block;
  }
  // The groups of channels that the input transform takes at a time.
  std::int64_t input_groups() const { return splits() ? split_steps() : geometry.in_blocks(); }

  // How many fours of columns QuadTile multiplies in a panel of a single vector of f32; 0 in
  // others.
  std::int64_t panel_fours(std::int64_t panel) const {
    if (splits()) return 0;
    const TileShape& shape = geometry.register_tile;
    const bool single = shape.lanes == 16 && geometry.panel_columns(panel) == shape.lanes;
    if (!single || !packs_filter(schedule) || geometry.pass == Pass::backward_filter) return 0;
    return geometry.out.c - panel * shape.cols <= 12 ? 3 : 4;
  }
  // What a channel of the packed filter takes in a panel.
  std::int64_t packed_columns(std::int64_t panel) const {
    const std::int64_t fours = panel_fours(panel);
    return fours > 0 ? 4 * fours : geometry.panel_columns(panel);
  }
  // Where a stride phase's channel block begins in a panel of the packed filter, at the first
  // point.
  std::int64_t packed_at(std::int64_t phase, std::int64_t panel, std::int64_t block) const {
    const bool in_phases = geometry.in_grid.phases > 1;
    const std::int64_t of_panel = in_phases ? panel : phase * geometry.phase_panels() + panel;
    return of_panel * buffers.packed_panel +
           ((in_phases ? phase * geometry.phase_blocks() : 0) + block) *
               geometry.register_tile.block * packed_columns(panel);
  }
  // Panels that a thread, or the team, multiplies at a time, at most.
  std::int64_t panels_at_once() const {
    const std::int64_t of_phase = !packs_filter(schedule) ? 1
                                  : schedule == WinogradSchedule::private_panels
                                      ? ceil_div(geometry.phase_panels(), threads)
                                      : geometry.phase_panels();
    return geometry.out_grid.phases * of_phase;
  }
};

// The operands of a run as elements.
template <class Real>
struct WinogradOperandsOf {
  const Real *in = nullptr, *packed = nullptr, *dy = nullptr;
  const FilterViewOf<Real>* filter = nullptr;  // in place of `packed`, if that is not packed
  OutputEpilogue<Real> output;
  Real* workspace = nullptr;
  PhaseRecorder* recorder = nullptr;
  WorkShares* tiles = nullptr;  // those that no thread has taken

  WinogradOperandsOf(const ConvProblem& p, const ConvArgs& args, Workspace memory,
                     bool non_temporal_stores)
      : in(elements(p.pass == Pass::backward_data ? args.dy : args.x)),
        packed(elements(args.w)),
        dy(elements(args.dy)),
        output(output_epilogue<Real>(p, args,
                                     non_temporal_stores && is_aligned_for_non_temporal(args.out))),
        workspace(reinterpret_cast<Real*>(memory.data())),
        recorder(args.phases) {}

  // Those of a group, by a team whose workspace is the so-many-th.
  WinogradOperandsOf of_group(const WinogradSpec& s, std::int64_t group, std::int64_t team) const {
    const WinogradGeometry& g = s.geometry;
    const bool backward_filter = g.pass == Pass::backward_filter;
    WinogradOperandsOf own = *this;
    const auto group_at = [&](const TensorDesc& t) { return t.offset(0, group * t.c, 0, 0); };
    own.in += group_at(g.in);
    own.packed += group * s.buffers.packed;
    if (backward_filter) own.dy += group_at(g.out);
    const std::int64_t filter_elements = g.in.c * g.out.c * g.kernel * g.kernel;
    own.output =
        output.at(backward_filter ? group * filter_elements : group_at(g.out), group * g.out.c);
    own.workspace += team * s.buffers.workspace;
    return own;
  }

 private:
  static const Real* elements(const void* p) { return static_cast<const Real*>(p); }
};

// The steps that `recorder` times, in the order of the work estimate.
enum WinogradStep : int { kInputTransform, kProduct, kOutputTransform, kFilterTransform };

// One thread's part, of f32 (kernels.cpp) or f64 (kernels_f64.cpp).
void winograd_pack(const WinogradSpec&, const FilterViewOf<float>&, float* packed,
                   std::int64_t thread, std::int64_t threads);
void winograd_pack(const WinogradSpec&, const FilterViewOf<double>&, double* packed,
                   std::int64_t thread, std::int64_t threads);
void winograd_run(const WinogradSpec&, const WinogradOperandsOf<float>&, std::int64_t thread,
                  std::int64_t threads);
void winograd_run(const WinogradSpec&, const WinogradOperandsOf<double>&, std::int64_t thread,
                  std::int64_t threads);

// By products of bf16 terms (split_kernels.cpp).
void winograd_pack_split(const WinogradSpec&, const FilterViewOf<float>&, float* packed,
                         std::int64_t thread, std::int64_t threads);
void winograd_run_split(const WinogradSpec&, const WinogradOperandsOf<float>&, std::int64_t thread,
                        std::int64_t threads);

// Floating-point operations to transform one tile of one channel.
struct WinogradCosts {
  double input = 0, filter = 0, output = 0;
};
WinogradCosts winograd_costs(const WinogradGeometry&);

// Whether x is that of a first layer: plain NCHW of few channels.
bool winograd_first_layer(const ConvProblem&);

}  // namespace convlab::cpu
