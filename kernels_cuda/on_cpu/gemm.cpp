// The stand-in for cuBLAS: both operands unpacked to rows of the accumulator's type, then plain
// loops over blocks that the compiler vectorises.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <vector>

#include "conv/error.h"
#include "kernels_cuda/on_cpu/device.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {
namespace {

// The accumulator's type: f32 for the 16-bit types, else the type itself.
template <class T>
T widened(T v) {
  return v;
}
float widened(__half v) { return __half2float(v); }
float widened(__nv_bfloat16 v) { return __bfloat162float(v); }

template <class T, class Sum>
T narrowed(Sum v) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half(v);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16(v);
  else
    return v;
}

// Rounds an f32 operand to TF32's 10 bits of mantissa, as the hardware does.
float to_tf32(float v) {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  if ((bits & 0x7f800000u) == 0x7f800000u) return v;
  return std::bit_cast<float>((bits + 0x1000u) & 0xffffe000u);
}

template <class Sum>
void round_operand(Sum& v, MathType math) {
  if (math != MathType::tf32) return;
  if constexpr (std::is_same_v<Sum, float>) v = to_tf32(v);
  if constexpr (std::is_same_v<Sum, std::complex<float>>)
    v = {to_tf32(v.real()), to_tf32(v.imag())};
}

// op(stored), rows x columns, without gaps.
template <class T, class Sum>
void unpack(const T* stored, std::int64_t ld, bool transpose, bool conjugate, MathType math,
            std::int64_t rows, std::int64_t columns, std::vector<Sum>& to) {
  to.resize(std::size_t(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      Sum v = widened(stored[transpose ? j * ld + i : i * ld + j]);
      round_operand(v, math);
      if constexpr (!std::is_floating_point_v<Sum>)
        if (conjugate) v = std::conj(v);
      to[std::size_t(i * columns + j)] = v;
    }
}

// std::complex looks for NaN in every product.
template <class Real>
void multiply_add(std::complex<Real>& sum, std::complex<Real> a, std::complex<Real> b) {
  sum = {sum.real() + (a.real() * b.real() - a.imag() * b.imag()),
         sum.imag() + (a.real() * b.imag() + a.imag() * b.real())};
}
template <class Real>
void multiply_add(Real& sum, Real a, Real b) {
  sum += a * b;
}

template <class T>
void plain_gemm(const Gemm& g, double alpha, const T* a, const T* b, double beta, T* c) {
  using Sum = decltype(widened(T()));
  using Real = decltype(std::abs(Sum()));
  constexpr std::int64_t width = 64;  // columns of one row of C summed at a time
  std::vector<Sum> rows, columns;
  for (std::int64_t i = 0; i < g.batch; ++i, a += g.stride_a, b += g.stride_b, c += g.stride_c) {
    if (i == 0 || g.stride_a != 0)
      unpack(a, g.lda, g.transpose_a, g.conjugate_a, g.math, g.m, g.k, rows);
    if (i == 0 || g.stride_b != 0)
      unpack(b, g.ldb, g.transpose_b, g.conjugate_b, g.math, g.k, g.n, columns);
    for (std::int64_t first = 0; first < g.n; first += width)
      for (std::int64_t row = 0; row < g.m; ++row) {
        const std::int64_t count = std::min(width, g.n - first);
        std::array<Sum, width> sums{};
        for (std::int64_t k = 0; k < g.k; ++k)
          for (std::int64_t j = 0; j < count; ++j)
            multiply_add(sums[j], rows[row * g.k + k], columns[k * g.n + first + j]);
        for (std::int64_t j = 0; j < count; ++j) {
          T& out = c[row * g.ldc + first + j];
          const Sum before = beta == 0 ? Sum{} : Real(beta) * widened(out);
          out = narrowed<T>(Real(alpha) * sums[j] + before);
        }
      }
  }
}

}  // namespace

void gemm(const Gemm& g, double alpha, const void* a, const void* b, double beta, void* c,
          Stream&) {
  validate(g);
  on_cpu::require_library("cublas");
  const auto run = [&](auto type) {
    using T = decltype(type);
    plain_gemm(g, alpha, static_cast<const T*>(a), static_cast<const T*>(b), beta,
               static_cast<T*>(c));
  };
  switch (g.dtype) {
    case DType::f32:
      return g.complex ? run(std::complex<float>()) : run(float());
    case DType::f64:
      return g.complex ? run(std::complex<double>()) : run(double());
    case DType::f16:
      return run(__half());
    case DType::bf16:
      return run(__nv_bfloat16());
  }
}

}  // namespace convlab::cuda
