// Products in register tiles. A recurrent product has the batch as its rows, often a few, and then
// its tiles are too few to occupy a card; so a small tile splits the depth among the warps of a
// block, which add their sums up in shared memory, in a fixed order.
//
// A group of threads computes a tile from every `groups`-th slice of the depth. cp.async copies
// slices into a ring of three stages, one barrier a slice. Both operands are stored depth-major.
#include <algorithm>

#include "kernels_cuda/kernel.h"
#include "kernels_cuda/layers/layer_work.h"
#include "kernels_cuda/recurrent/product.h"

namespace convlab::cuda {
namespace {

template <int rows_, int columns_, int groups_>
struct ProductTile {
  static constexpr int rows = rows_, columns = columns_, groups = groups_;
  static constexpr int depth = 8, stages = 3, own = 4;  // own x own elements of a thread
  static constexpr int across = columns / own;          // threads of a group along the columns
  static constexpr int group_threads = rows / own * across, threads = groups * group_threads;
  static constexpr int row_pitch = rows + 4, column_pitch = columns + 4;
  static constexpr int stage = depth * (row_pitch + column_pitch);
  // Of shared memory: the slices, and at the end the sums.
  static constexpr int elements = groups * std::max(stages * stage, rows* columns);
};
using LargeTile = ProductTile<64, 64, 1>;
using SmallTile = ProductTile<16, 32, 8>;

// A matrix as rows (or columns) of the product by its depth.
template <class T>
struct ProductOperand {
  const T* data;
  std::int64_t along, deep;  // from one element to the next
  int count;                 // rows or columns
};

template <class T>
struct ProductOutput {
  T* data;
  std::int64_t row;
  bool accumulate;
};

// Queues copies of a slice; zeros beyond the matrix. Neighbouring threads copy what is contiguous.
template <int tile, int slice, int pitch, int threads, class T>
__device__ __forceinline__ void copy_slice(const ProductOperand<T>& m, int first, int k0, int depth,
                                           int thread, T* to) {
  const bool deep_first = m.deep == 1;
  for (int i = thread; i < tile * slice; i += threads) {
    const int k = deep_first ? i % slice : i / tile, at = deep_first ? i / slice : i % tile;
    const bool inside = k0 + k < depth && first + at < m.count;
    cp_async<int(sizeof(T))>(to + k * pitch + at,
                             inside ? m.data + (first + at) * m.along + (k0 + k) * m.deep : m.data,
                             inside ? int(sizeof(T)) : 0);
  }
}

template <class Tile, class T>
__global__ void __launch_bounds__(Tile::threads)
    multiply_matrices(ProductOperand<T> a, ProductOperand<T> b, ProductOutput<T> c, int depth) {
  constexpr int own = Tile::own;
  SHARED_DYN(T, shared);
  const int first_row = int(blockIdx.y) * Tile::rows,
            first_column = int(blockIdx.x) * Tile::columns;
  const int group = int(threadIdx.x) / Tile::group_threads;
  const int thread = int(threadIdx.x) % Tile::group_threads;
  const int row = thread / Tile::across * own, column = thread % Tile::across * own;
  T* const ring = shared + group * Tile::stages * Tile::stage;
  const int rounds = (depth + Tile::depth * Tile::groups - 1) / (Tile::depth * Tile::groups);

  const auto fetch = [&](int round) {
    const int k0 = (round * Tile::groups + group) * Tile::depth;
    if (round < rounds) {
      T* const to = ring + round % Tile::stages * Tile::stage;
      copy_slice<Tile::rows, Tile::depth, Tile::row_pitch, Tile::group_threads>(a, first_row, k0,
                                                                                depth, thread, to);
      copy_slice<Tile::columns, Tile::depth, Tile::column_pitch, Tile::group_threads>(
          b, first_column, k0, depth, thread, to + Tile::depth * Tile::row_pitch);
    }
    cp_async_commit();
  };
  T sums[own][own]{};
  for (int i = 0; i < Tile::stages - 1; ++i) fetch(i);
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    cp_async_wait<Tile::stages - 2>();
    __syncthreads();  // this slice has arrived, and all threads are done with the last one
    fetch(round + Tile::stages - 1);
    const T* const of_a = ring + round % Tile::stages * Tile::stage;
    const T* const of_b = of_a + Tile::depth * Tile::row_pitch;
#pragma unroll
    for (int k = 0; k < Tile::depth; ++k) {
      T x[own], y[own];
#pragma unroll
      for (int i = 0; i < own; i += whole_pack<T>) {
        const auto some = load_shared<Pack<T, whole_pack<T>>>(of_a + k * Tile::row_pitch + row + i);
        const auto other =
            load_shared<Pack<T, whole_pack<T>>>(of_b + k * Tile::column_pitch + column + i);
#pragma unroll
        for (int j = 0; j < whole_pack<T>; ++j) x[i + j] = some.v[j], y[i + j] = other.v[j];
      }
#pragma unroll
      for (int i = 0; i < own; ++i)
#pragma unroll
        for (int j = 0; j < own; ++j) sums[i][j] += x[i] * y[j];
    }
  }

