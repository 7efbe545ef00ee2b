// A register tile for products of at most 16 or of 24 columns, four steps of depth at a time.
//
// With a single vector of columns each multiply-add needs its own element of A. A core that
// multiplies as often as it loads then waits for the loads of B and for prefetches. So a vector of
// accumulators holds four columns, and for each of them four partial sums, each over every fourth
// step. Four neighbouring steps of a row of A are broadcast at once, for as many multiply-adds as
// there are fours of columns. Twelve columns take three instead of a padded vector's four, 24 take
// six instead of eight. At the end four partial sums become one, which costs some nine operations
// for a row of 16 columns.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_GEMM_QUAD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_GEMM_QUAD_TILE_INL_H_
#undef CONVLAB_KERNELS_CPU_GEMM_QUAD_TILE_INL_H_
#else
#define CONVLAB_KERNELS_CPU_GEMM_QUAD_TILE_INL_H_
#endif

#include <cstdint>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// kVecs: 3, 4 or 6 fours of columns, which lie in B as quad_at says.
template <int kRows, int kVecs>
struct QuadTile : Tile<kRows, kVecs> {
  using Tile<kRows, kVecs>::v;

  // tile += A B over a group of kBlock steps, row i of A at a + i * kBlock, prefetching the rows
  // from `next` on.
  HWY_INLINE void MultiplyAddGroupPrefetching(const float* a, const float* b, const float* next) {
    HWY_UNROLL(4)
    for (int step = 0; step < kBlock; step += 4) {
      for (int i = step * kRows / kBlock; i < (step + 4) * kRows / kBlock; ++i)
        hwy::Prefetch(next + i * kBlock);
      FourSteps(a + step, b + step * kVecs * 4);
    }
  }
  // The same over fewer steps, up to a multiple of four.
  HWY_INLINE void MultiplyAdd(const float* a, const float* b, std::int64_t depth) {
    for (std::int64_t step = 0; step < depth; step += 4) FourSteps(a + step, b + step * kVecs * 4);
  }

  // 24 columns: each row's in their order, then zeros.
  HWY_INLINE Tile<kRows, 2> Columns24() const {
    Tile<kRows, 2> rows;
    HWY_UNROLL(4)
    for (int i = 0; i < kRows; ++i) {
      rows.v[i][0] = Columns<4>(v[i]);
      rows.v[i][1] = Columns<2>(v[i] + 4);
    }
    return rows;
  }
  // Stores the columns of each row in their order, or adds them, in rows `pitch` floats apart.
  HWY_INLINE void Put(float* to, std::ptrdiff_t pitch, bool add) const {
    HWY_UNROLL(32)
    for (int i = 0; i < kRows; ++i, to += pitch) {
      const Vec sum = Columns<kVecs>(v[i]);
      hn::StoreU(add ? hn::Add(sum, hn::LoadU(F32(), to)) : sum, F32(), to);
    }
  }

 private:
  HWY_INLINE void FourSteps(const float* a, const float* b) {
    Vec bv[kVecs];
    HWY_UNROLL(8)
    for (int j = 0; j < kVecs; ++j) bv[j] = hn::LoadU(F32(), b + j * kLanes);
    HWY_UNROLL(32)
    for (int i = 0; i < kRows; ++i) {
      const Vec av = hn::LoadDup128(F32(), a + i * kBlock);
      HWY_UNROLL(8)
      for (int j = 0; j < kVecs; ++j) v[i][j] = hn::MulAdd(av, bv[j], v[i][j]);
    }
  }
  // In each 128 bits, x0 + x2, y0 + y2, x1 + x3, y1 + y3.
  static HWY_INLINE Vec AddHalves(Vec x, Vec y) {
    return hn::Add(hn::InterleaveLower(F32(), x, y), hn::InterleaveUpper(F32(), x, y));
  }
  // 2, 3 or 4 fours of columns.
  template <int kFours>
  static HWY_INLINE Vec Columns(const Vec* v) {
    using F64 = hn::Repartition<double, F32>;
    const auto at = [&](int i) HWY_ATTR { return i < kFours ? v[i] : hn::Zero(F32()); };
    const auto xy = hn::BitCast(F64(), AddHalves(at(0), at(1)));
    const auto zw = hn::BitCast(F64(), AddHalves(at(2), at(3)));
    const Vec sums = hn::Add(hn::BitCast(F32(), hn::InterleaveLower(F64(), xy, zw)),
                             hn::BitCast(F32(), hn::InterleaveUpper(F64(), xy, zw)));
    if constexpr (kFours == 4) return sums;
    alignas(64) static constexpr std::int32_t order[2][16] = {
        {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15},
        {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15}};
    return hn::TableLookupLanes(sums, hn::SetTableIndices(F32(), order[kFours == 3]));
  }
};

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
