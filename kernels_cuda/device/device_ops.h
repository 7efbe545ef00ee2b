// The PTX-level operations that kernels may use, each with its meaning on the CPU. Inline PTX lives
// here and nowhere else. Fragments of matrices are laid out as the PTX ISA says ("Matrix fragments
// for mma.m16n8k8", "... mma.m16n8k16", "ldmatrix").
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

// The operation's place in the kernel's source: a last parameter that only the CPU has.
#ifdef __CUDACC__
#define CONVLAB_SITE
#else
#define CONVLAB_SITE , on_cpu::Site at = on_cpu::Site::here()
#endif

namespace convlab::cuda {

// --- element types, and the types that accumulate them

using f16 = __half;
using bf16 = __nv_bfloat16;

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ double widen(double v) { return v; }
__device__ __forceinline__ float widen(f16 v) { return __half2float(v); }
__device__ __forceinline__ float widen(bf16 v) { return __bfloat162float(v); }

template <class T>
__device__ __forceinline__ T narrow(Accumulator<T> v) {
  if constexpr (std::is_same_v<T, f16>)
    return __float2half_rn(v);
  else if constexpr (std::is_same_v<T, bf16>)
    return __float2bfloat16_rn(v);
  else
    return v;
}

// max(v, 0), but NaN stays NaN: fmax would turn it into 0.
template <class T>
__device__ __forceinline__ T relu(T v) {
  return v < T(0) ? T(0) : v;
}
// The gradient through the ReLU that gave y; all of dy if y is NaN.
template <class T>
__device__ __forceinline__ T relu_gradient(T y, T dy) {
  return y <= T(0) ? T(0) : dy;
}

// Two 16-bit elements in a register, the first in its low half.
template <class T>
__device__ __forceinline__ unsigned pack(T low, T high) {
  static_assert(std::is_same_v<T, f16> || std::is_same_v<T, bf16>);
  if constexpr (std::is_same_v<T, f16>)
    return __half_as_ushort(low) | unsigned(__half_as_ushort(high)) << 16;
  else
    return __bfloat16_as_ushort(low) | unsigned(__bfloat16_as_ushort(high)) << 16;
}
template <class T>
__device__ __forceinline__ T low_half(unsigned pair) {
  if constexpr (std::is_same_v<T, f16>)
    return __ushort_as_half(static_cast<unsigned short>(pair));
  else
    return __ushort_as_bfloat16(static_cast<unsigned short>(pair));
}
template <class T>
__device__ __forceinline__ T high_half(unsigned pair) {
  return low_half<T>(pair >> 16);
}

// --- memory accesses that the CPU checks and counts
//
// Plain vector loads and stores on the card: load_shared<float4>(&tile[k][m]) reads four floats.
// On the CPU an address that is misaligned for V, or not in shared memory, ends the program. For
// tests the CPU groups the accesses of each warp and source line, and counts bank conflicts and
// uncoalesced sectors. Main loops use these. (Groups are right if the lanes of a warp run a line
// equally often between two barriers.)

template <class V, class T>
__device__ __forceinline__ V load_shared(const T* p CONVLAB_SITE) {
#ifndef __CUDACC__
  on_cpu::access(on_cpu::AccessKind::shared_load, p, sizeof(V), at);
#endif
  return *reinterpret_cast<const V*>(p);
}
template <class T, class V>
__device__ __forceinline__ void store_shared(T* p, V v CONVLAB_SITE) {
#ifndef __CUDACC__
  on_cpu::access(on_cpu::AccessKind::shared_store, p, sizeof(V), at);
#endif
  *reinterpret_cast<V*>(p) = v;
}
// Through the read-only path: nothing may write there while the kernel runs.
template <class V, class T>
__device__ __forceinline__ V load_global(const T* p CONVLAB_SITE) {
#ifdef __CUDACC__
  return __ldg(reinterpret_cast<const V*>(p));
#else
  on_cpu::access(on_cpu::AccessKind::global_load, p, sizeof(V), at);
  return *reinterpret_cast<const V*>(p);
#endif
}
// Bypasses L1: from L2 or memory.
template <class V, class T>
__device__ __forceinline__ V load_past_l1(const T* p CONVLAB_SITE) {
#ifdef __CUDACC__
  return __ldcg(reinterpret_cast<const V*>(p));
#else
  on_cpu::access(on_cpu::AccessKind::global_load, p, sizeof(V), at);
  return *reinterpret_cast<const V*>(p);
#endif
}
template <class T, class V>
__device__ __forceinline__ void store_global(T* p, V v CONVLAB_SITE) {
#ifndef __CUDACC__
  on_cpu::access(on_cpu::AccessKind::global_store, p, sizeof(V), at);
#endif
  *reinterpret_cast<V*>(p) = v;
}

// --- warps

__device__ __forceinline__ int lane_id() {
#ifdef __CUDACC__
  int lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
#else
  return int(on_cpu::lane());
#endif
}

// --- cp.async: copies from global to shared memory that run beside the kernel

// Bytes is 4, 8 or 16; bytes from `valid` on are filled with zeros. With valid = 0 nothing is read,
// but the source must still be an aligned address. 16 bytes bypass L1.
template <int Bytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global,
                                         int valid = Bytes CONVLAB_SITE) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