  // Through shared memory: the groups' sums are added, and lanes write along the columns.
  cp_async_wait<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < own; ++i)
#pragma unroll
    for (int j = 0; j < own; ++j)
      shared[(group * Tile::rows + row + i) * Tile::columns + column + j] = sums[i][j];
  __syncthreads();
  for (int i = int(threadIdx.x); i < Tile::rows * Tile::columns; i += Tile::threads) {
    const int r = first_row + i / Tile::columns, k = first_column + i % Tile::columns;
    if (r >= a.count || k >= b.count) continue;
    T sum = shared[i];
#pragma unroll
    for (int g = 1; g < Tile::groups; ++g) sum += shared[g * Tile::rows * Tile::columns + i];
    T* const to = c.data + r * c.row + k;
    *to = c.accumulate ? *to + sum : sum;
  }
}

// Rows of C beyond what a grid has are another launch.
template <class Tile, class T>
void launch_product(const Gemm& g, const T* a, const T* b, bool accumulate, T* c, Stream& stream) {
  constexpr std::int64_t most_rows = std::int64_t(65535) * Tile::rows;
  for (std::int64_t first = 0; first < g.m; first += most_rows) {
    const std::int64_t rows = std::min(most_rows, g.m - first);
    const ProductOperand<T> of_a{a + first * (g.transpose_a ? 1 : g.lda), g.transpose_a ? 1 : g.lda,
                                 g.transpose_a ? g.lda : 1, int(rows)};
    const ProductOperand<T> of_b{b, g.transpose_b ? g.ldb : 1, g.transpose_b ? 1 : g.ldb, int(g.n)};
    launch(multiply_matrices<Tile, T>,
           dim3(unsigned(ceil_div(g.n, Tile::columns)), unsigned(ceil_div(rows, Tile::rows))),
           Tile::threads, Tile::elements * sizeof(T), stream, of_a, of_b,
           ProductOutput<T>{c + first * g.ldc, g.ldc, accumulate}, int(g.k));
  }
}

}  // namespace

void own_gemm(const Gemm& g, const void* a, const void* b, bool accumulate, void* c,
              Stream& stream) {
  with_type(g.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto tile) {
      launch_product<decltype(tile)>(g, static_cast<const T*>(a), static_cast<const T*>(b),
                                     accumulate, static_cast<T*>(c), stream);
    };
    // The large tile reads operands less often, where there are enough of them.
    if (g.m > 32 && ceil_div(g.m, LargeTile::rows) * ceil_div(g.n, LargeTile::columns) >= 64)
      run(LargeTile());
    else
      run(SmallTile());
  });
}

}  // namespace convlab::cuda
