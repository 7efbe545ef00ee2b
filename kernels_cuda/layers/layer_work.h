// Shared by the layer operations' files: the distribution of a tensor over threads, accesses of 16
// bytes, and reductions.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels_cuda/kernel.h"

namespace convlab::cuda {

// f(T()) for the C++ type of a DType that validate() has let through.
template <class F>
void with_type(DType dtype, F f) {
  if (dtype == DType::f32)
    f(float());
  else
    f(double());
}

inline void require_plain(const TensorDesc& desc, std::string_view operation) {
  if (is_blocked(desc.layout))
    throw InputError(
        fmt::format("{} on CUDA takes nchw and nhwc, not {}", operation, to_string(desc.layout)));
}

// Whether the channels of a pixel are contiguous.
constexpr bool channels_inner(const TensorDesc& desc) {
  return desc.layout == Layout::nhwc || desc.h * desc.w == 1;
}

// ---- V elements in one access, of at most 16 bytes ----
//
// Not through the read-only path: many operations work in place.

template <class T, int V>
struct alignas(V * sizeof(T)) Pack {
  T v[V];
};
template <class T>
inline constexpr int whole_pack = 16 / int(sizeof(T));

template <int V, class T>
__device__ __forceinline__ Pack<T, V> load(const T* p) {
  return *reinterpret_cast<const Pack<T, V>*>(p);
}
template <class T, int V>
__device__ __forceinline__ void store(const Pack<T, V>& pack, T* p) {
  *reinterpret_cast<Pack<T, V>*>(p) = pack;
}

// Whether all of these may be read in whole packs; a null pointer is not read.
template <class... P>
bool aligned(const P*... p) {
  return ((reinterpret_cast<std::uintptr_t>(p) % 16 == 0) && ...);
}

template <int V>
struct Width {
  static constexpr int value = V;
};

// f(Width<V>()) with V whole packs of T, or single elements.
template <class T, class F>
void with_width(bool packed, F f) {
  if (packed)
    f(Width<whole_pack<T>>());
  else
    f(Width<1>());
}

// ---- Flat: in any order of elements ----

constexpr int flat_block = 256;

// Enough threads to fill the card, or one for 4 packs.
inline dim3 flat_grid(std::int64_t count, int multiprocessors) {
  return dim3(unsigned(std::clamp<std::int64_t>(ceil_div(count, flat_block * 4), 1,
                                                std::int64_t(multiprocessors) * 32)));
}

// f(Width<V>(), index of the first of V elements) over [0, count). Loops over the grid are not
// unrolled, here and below: in place no load may pass a store, and the number of rounds would take
// a 64-bit division.
template <class T, class F>
__device__ __forceinline__ void for_each_flat(std::int64_t count, bool packed, F f) {
  constexpr int whole = whole_pack<T>;
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = std::int64_t(gridDim.x) * blockDim.x;
  const std::int64_t packs = packed ? count / whole : 0;
#pragma unroll 1
  for (std::int64_t i = thread; i < packs; i += threads) f(Width<whole>(), i * whole);
#pragma unroll 1
  for (std::int64_t i = packs * whole + thread; i < count; i += threads) f(Width<1>(), i);
}

// ---- Rows: `outer` x `middle` rows of `inner` items in memory order, without a division ----

struct Rows {
  std::int64_t outer, middle, inner;
};

struct RowLaunch {
  dim3 grid, block;
};

// The number of rows of `width` threads, a power of two, that share `work`: at most `most`, and at
// least a warp in all.
inline unsigned rows_of_threads(std::int64_t width, std::int64_t most, std::int64_t work) {
  const auto enough = std::int64_t(std::bit_ceil(std::uint64_t(work)));
  return unsigned(std::min(most, std::max(enough, 32 / width)));
}

// Blocks over a part of a row, of several rows unless rows are long; threads take more rows once
// the card is full.
inline RowLaunch row_launch(const Rows& rows, int multiprocessors) {
  constexpr std::int64_t max_y = 65535, threads = 256;
  const auto inner = std::uint64_t(rows.inner);
  const std::int64_t x = inner >= 1024 ? threads
                         : inner >= 32 ? 32
                                       : std::int64_t(std::bit_ceil(inner));
  const std::int64_t y = rows_of_threads(x, threads / x, rows.middle);
  const std::int64_t across = ceil_div(rows.inner, x), outer = std::min(rows.outer, max_y);
  const std::int64_t down =
      std::clamp<std::int64_t>(std::int64_t(multiprocessors) * 64 / (across * outer), 1,
                               std::min(ceil_div(rows.middle, y), max_y));
  return {dim3(unsigned(across), unsigned(down), unsigned(outer)), dim3(unsigned(x), unsigned(y))};
}

// f(outer, middle, inner)
template <class F>
__device__ __forceinline__ void for_each_in_rows(const Rows& rows, F f) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows.inner) return;
#pragma unroll 1
  for (std::int64_t o = blockIdx.z; o < rows.outer; o += gridDim.z)
#pragma unroll 1
    for (std::int64_t m = std::int64_t(blockIdx.y) * blockDim.y + threadIdx.y; m < rows.middle;
         m += std::int64_t(gridDim.y) * blockDim.y)
      f(o, m, i);
}

// ---- Reductions over a warp or a block, in a fixed order of threads ----

// Every lane gets the reduction by f of all lanes' v.
template <class T, class F>
__device__ __forceinline__ T warp_reduce(T v, F f) {
  for (int distance = 16; distance > 0; distance /= 2) v = f(v, __shfl_xor_sync(~0u, v, distance));
  return v;
}

// The same over a block, which is one row of threads.
template <class T, class F>
__device__ __forceinline__ T block_reduce(T v, F f) {
  SHARED(T, warps, [32]);
  v = warp_reduce(v, f);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
  __syncthreads();
  v = warps[0];
  for (unsigned i = 1; i < blockDim.x / 32; ++i) v = f(v, warps[i]);
  __syncthreads();
  return v;
}

template <class T>
__device__ __forceinline__ T warp_sum(T v) {
  return warp_reduce(v, [](T a, T b) { return a + b; });
}
template <class T>
__device__ __forceinline__ T block_sum(T v) {
  return block_reduce(v, [](T a, T b) { return a + b; });
}
// May lose a NaN.
template <class T>
__device__ __forceinline__ T block_max(T v) {
  return block_reduce(v, [](T a, T b) { return a > b ? a : b; });
}

}  // namespace convlab::cuda
