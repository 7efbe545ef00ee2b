// Products of matrices, for fully connected layers.
//
// With a small batch each weight takes part in a few multiply-adds only, and memory is the bound.
// The kernels here read the large matrix once, in place:
//   forward          y = x w^T    few rows of dot products with the rows of w
//   backward_data    dx = dy w    few sums of the rows of w
//   backward_filter  dw = dy^T x  many sums of few rows of x
// With a large batch packing the operands pays, and OpenBLAS does that.
#include <cblas.h>
#include <fmt/format.h>

#include <limits>

#include "conv/error.h"
#include "kernels_cpu/device/team.h"
#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/gemm/gemm.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Tile sizes for 32 registers, or 16.
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3;
constexpr int kDotRowsOfA = kManyRegisters ? 4 : 2;
constexpr int kSumRows = 4;
constexpr int kSumVectors = kManyRegisters ? 4 : 2;

// ---- Dot products ----

// sum[i][j] += the products of kRows rows of A and dot_rows rows of B, lane by lane.
template <int kRows, class T>
HWY_INLINE void DotTile(const T* a, std::int64_t pitch, const T* const* b, std::int64_t count,
                        T (*sums)[dot_rows][hn::MaxLanes(VectorTag<T>())]) {
  const VectorTag<T> d;
  VectorOf<T> sum[kRows][dot_rows];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < dot_rows; ++j) sum[i][j] = hn::LoadU(d, sums[i][j]);
  ForEachVector<T>(count, [&](auto at, std::int64_t p) HWY_ATTR {
    VectorOf<T> bv[dot_rows];
    HWY_UNROLL(4)
    for (int j = 0; j < dot_rows; ++j) bv[j] = at.Load(b[j] + p);
    HWY_UNROLL(4)
    for (int i = 0; i < kRows; ++i) {
      const auto av = at.Load(a + i * pitch + p);
      HWY_UNROLL(4)
      for (int j = 0; j < dot_rows; ++j) sum[i][j] = hn::MulAdd(av, bv[j], sum[i][j]);
    }
  });
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < dot_rows; ++j) hn::StoreU(sum[i][j], d, sums[i][j]);
}

// Columns [column, column + dot_columns) of C. A run of A's rows stays in L2 while the rows of B
// stream by, a few at a time.
template <class T>
void Dots(const GemmJob& job, std::int64_t column) {
  const GemmDesc& g = job.gemm;
  constexpr std::size_t kLanesOfT = hn::MaxLanes(VectorTag<T>());
  const std::int64_t columns = std::min<std::int64_t>(dot_columns, g.n - column);
  const std::int64_t run = round_up(dot_bytes / (g.m * std::int64_t{sizeof(T)}), 64);
  HWY_ALIGN T sums[dot_columns / dot_rows][most_dot_rows][dot_rows][kLanesOfT] = {};
  for (std::int64_t p = 0; p < g.k; p += run)
    for (std::int64_t group = 0; group * dot_rows < columns; ++group) {
      const T* b[dot_rows];  // past the end the last row is repeated; its products are not used
      for (std::int64_t j = 0; j < dot_rows; ++j)
        b[j] = static_cast<const T*>(job.b) +
               std::min(column + group * dot_rows + j, g.n - 1) * g.k + p;
      ForEachRowTile<kDotRowsOfA>(g.m, [&](auto rows, std::int64_t first) HWY_ATTR {
        DotTile<rows.value>(static_cast<const T*>(job.a) + first * g.k + p, g.k, b,
                            std::min(run, g.k - p), sums[group] + first);
      });
    }
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const T* const lanes = sums[j / dot_rows][i][j % dot_rows];
      const T dot = SumLanes<T>(hn::LoadU(VectorTag<T>(), lanes));
      T& c = static_cast<T*>(job.c)[i * g.n + column + j];
      c = g.accumulate ? c + dot : dot;
    }
}

// ---- Sums of rows ----

