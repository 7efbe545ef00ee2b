// implicit_gemm by bf16 products of matrix tiles: forward and backward_data, and what they share
// with backward_filter (split_filter.h). Internal.
// Terms and tiles: kernels_cpu/amx/terms.h. Tensors in bf16 are also multiplied by dot products
// (kernels_cpu/avx512_bf16), in the same tiles.
//
// Tiles have 16 rows (pixels) and 32 steps of depth, which here runs over (tap, channel). Threads,
// blocks and panels are those of PixelGemm, with panels of 32 output channels. A block's rows are
// split once, into the thread's workspace, while its first panel is multiplied. With tensors in
// bf16 splitting is copying, the depth is one chunk, and a sum is rounded once, behind the
// epilogue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "conv/types/math_type.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/amx/terms.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"
#include "kernels_cpu/half/stored.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

namespace convlab::cpu {

inline constexpr std::int64_t split_panel_cols = 32;

struct SplitGemm {
  PixelGemm pixels;
  MathType math = MathType::bf16x3;
  // Tiles of depth at a time, so that a block's rows stay in L2; all of bf16's.
  std::int64_t chunk_steps = 0;

  std::int64_t terms() const { return terms_of(math); }
  std::int64_t products() const { return products_of(math); }
  std::int64_t channel_blocks() const {
    return pixels.in.padded_c() / channel_block(pixels.in.layout);
  }
  // Tiles of depth; the last one may be padded with zeros.
  std::int64_t steps(const PixelGrid& g) const {
    return ceil_div(pixels.in.padded_c() * std::int64_t(g.taps.size()), tile_depth);
  }
  std::int64_t panels() const { return ceil_div(pixels.out.c, split_panel_cols); }
  // Tiles of columns of a panel: the last one may have a single tile.
  std::int64_t col_tiles(std::int64_t panel) const {
    return pixels.out.c - panel * split_panel_cols > split_panel_cols / 2 ? 2 : 1;
  }
  // The packed filter is [group][grid][panel][step][term][tile of columns], a tile each, of 16
  // pairs of depth x 16 columns x 2. In bytes: of a panel and, with all grids, of a group.
  std::int64_t panel_bytes(const PixelGrid& g) const {
    return steps(g) * terms() * split_panel_cols / tile_rows * tile_bytes;
  }
  std::int64_t packed_bytes() const {
    std::int64_t bytes = 0;
    for (const PixelGrid& g : pixels.grids) bytes += panels() * panel_bytes(g);
    return bytes;
  }
};

// The configs over blocked activations beyond those of multiply-adds; empty without a unit for
// them.
std::vector<Config> split_configs(const ConvProblem&, const DeviceInfo&);
bool is_split(const Config&);
// Throws InputError for a config that is not one of theirs.
std::unique_ptr<ConvPlan> make_split_plan(const ConvProblem&, const Config&, const DeviceInfo&);
WorkEstimate work_split(const ConvProblem&, const Config&, const DeviceInfo&);

// One thread's part. `packed` is bytes, whatever its type.
template <class S>
using RunSplit = void(const SplitGemm&, const PixelOperands<S>&, std::byte* workspace,
                      std::int64_t thread, PhaseRecorder*);
RunSplit<float> run_split_amx, run_split_emulated;
RunSplit<StoredBf16> run_split_amx, run_split_emulated, run_split_dots, run_split_emulated_dots;
// The kernels of a unit (bf16_unit()).
template <class S>
RunSplit<S>* run_split_on(std::string_view unit) {
  if constexpr (std::is_same_v<S, StoredBf16>) {
    if (unit == avx512_bf16_unit) return run_split_dots;
    if (unit == emulated_avx512_bf16_unit) return run_split_emulated_dots;
  }
  if (unit == amx_unit) return run_split_amx;
  return run_split_emulated;
}

// Cycles of a core for a product of two tiles, for plans.
double tile_product_cycles(const DeviceInfo&);

// Bytes of workspace that one thread needs.
std::size_t split_workspace(const SplitGemm&);

}  // namespace convlab::cpu