#ifdef __CUDACC__
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(Bytes),
                 "r"(valid)
                 : "memory");
#else
  on_cpu::begin_copy(shared, global, Bytes, valid, at);
#endif
}

// Closes the group of copies that this thread issued since the last commit.
__device__ __forceinline__ void cp_async_commit() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  on_cpu::commit_copies();
#endif
}

// Waits until at most the Pending newest groups of this thread are in flight. Other threads see the
// data after the next barrier.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#else
  on_cpu::finish_copies(Pending);
#endif
}

// --- tensor cores

// Rounds to nearest, ties away from zero.
__device__ __forceinline__ unsigned to_tf32(float v) {
#ifdef __CUDACC__
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
  return r;
#else
  return on_cpu::round_to_tf32(v);
#endif
}

// v = big + small up to 2^-22 of v: a product of two such sums without small * small is as accurate
// as one in f32 ("3xTF32").
__device__ __forceinline__ void split_tf32(float v, unsigned& big, unsigned& small) {
  big = to_tf32(v);
  small = to_tf32(v - __uint_as_float(big));
}

// Count (1, 2, 4) matrices of 8 rows of 16 bytes. Lane 8i + j passes the address of row j of matrix
// i, and lane l receives bytes 4 (l % 4) to 4 (l % 4) + 3 of row l / 4 of matrix i in r[i]. All
// lanes pass an address in shared memory, 16-byte aligned.
template <int Count>
__device__ __forceinline__ void ldmatrix(unsigned* r, const void* row CONVLAB_SITE) {
  static_assert(Count == 1 || Count == 2 || Count == 4);
#ifdef __CUDACC__
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (Count == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(from)
                 : "memory");
  else if constexpr (Count == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
#else
  on_cpu::ldmatrix<Count, false>(r, row, at);
#endif
}

// The same for matrices of 16-bit elements, transposed: lane l receives elements 2 (l % 4) and
// 2 (l % 4) + 1 of column l / 4.
template <int Count>
__device__ __forceinline__ void ldmatrix_trans(unsigned* r, const void* row CONVLAB_SITE) {
  static_assert(Count == 1 || Count == 2 || Count == 4);
#ifdef __CUDACC__
  const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (Count == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(from)
                 : "memory");
  else if constexpr (Count == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
#else
  on_cpu::ldmatrix<Count, true>(r, row, at);
#endif
}

// d (16 x 8) = a (16 x 8, row-major) b (8 x 8, column-major) + c; d may be c. With g = lane / 4 and
// t = lane % 4:
//   a[i]: row g + 8 (i % 2), column t + 4 (i / 2);  b[i]: row t + 4 i, column g;
//   c[i]: row g + 8 (i / 2), column 2 t + i % 2.
__device__ __forceinline__ void mma_m16n8k8_tf32(float* d, const unsigned* a, const unsigned* b,
                                                 const float* c CONVLAB_SITE) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
#else
  on_cpu::mma_m16n8<1>(d, a, b, c, at, [](unsigned v, int) {
    return __uint_as_float(v & 0xffffe000u);  // the bits that the tensor core reads
  });
#endif
}

// d (16 x 8) = a (16 x 16, row-major) b (16 x 8, column-major) + c for T = f16 or bf16, summed in
// f32; d may be c. Each register of a and b holds two elements e = 0, 1 that follow each other in
// k:
//   a[i]: row g + 8 (i % 2), column 2 t + e + 8 (i / 2);  b[i]: row 2 t + e + 8 i, column g;
//   c[i]: row g + 8 (i / 2), column 2 t + i % 2.
// So ldmatrix<4> gives a from rows of k, ldmatrix<2> b from rows of k (b stored as n x k), and
// ldmatrix_trans<2> b from rows of n (b stored as k x n).
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float* d, const unsigned* a, const unsigned* b,
                                             const float* c CONVLAB_SITE) {
  static_assert(std::is_same_v<T, f16> || std::is_same_v<T, bf16>);
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, f16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
#else
  on_cpu::mma_m16n8<2>(d, a, b, c, at,
                       [](unsigned v, int e) { return widen(low_half<T>(v >> 16 * e)); });
#endif
}

}  // namespace convlab::cuda
