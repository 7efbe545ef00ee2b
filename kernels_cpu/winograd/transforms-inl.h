// Winograd's transforms as straight-line code, made at compile time (conv/math/butterflies.h).
//
// One vector holds some channels of one pixel; all of them undergo the same transform. Real is the
// type of their elements.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_WINOGRAD_TRANSFORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_WINOGRAD_TRANSFORMS_INL_H_
#undef CONVLAB_KERNELS_CPU_WINOGRAD_TRANSFORMS_INL_H_
#else
#define CONVLAB_KERNELS_CPU_WINOGRAD_TRANSFORMS_INL_H_
#endif

#include <hwy/highway.h>

#include "conv/math/butterflies.h"
#include "kernels_cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// A coefficient in all lanes.
template <class V>
HWY_INLINE V Coefficient(double a) {
  using D = hn::DFromV<V>;
  return hn::Set(D(), static_cast<hn::TFromD<D>>(a));
}

// sum + the terms of row kRow from column j on, without its first.
template <const auto& kFactor, int kRow, int j = 0, class V>
HWY_INLINE V AddTerms(const V* x, V sum) {
  if constexpr (j < kFactor.columns) {
    constexpr double a = kFactor.coefficient[kRow][j];
    if constexpr (j == kFactor.first[kRow] || a == 0) {
      // nothing to add
    } else if constexpr (a == 1) {
      sum = hn::Add(sum, x[j]);
    } else if constexpr (a == -1) {
      sum = hn::Sub(sum, x[j]);
    } else {
      sum = hn::MulAdd(Coefficient<V>(a), x[j], sum);
    }
    return AddTerms<kFactor, kRow, j + 1>(x, sum);
  } else {
    return sum;
  }
}

// Row kRow of the factor times x.
template <const auto& kFactor, int kRow, class V>
HWY_INLINE V RowTimes(const V* x) {
  constexpr int first = kFactor.first[kRow];
  static_assert(first >= 0, "a row of zeros");
  constexpr double a = kFactor.coefficient[kRow][first];
  V sum = x[first];
  if constexpr (a != 1) sum = hn::Mul(Coefficient<V>(a), sum);
  return AddTerms<kFactor, kRow>(x, sum);
}

// Row kRow and those after it of y = A x; x has been through the butterfly if columns are paired.
template <Paired kPaired, const auto& kFactor, int kRow = 0, class V>
HWY_INLINE void RowsTimes(const V* x, V* y) {
  if constexpr (kRow < kFactor.rows) {
    constexpr bool paired = kPaired == Paired::rows && is_pair(kRow, kFactor.rows);
    if constexpr (paired) {
      constexpr double scale = kFactor.scale[kRow + 1];
      const V even = RowTimes<kFactor, kRow>(x);
      const V odd = RowTimes<kFactor, kRow + 1>(x);
      if constexpr (scale == 1) {
        y[kRow] = hn::Add(even, odd);
        y[kRow + 1] = hn::Sub(even, odd);
      } else {
        const V factor = Coefficient<V>(scale);
        y[kRow] = hn::MulAdd(factor, odd, even);
        y[kRow + 1] = hn::NegMulAdd(factor, odd, even);
      }
    } else {
      y[kRow] = RowTimes<kFactor, kRow>(x);
    }
    RowsTimes<kPaired, kFactor, kRow + (paired ? 2 : 1)>(x, y);
  }
}

// One matrix, ready to be applied.
template <Paired kPaired, const auto& kFactor>
struct Codelet {
  static constexpr int outputs = kFactor.rows, inputs = kFactor.columns;
  static constexpr int flops = kFactor.flops();  // of one application

  template <class V>
  static HWY_INLINE void Apply(V* x, V* y) {
    if constexpr (kPaired == Paired::columns) {
      HWY_UNROLL(4)
      for (int j = 1; j + 1 < inputs - 1; j += 2) {  // is_pair(j, inputs)
        const V sum = hn::Add(x[j], x[j + 1]);
        x[j + 1] = hn::Sub(x[j], x[j + 1]);
        x[j] = sum;
      }
    }
    RowsTimes<kPaired, kFactor>(x, y);
  }
};

