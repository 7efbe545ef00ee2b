// Winograd's transforms as straight-line code, made at compile time from the Cook-Toom matrices.
//
// Points come in pairs +a, -a, so two rows of B^T (or of G) are e + o and e - o, where e has only
// even and o only odd columns; and two columns of A^T multiply s = x1 + x2 in even and
// d = x1 - x2 in odd rows. Both are a butterfly on pairs (1,2), (3,4), ... around a matrix that is
// half zero. The butterfly is an exact change of basis for any matrix, so no symmetry has to be
// detected: it shows in the zeros, for which no code is made. F(4,3) takes 12 operations for a
// column of B^T d and 12 for one of A^T m.
//
// One vector holds some channels of one pixel; all of them undergo the same transform.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_WINOGRAD_TRANSFORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_WINOGRAD_TRANSFORMS_INL_H_
#undef CONVLAB_KERNELS_CPU_WINOGRAD_TRANSFORMS_INL_H_
#else
#define CONVLAB_KERNELS_CPU_WINOGRAD_TRANSFORMS_INL_H_
#endif

#include <hwy/highway.h>

#include "conv/math/cook_toom.h"
#include "kernels_cpu/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

template <int I, int J>
struct Matrix {
  static constexpr int rows = I, cols = J;
  Rational a[I][J];
};

template <int I, int J>
constexpr Matrix<I, J> MakeMatrix(const Rational (&a)[I][J]) {
  Matrix<I, J> m;
  for (int i = 0; i < I; ++i)
    for (int j = 0; j < J; ++j) m.a[i][j] = a[i][j];
  return m;
}

// y = A x. Each kind gives the matrix between the butterflies.
struct PairedRows {
  template <int I, int J>
  static constexpr Matrix<I, J> Fold(Matrix<I, J> m) {
    for (int i = 1; i + 1 < I - 1; i += 2)
      for (int j = 0; j < J; ++j) {
        const Rational p = m.a[i][j], q = m.a[i + 1][j];
        m.a[i][j] = (p + q) / 2;
        m.a[i + 1][j] = (p - q) / 2;
      }
    return m;
  }
};
struct PairedColumns {
  template <int I, int J>
  static constexpr Matrix<I, J> Fold(Matrix<I, J> m) {
    for (int j = 1; j + 1 < J - 1; j += 2)
      for (int i = 0; i < I; ++i) {
        const Rational p = m.a[i][j], q = m.a[i][j + 1];
        m.a[i][j] = (p + q) / 2;
        m.a[i][j + 1] = (p - q) / 2;
      }
    return m;
  }
};

// The last non-zero of a row.
template <int I, int J>
constexpr Rational Leading(const Matrix<I, J>& m, int row) {
  for (int j = J - 1; j >= 0; --j)
    if (m.a[row][j].num != 0) return m.a[row][j];
  return 1;
}
// Where a row's sum starts: at a coefficient of one if there is any, since that costs nothing.
template <int I, int J>
constexpr int FirstTerm(const Matrix<I, J>& m, int row, Rational scale) {
  int first = -1;
  for (int j = 0; j < J; ++j) {
    if (m.a[row][j] == scale) return j;
    if (first < 0 && m.a[row][j].num != 0) first = j;
  }
  return first;
}

// sum + the terms of row kRow, divided by kScale, from column j on, without the one at kSkip.
template <const auto& kMatrix, int kRow, Rational kScale, int kSkip, int j = 0>
HWY_INLINE Vec AddTerms(const Vec* x, Vec sum) {
  if constexpr (j < kMatrix.cols) {
    constexpr Rational a = kMatrix.a[kRow][j] / kScale;
    if constexpr (j == kSkip || a.num == 0) {
      // nothing to add
    } else if constexpr (a == Rational(1)) {
      sum = hn::Add(sum, x[j]);
    } else if constexpr (a == Rational(-1)) {
      sum = hn::Sub(sum, x[j]);
    } else {
      sum = hn::MulAdd(hn::Set(F32(), static_cast<float>(a.value())), x[j], sum);
    }
    return AddTerms<kMatrix, kRow, kScale, kSkip, j + 1>(x, sum);
  } else {
    return sum;
  }
}

// Row kRow of the matrix, divided by kScale, times x.
template <const auto& kMatrix, int kRow, Rational kScale = Rational(1)>
HWY_INLINE Vec RowTimes(const Vec* x) {
  constexpr int first = FirstTerm(kMatrix, kRow, kScale);
  static_assert(first >= 0, "a row of zeros");
  constexpr Rational a = kMatrix.a[kRow][first] / kScale;
  Vec sum = x[first];
  if constexpr (!(a == Rational(1))) sum = hn::Mul(hn::Set(F32(), float(a.value())), sum);
  return AddTerms<kMatrix, kRow, kScale, first>(x, sum);
}

// Row kRow and those after it of y = A x; x has been through the butterfly if columns are paired.
template <class Pairs, const auto& kFolded, int kRow = 0>
HWY_INLINE void RowsTimes(const Vec* x, Vec* y) {
  constexpr int rows = kFolded.rows;
  if constexpr (kRow < rows) {
    constexpr bool paired =
        std::is_same_v<Pairs, PairedRows> && kRow % 2 == 1 && kRow + 1 < rows - 1;
    if constexpr (paired) {
      constexpr Rational scale = Leading(kFolded, kRow + 1);
      const Vec even = RowTimes<kFolded, kRow>(x);
      const Vec odd = RowTimes<kFolded, kRow + 1, scale>(x);
      if constexpr (scale == Rational(1)) {
        y[kRow] = hn::Add(even, odd);
        y[kRow + 1] = hn::Sub(even, odd);
      } else {
        const Vec factor = hn::Set(F32(), static_cast<float>(scale.value()));
        y[kRow] = hn::MulAdd(factor, odd, even);
        y[kRow + 1] = hn::NegMulAdd(factor, odd, even);
      }
    } else {
      y[kRow] = RowTimes<kFolded, kRow>(x);
    }
    RowsTimes<Pairs, kFolded, kRow + (paired ? 2 : 1)>(x, y);
  }
}

