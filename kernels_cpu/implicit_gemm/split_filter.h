// backward_filter of implicit_gemm by bf16 products of matrix tiles. split.h has the terms.
// Internal.
//
//   dw[k][c, tap] = sum over pixels of dy[pixel][k] x[pixel at tap][c]
//
// The depth of a tile's product is 32 pixels of y. A is dy: 16 k x 32 pixels. B is x at one tap: 16
// pairs of pixels x 16 c. In memory both have the channels of a pixel side by side. So B's pairs
// are two lines interleaved, while A's rows have to be transposed. That is why dy is A: it serves
// all taps. A chunk of dy is split and transposed once, and stays in L2 while every pair of tiles
// of x is split and multiplied by it.
//
// dw is cut into rectangles of k_splits x c_splits, the pixels into `parts`. A unit is one part of
// one rectangle. All this is of one group, and all groups are cut alike. With tensors in bf16 dw is
// summed in f32 in the workspace, and rounded at the end.
#pragma once

#include <algorithm>
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
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/half/stored.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

namespace convlab::cpu {

inline constexpr std::int64_t split_pair = 32;        // channels of two tiles
inline constexpr std::int64_t split_tile_sums = 256;  // floats of a tile

struct SplitFilterGemm {
  PixelGemm pixels;  // forward's: x's pixels at each tap of the only grid, and dy's
  MathType math = MathType::bf16x3;
  bool accumulate = false;
  std::int64_t steps = 0;        // tiles of depth; the last one may be padded with zeros
  std::int64_t chunk_steps = 1;  // of them at a time
  std::int64_t k_splits = 1, c_splits = 1, parts = 1;
  std::int64_t threads = 1;

  std::int64_t terms() const { return terms_of(math); }
  std::int64_t products() const { return products_of(math); }
  std::int64_t groups() const { return pixels.groups; }
  std::int64_t k() const { return pixels.out.c; }  // of a group
  std::int64_t c() const { return pixels.in.c; }
  std::int64_t taps() const { return std::int64_t(pixels.grids[0].taps.size()); }
  std::int64_t filter_elements() const { return k() * c() * taps(); }
  std::int64_t rectangles() const { return k_splits * c_splits; }

  // Pairs of tiles; the last one may have a single tile.
  std::int64_t k_pairs() const { return ceil_div(k(), split_pair); }
  std::int64_t c_pairs() const { return ceil_div(c(), split_pair); }
  std::int64_t most_k_pairs() const { return ceil_div(k_pairs(), k_splits); }
  std::int64_t most_c_pairs() const { return ceil_div(c_pairs(), c_splits); }
  // Those of a rectangle, counted over all groups: [group][split of k][split of c].
  Range k_pairs_of(std::int64_t rectangle) const {
    return share(k_pairs(), rectangle % rectangles() / c_splits, k_splits);
  }
  Range c_pairs_of(std::int64_t rectangle) const {
    return share(c_pairs(), rectangle % c_splits, c_splits);
  }

  // The sums of a pair of k and a pair of c are [tile of k][tile of c][tap][k][c], in floats; a
  // unit's are [pair of c][pair of k]. Where a unit has no more than one chunk, and there is one
  // part, each pair of c is final at once, and the next one uses its place.
  std::int64_t pair_sums() const { return 4 * taps() * split_tile_sums; }
  bool sums_at_once() const { return parts == 1 && steps <= chunk_steps; }
  std::int64_t unit_sums() const {
    return (sums_at_once() ? 1 : most_c_pairs()) * most_k_pairs() * pair_sums();
  }
};

template <class S>
struct SplitFilterOperands {
  const S *x, *dy;
  float* dw;

  SplitFilterOperands of_group(const SplitFilterGemm& gemm, std::int64_t group) const {
    const TensorDesc &in = gemm.pixels.in, &out = gemm.pixels.out;
    return {x + in.offset(0, group * in.c, 0, 0), dy + out.offset(0, group * out.c, 0, 0),
            dw + group * gemm.filter_elements()};
  }
};

// Of a device with a unit for them, over blocked layouts.
std::vector<Config> split_filter_configs(const ConvProblem&);
std::unique_ptr<ConvPlan> make_split_filter_plan(const ConvProblem&, const Config&,
                                                 const DeviceInfo&);
WorkEstimate work_split_filter(const ConvProblem&, const Config&, const DeviceInfo&);

// One unit, of operands of the whole tensors. Its sums are left in `sums`, or, if there is one
// part, put into dw.
template <class S>
using RunSplitFilter = void(const SplitFilterGemm&, const SplitFilterOperands<S>&,
                            std::byte* scratch, float* sums, std::int64_t rectangle,
                            std::int64_t part, PhaseRecorder*);
RunSplitFilter<float> run_split_filter_amx, run_split_filter_emulated;
RunSplitFilter<StoredBf16> run_split_filter_amx, run_split_filter_emulated, run_split_filter_dots,
    run_split_filter_emulated_dots;
// The kernels of a unit (bf16_unit()).
template <class S>
RunSplitFilter<S>* run_split_filter_on(std::string_view unit) {
  if constexpr (std::is_same_v<S, StoredBf16>) {
    if (unit == avx512_bf16_unit) return run_split_filter_dots;
    if (unit == emulated_avx512_bf16_unit) return run_split_filter_emulated_dots;
  }
  if (unit == amx_unit) return run_split_filter_amx;
  return run_split_filter_emulated;
}
// Adds the sums of all parts, part_stride floats apart, and writes (or adds) them to the dw of one
// group: these pairs of k and one pair of c.
void put_filter_sums(const SplitFilterGemm&, const float* sums, std::size_t part_stride, float* dw,
                     Range k_pairs, std::int64_t c_pair);
// Bytes of workspace that one thread needs, but for sums.
std::size_t split_filter_workspace(const SplitFilterGemm&);

}  // namespace convlab::cpu