// Y = A X A^T: load(i, j) gives X, store(i, j, v) takes Y, rows i within each column j.
template <class Real, class Code, class Load, class Store>
HWY_INLINE void Nested(const Load& load, const Store& store) {
  constexpr int I = Code::outputs, J = Code::inputs;
  alignas(64) Real half[J][I][kLanesOf<Real>];  // X A^T
  for (int r = 0; r < J; ++r) {
    VecOf<Real> x[J], y[I];
    HWY_UNROLL(8)
    for (int c = 0; c < J; ++c) x[c] = load(r, c);
    Code::Apply(x, y);
    HWY_UNROLL(8)
    for (int i = 0; i < I; ++i) hn::Store(y[i], TagOf<Real>(), half[r][i]);
  }
  for (int c = 0; c < I; ++c) {
    VecOf<Real> x[J], y[I];
    HWY_UNROLL(8)
    for (int r = 0; r < J; ++r) x[r] = hn::Load(TagOf<Real>(), half[r][c]);
    Code::Apply(x, y);
    HWY_UNROLL(8)
    for (int i = 0; i < I; ++i) store(i, c, y[i]);
  }
}

// A X for the columns of a run of tiles: load(c, x) gives column c.
template <class Real, class Code, int kMost>
struct RunColumns {
  static constexpr int I = Code::outputs, J = Code::inputs;
  alignas(64) Real half[kMost][I][kLanesOf<Real>];

  template <class Load>
  HWY_INLINE void Fill(int columns, const Load& load) {
    for (int c = 0; c < columns; ++c) {
      VecOf<Real> x[J], y[I];
      load(c, x);
      Code::Apply(x, y);
      HWY_UNROLL(8)
      for (int i = 0; i < I; ++i) hn::Store(y[i], TagOf<Real>(), half[c][i]);
    }
  }
  // Row i of Y, of the tile whose X begins at this column.
  HWY_INLINE void Row(int column, int i, VecOf<Real>* y) const {
    VecOf<Real> x[J];
    HWY_UNROLL(8)
    for (int c = 0; c < J; ++c) x[c] = hn::Load(TagOf<Real>(), half[column + c][i]);
    Code::Apply(x, y);
  }
};

// The same for a run of `count` tiles, at most kMost, whose X begin kStep columns apart. A column
// that two tiles share is multiplied by A once, and memory is read along its lines. load(c, x)
// gives column c of the run, store(tile, i, y) takes row i of Y. It too goes along the tiles, since
// the T^2 lines of a single tile lie in as many pages.
template <class Real, class Code, int kStep, int kMost, class Load, class Store>
HWY_INLINE void NestedRun(int count, const Load& load, const Store& store) {
  constexpr int I = Code::outputs, kMore = Code::inputs - kStep;
  RunColumns<Real, Code, kMost * kStep + kMore> run;
  run.Fill(count * kStep + kMore, load);
  for (int i = 0; i < I; ++i)
    for (int tile = 0; tile < count; ++tile) {
      VecOf<Real> y[I];
      run.Row(tile * kStep, i, y);
      store(tile, i, y);
    }
}

// Nested for a run of tiles that share nothing: X and Y go along the tiles. load(tile, r, x)
// gives what Nested's load does for all c, store(tile, j, y) takes its column j.
template <class Real, class Code, int kMost, class Load, class Store>
HWY_INLINE void NestedTiles(int count, const Load& load, const Store& store) {
  constexpr int I = Code::outputs, J = Code::inputs;
  alignas(64) Real half[kMost][J][I][kLanesOf<Real>];  // X A^T
  for (int r = 0; r < J; ++r)
    for (int tile = 0; tile < count; ++tile) {
      VecOf<Real> x[J], y[I];
      load(tile, r, x);
      Code::Apply(x, y);
      HWY_UNROLL(8)
      for (int i = 0; i < I; ++i) hn::Store(y[i], TagOf<Real>(), half[tile][r][i]);
    }
  for (int c = 0; c < I; ++c)
    for (int tile = 0; tile < count; ++tile) {
      VecOf<Real> x[J], y[I];
      HWY_UNROLL(8)
      for (int r = 0; r < J; ++r) x[r] = hn::Load(TagOf<Real>(), half[tile][r][c]);
      Code::Apply(x, y);
      store(tile, c, y);
    }
}

// The transforms of F(M, R): M x M outputs of an R x R filter.
template <int M, int R, ScaledSide kScaled>
struct Transforms {
  static constexpr auto exact = cook_toom<M, R>(default_points<M + R - 1>(), kScaled);
  static constexpr auto at = without_butterflies<Paired::columns>(exact.at);
  static constexpr auto g = without_butterflies<Paired::rows>(exact.g);
  static constexpr auto bt = without_butterflies<Paired::rows>(exact.bt);
  using Input = Codelet<Paired::rows, bt>;
  using Filter = Codelet<Paired::rows, g>;
  using Output = Codelet<Paired::columns, at>;
};

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
