// From the sums of a SplitFilterGemm to dw: see split_filter.h.
#include <algorithm>
#include <cstddef>

#include "kernels_cpu/implicit_gemm/split.h"
#include "kernels_cpu/implicit_gemm/split_filter.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/implicit_gemm/split_filter_sums.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/simd/put_transposed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Of a 1x1 filter a row of sums is a piece of dw.
template <class Sums>
HWY_INLINE void PutRow(const Sums& sums, bool accumulate, std::int64_t columns, float* to) {
  const TagOf<float> d;
  std::int64_t c = 0;
  for (; c + kLanesOf<float> <= columns; c += kLanesOf<float>) {
    const auto v = sums.LoadAt(d, c);
    hn::StoreU(accumulate ? hn::Add(v, hn::LoadU(d, to + c)) : v, d, to + c);
  }
  for (; c < columns; ++c) to[c] = sums.At(c) + (accumulate ? to[c] : 0);
}

// Rows of sums that lie a tile apart, at the indices that PutTransposed has for a panel's.
template <class Sums>
struct RowsOfTiles {
  Sums sums;

  static constexpr std::int64_t Place(std::int64_t i) {
    return i / kTileColsOf<float> * split_tile_sums + i % kTileColsOf<float>;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> LoadAt(D d, std::int64_t i) const {
    return sums.LoadAt(d, Place(i));
  }
  float At(std::int64_t i) const { return sums.At(Place(i)); }
};
template <class Sums>
RowsOfTiles(Sums) -> RowsOfTiles<Sums>;

void PutFilterSums(const SplitFilterGemm& gemm, const float* sums, std::size_t part_stride,
                   float* dw, Range k_pairs, std::int64_t c_pair) {
  constexpr std::int64_t at_once = std::min<std::int64_t>(tile_rows, kTileColsOf<float>);
  static_assert(tile_rows % at_once == 0);
  const std::int64_t taps = gemm.taps(), tile_sums = taps * split_tile_sums;
  const std::int64_t first_c = c_pair * split_pair;
  const std::int64_t columns = std::min(split_pair, gemm.c() - first_c);
  for (std::int64_t pair = k_pairs.begin; pair < k_pairs.end; ++pair, sums += gemm.pair_sums()) {
    const std::int64_t rows = std::min(split_pair, gemm.k() - pair * split_pair);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* const from =
          sums + row / tile_rows * 2 * tile_sums + row % tile_rows * tile_rows;
      float* to = dw + ((pair * split_pair + row) * gemm.c() + first_c) * taps;
      for (std::int64_t c = 0; c < columns; c += at_once) {
        const std::int64_t held = std::min(at_once, columns - c);
        const float* const at = from + c / tile_rows * tile_sums + c % tile_rows;
        const auto put = [&](const auto& of_parts) HWY_ATTR {
          if (taps == 1)
            PutRow(of_parts, gemm.accumulate, held, to);
          else
            PutTransposed(RowsOfTiles{of_parts}, gemm.accumulate, taps, held, to, taps);
          to += held * taps;
        };
        gemm.parts == 1 ? put(WholeSums{at}) : put(PartSums{at, part_stride, gemm.parts});
      }
    }
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(PutFilterSums);

void put_filter_sums(const SplitFilterGemm& gemm, const float* sums, std::size_t part_stride,
                     float* dw, Range k_pairs, std::int64_t c_pair) {
  HWY_DYNAMIC_DISPATCH(PutFilterSums)(gemm, sums, part_stride, dw, k_pairs, c_pair);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