// The matrices from the tile's first row, column and depth on.
template <class T>
struct SumTile {
  const T* a;  // element (i, p) at i * a_row + p * a_depth
  std::int64_t a_row, a_depth;
  const T* b;
  T* c;
  std::int64_t n, depth;
  bool accumulate, non_temporal;

  template <int kRows, int kVectors, class At>
  HWY_INLINE void Run(At at) const {
    const VectorTag<T> d;
    constexpr auto kLanesOfT = static_cast<std::int64_t>(hn::MaxLanes(d));
    VectorOf<T> sum[kRows][kVectors];
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = accumulate ? at.Load(c + i * n + j * kLanesOfT) : hn::Zero(d);
    for (std::int64_t p = 0; p < depth; ++p) {
      VectorOf<T> bv[kVectors];
      HWY_UNROLL(4)
      for (int j = 0; j < kVectors; ++j) bv[j] = at.Load(b + p * n + j * kLanesOfT);
      HWY_UNROLL(4)
      for (int i = 0; i < kRows; ++i) {
        const auto av = hn::Set(d, a[i * a_row + p * a_depth]);
        HWY_UNROLL(4)
        for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(av, bv[j], sum[i][j]);
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVectors; ++j) {
        T* const to = c + i * n + j * kLanesOfT;
        if (non_temporal)
          hn::Stream(sum[i][j], d, to);
        else
          at.Store(sum[i][j], to);
      }
  }
};

template <class T>
void Sums(const GemmJob& job, const SumBlock& block) {
  const GemmDesc& g = job.gemm;
  constexpr auto kLanesOfT = static_cast<std::int64_t>(hn::MaxLanes(VectorTag<T>()));
  const std::int64_t a_row = g.transpose_a ? 1 : g.k, a_depth = g.transpose_a ? g.m : 1;
  const auto tile_at = [&](std::int64_t row, std::int64_t column) {
    return SumTile<T>{static_cast<const T*>(job.a) + row * a_row + block.depth * a_depth, a_row,
                      a_depth, static_cast<const T*>(job.b) + block.depth * g.n + column,
                      static_cast<T*>(job.c) + row * g.n + column, g.n, block.depths,
                      // Later steps of depth add to the first one's result.
                      g.accumulate || block.depth > 0, job.non_temporal};
  };
  ForEachRowTile<kSumRows>(block.rows, [&](auto rows, std::int64_t first) HWY_ATTR {
    const std::int64_t row = block.row + first, end = block.column + block.columns;
    std::int64_t column = block.column;
    for (; column + kSumVectors * kLanesOfT <= end; column += kSumVectors * kLanesOfT)
      tile_at(row, column).template Run<rows.value, kSumVectors>(WholeVector());
    ForEachVector<T>(end - column, [&](auto at, std::int64_t i) HWY_ATTR {
      tile_at(row, column + i).template Run<rows.value, 1>(at);
    });
  });
  if (job.non_temporal) hwy::FlushStream();
}

void DotProducts(const GemmJob& job, std::int64_t column) {
  with_type(job.dtype, [&](auto zero) { Dots<decltype(zero)>(job, column); });
}
void RowSums(const GemmJob& job, const SumBlock& block) {
  with_type(job.dtype, [&](auto zero) { Sums<decltype(zero)>(job, block); });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(DotProducts);
HWY_EXPORT(RowSums);

// Multiply-adds not worth waking the other threads for.
bool is_small(const GemmDesc& g) { return g.m * g.n * g.k <= 8 * serial_elements; }

void dot_products(const GemmJob& job, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (!is_small(job.gemm))
  for (std::int64_t column = 0; column < job.gemm.n; column += dot_columns)
    HWY_DYNAMIC_DISPATCH(DotProducts)(job, column);
}

// Few rows of C: a wide panel of them stays in L2 while the rows of B stream by, as many at a time
// as the hardware prefetcher follows.
void sum_into_few_rows(const GemmJob& job, int threads) {
  constexpr std::int64_t widest = 1 << 14, depths = 8;
  const GemmDesc& g = job.gemm;
  const std::int64_t panels = round_up(ceil_div(g.n, widest), threads);
  const std::int64_t panel = round_up(ceil_div(g.n, panels), 64 / size_of(job.dtype));
#pragma omp parallel for num_threads(threads) schedule(static) if (!is_small(g))
  for (std::int64_t column = 0; column < g.n; column += panel)
    for (std::int64_t depth = 0; depth < g.k; depth += depths) HWY_DYNAMIC_DISPATCH(RowSums)
  (job, {0, g.m, column, std::min(panel, g.n - column), depth, std::min(depths, g.k - depth)});
}

// Few rows of B: a panel of them stays in the caches while the rows of C stream by.
void sum_few_rows(const GemmJob& job, int threads) {
  constexpr std::int64_t panel_bytes = 1 << 16, rows = 64;
  const GemmDesc& g = job.gemm;
  const std::int64_t size = size_of(job.dtype);
  const std::int64_t panel = round_up(panel_bytes / (g.k * size), 64 / size);
#pragma omp parallel for collapse(2) num_threads(threads) schedule(static) if (!is_small(g))
  for (std::int64_t column = 0; column < g.n; column += panel)
    for (std::int64_t row = 0; row < g.m; row += rows) HWY_DYNAMIC_DISPATCH(RowSums)
  (job, {row, std::min(rows, g.m - row), column, std::min(panel, g.n - column), 0, g.k});
}

// Whether C takes non-temporal stores: it does not fit in the caches, and its rows are whole lines.
// They save the reads for ownership, a third of the time.
bool stores_non_temporally(const GemmJob& job) {
  constexpr std::int64_t line = 64, large = 32 << 20;
  const std::int64_t row = job.gemm.n * size_of(job.dtype);
  return job.gemm.m * row > large && row % line == 0 &&
         reinterpret_cast<std::uintptr_t>(job.c) % line == 0;
}

void openblas(const GemmJob& job, int threads) {
  const GemmDesc& g = job.gemm;
  if (std::max({g.m, g.n, g.k}) > std::numeric_limits<int>::max())
    throw InputError(fmt::format("gemm: sizes are {} x {} x {}: OpenBLAS takes 2147483647 at most",
                                 g.m, g.n, g.k));
  const ThreadCount scope(threads);
  const auto op = [](bool transpose) { return transpose ? CblasTrans : CblasNoTrans; };
  const auto call = [&]<class T>(auto gemm, T beta) {
    gemm(CblasRowMajor, op(g.transpose_a), op(g.transpose_b), int(g.m), int(g.n), int(g.k), T(1),
         static_cast<const T*>(job.a), int(g.transpose_a ? g.m : g.k), static_cast<const T*>(job.b),
         int(g.transpose_b ? g.k : g.n), beta, static_cast<T*>(job.c), int(g.n));
  };
  if (job.dtype == DType::f32)
    call(cblas_sgemm, float(g.accumulate));
  else
    call(cblas_dgemm, double(g.accumulate));
}

}  // namespace

void CpuLayerOps::gemm(DType dtype, const GemmDesc& desc, const void* a, const void* b, void* c,
                       Stream&) const {
  validate(dtype, "gemm");
  validate(desc);
  GemmJob job{dtype, desc, a, b, c, false};
  GemmDesc& g = job.gemm;
  if (g.m == 1) g.transpose_a = false;  // one row has the layout of one column
  // Up to these sizes packing does not pay.
  constexpr std::int64_t most_rows_of_c = 8, most_rows_of_b = 64;
  if (g.transpose_b && !g.transpose_a && g.m <= most_dot_rows) return dot_products(job, threads_);
  if (!g.transpose_b && g.m <= most_rows_of_c) return sum_into_few_rows(job, threads_);
  if (!g.transpose_b && g.k <= most_rows_of_b) {
    job.non_temporal = stores_non_temporally(job);
    return sum_few_rows(job, threads_);
  }
  openblas(job, threads_);
}

}  // namespace convlab::cpu
#endif