// One matrix, ready to be applied.
template <class Pairs, const auto& kMatrix>
struct Codelet {
  static constexpr int outputs = kMatrix.rows, inputs = kMatrix.cols;
  static constexpr auto folded = Pairs::Fold(kMatrix);
  // Of one application, roughly: a multiply-add for each coefficient.
  static constexpr int flops = [] {
    int count = 0;
    for (int i = 0; i < outputs; ++i)
      for (int j = 0; j < inputs; ++j) count += folded.a[i][j].num != 0 ? 2 : 0;
    return count;
  }();

  static HWY_INLINE void Apply(Vec* x, Vec* y) {
    if constexpr (std::is_same_v<Pairs, PairedColumns>) {
      HWY_UNROLL(4)
      for (int j = 1; j + 1 < inputs - 1; j += 2) {
        const Vec sum = hn::Add(x[j], x[j + 1]);
        x[j + 1] = hn::Sub(x[j], x[j + 1]);
        x[j] = sum;
      }
    }
    RowsTimes<Pairs, folded>(x, y);
  }
};

// Y = A X A^T: load(i, j) gives X, store(i, j, v) takes Y, rows i within each column j.
template <class Code, class Load, class Store>
HWY_INLINE void Nested(const Load& load, const Store& store) {
  constexpr int I = Code::outputs, J = Code::inputs;
  alignas(64) float half[J][I][kLanes];  // X A^T
  for (int r = 0; r < J; ++r) {
    Vec x[J], y[I];
    HWY_UNROLL(8)
    for (int c = 0; c < J; ++c) x[c] = load(r, c);
    Code::Apply(x, y);
    HWY_UNROLL(8)
    for (int i = 0; i < I; ++i) hn::Store(y[i], F32(), half[r][i]);
  }
  for (int c = 0; c < I; ++c) {
    Vec x[J], y[I];
    HWY_UNROLL(8)
    for (int r = 0; r < J; ++r) x[r] = hn::Load(F32(), half[r][c]);
    Code::Apply(x, y);
    HWY_UNROLL(8)
    for (int i = 0; i < I; ++i) store(i, c, y[i]);
  }
}

// The same for a run of `count` tiles, at most kMost, whose X begin kStep columns apart. A column
// that two tiles share is multiplied by A once, and memory is read along its lines. load(c, x)
// gives column c of the run, store(tile, i, y) takes row i of Y. It too goes along the tiles, since
// the T^2 lines of a single tile lie in as many pages.
template <class Code, int kStep, int kMost, class Load, class Store>
HWY_INLINE void NestedRun(int count, const Load& load, const Store& store) {
  constexpr int I = Code::outputs, J = Code::inputs;
  alignas(64) float half[kMost * kStep + J - kStep][I][kLanes];  // A X
  for (int c = 0; c < count * kStep + J - kStep; ++c) {
    Vec x[J], y[I];
    load(c, x);
    Code::Apply(x, y);
    HWY_UNROLL(8)
    for (int i = 0; i < I; ++i) hn::Store(y[i], F32(), half[c][i]);
  }
  for (int i = 0; i < I; ++i)
    for (int tile = 0; tile < count; ++tile) {
      Vec x[J], y[I];
      HWY_UNROLL(8)
      for (int c = 0; c < J; ++c) x[c] = hn::Load(F32(), half[tile * kStep + c][i]);
      Code::Apply(x, y);
      store(tile, i, y);
    }
}

// Nested for a run of tiles that share nothing: X and Y go along the tiles. load(tile, r, x)
// gives what Nested's load does for all c, store(tile, j, y) takes its column j.
template <class Code, int kMost, class Load, class Store>
HWY_INLINE void NestedTiles(int count, const Load& load, const Store& store) {
  constexpr int I = Code::outputs, J = Code::inputs;
  alignas(64) float half[kMost][J][I][kLanes];  // X A^T
  for (int r = 0; r < J; ++r)
    for (int tile = 0; tile < count; ++tile) {
      Vec x[J], y[I];
      load(tile, r, x);
      Code::Apply(x, y);
      HWY_UNROLL(8)
      for (int i = 0; i < I; ++i) hn::Store(y[i], F32(), half[tile][r][i]);
    }
  for (int c = 0; c < I; ++c)
    for (int tile = 0; tile < count; ++tile) {
      Vec x[J], y[I];
      HWY_UNROLL(8)
      for (int r = 0; r < J; ++r) x[r] = hn::Load(F32(), half[tile][r][c]);
      Code::Apply(x, y);
      store(tile, c, y);
    }
}

// The transforms of F(M, R): M x M outputs of an R x R filter.
template <int M, int R, ScaledSide kScaled>
struct Transforms {
  static constexpr auto exact = cook_toom<M, R>(default_points<M + R - 1>(), kScaled);
  static constexpr auto at = MakeMatrix(exact.at);
  static constexpr auto g = MakeMatrix(exact.g);
  static constexpr auto bt = MakeMatrix(exact.bt);
  using Input = Codelet<PairedRows, bt>;
  using Filter = Codelet<PairedRows, g>;
  using Output = Codelet<PairedColumns, at>;
};

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
