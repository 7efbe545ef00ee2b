// Short Fourier transforms in a thread's registers.
//
// Radix-2 decimation in time, unrolled at compile time. With F_even and F_odd the half-length
// transforms of the even and odd elements and w = exp(-2 pi i / n),
//   F[k] = F_even[k] + w^k F_odd[k],   F[k + n/2] = F_even[k] - w^k F_odd[k].
// Writing w^k = cos (1 - i tan) makes a butterfly six fused multiply-adds.
#pragma once

#include "conv/math/twiddle.h"
#include "kernels_cuda/fft/fft.h"

namespace convlab::cuda {

// cos and tan of 2 pi k / n for k < n / 2. Device code may read constants, but not compute them. No
// butterfly reads the tangent of a quarter turn.
template <int n>
struct Roots {
  float cos[n / 2] = {}, tan[n / 2] = {};

  constexpr Roots() {
    for (int k = 0; k < n / 2; ++k) {
      const Twiddle w(k, n);
      cos[k] = static_cast<float>(w.cos);
      tan[k] = 4 * k == n ? 0 : static_cast<float>(w.tan());
    }
  }
};

// out[k] = sum over j of in[j * stride] exp(-2 pi i j k / n).
template <int n>
__device__ __forceinline__ void transform(const Complex<float>* in, int stride,
                                          Complex<float>* out) {
  if constexpr (n == 1) {
    out[0] = in[0];
  } else {
    transform<n / 2>(in, 2 * stride, out);
    transform<n / 2>(in + stride, 2 * stride, out + n / 2);
    constexpr Roots<n> roots;
#pragma unroll
    for (int k = 0; k < n / 2; ++k) {
      const Complex<float> even = out[k], odd = out[k + n / 2];
      if (k == 0) {
        out[k] = {even.re + odd.re, even.im + odd.im};
        out[k + n / 2] = {even.re - odd.re, even.im - odd.im};
      } else if (4 * k == n) {  // w^k = -i
        out[k] = {even.re + odd.im, even.im - odd.re};
        out[k + n / 2] = {even.re - odd.im, even.im + odd.re};
      } else {
        const float cos = roots.cos[k], tan = roots.tan[k];
        const float re = odd.re + tan * odd.im, im = odd.im - tan * odd.re;
        out[k] = {even.re + cos * re, even.im + cos * im};
        out[k + n / 2] = {even.re - cos * re, even.im - cos * im};
      }
    }
  }
}

template <int n>
__device__ __forceinline__ void forward_transform(Complex<float> (&z)[n]) {
  Complex<float> out[n];
  transform<n>(z, 1, out);
#pragma unroll
  for (int k = 0; k < n; ++k) z[k] = out[k];
}

// Times n: exchanging re and im on both sides conjugates the exponential.
template <int n>
__device__ __forceinline__ void inverse_transform(Complex<float> (&z)[n]) {
  Complex<float> in[n], out[n];
#pragma unroll
  for (int k = 0; k < n; ++k) in[k] = {z[k].im, z[k].re};
  transform<n>(in, 1, out);
#pragma unroll
  for (int k = 0; k < n; ++k) z[k] = {out[k].im, out[k].re};
}

}  // namespace convlab::cuda
