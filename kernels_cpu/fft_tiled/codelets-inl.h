// Short Fourier transforms as straight-line SIMD code: every lane transforms its own channel.
//
// Radix-2 decimation in time, down to one point or five, unrolled at compile time. With F_even and
// F_odd the half-length transforms of the even and odd elements and w = exp(-2 pi i / N),
//   F[k] = F_even[k] + w^k F_odd[k],   F[k + N/2] = F_even[k] - w^k F_odd[k].
// Writing w^k = cos (1 - i tan) makes a butterfly six fused multiply-adds, no more than split
// radix needs without them. Real input makes F Hermitian, F[N-k] = conj(F[k]), so that half of the
// butterflies give everything; the inverse for real output runs those backwards.
//
// Input and output go through functions of the index, `in(Index<i>)` and `out(Index<k>, value)`,
// so that the innermost stage reads the caller's memory and the outermost writes it.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_FFT_TILED_CODELETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_FFT_TILED_CODELETS_INL_H_
#undef CONVLAB_KERNELS_CPU_FFT_TILED_CODELETS_INL_H_
#else
#define CONVLAB_KERNELS_CPU_FFT_TILED_CODELETS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

#include "conv/math/twiddle.h"
#include "kernels_cpu/simd/unrolled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {
namespace fft {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using Vec = hn::Vec<F32>;
constexpr int kLanes = HWY_LANES(float) < 16 ? HWY_LANES(float) : 16;

struct Complex {
  Vec re, im;
};

template <int k, int n>
inline constexpr float kCos = static_cast<float>(Twiddle(k, n).cos);
template <int k, int n>
inline constexpr float kSin = static_cast<float>(Twiddle(k, n).sin);
template <int k, int n>
inline constexpr float kTan = static_cast<float>(Twiddle(k, n).tan());

// sum = even + w^k odd, difference = even - w^k odd.
template <int k, int n>
HWY_INLINE void Butterfly(Complex even, Complex odd, Complex& sum, Complex& difference) {
  if constexpr (k == 0) {
    sum = {hn::Add(even.re, odd.re), hn::Add(even.im, odd.im)};
    difference = {hn::Sub(even.re, odd.re), hn::Sub(even.im, odd.im)};
  } else if constexpr (4 * k == n) {  // w^k = -i
    sum = {hn::Add(even.re, odd.im), hn::Sub(even.im, odd.re)};
    difference = {hn::Sub(even.re, odd.im), hn::Add(even.im, odd.re)};
  } else {
    const Vec cos = hn::Set(F32(), kCos<k, n>), tan = hn::Set(F32(), kTan<k, n>);
    const Vec re = hn::MulAdd(tan, odd.im, odd.re), im = hn::NegMulAdd(tan, odd.re, odd.im);
    sum = {hn::MulAdd(cos, re, even.re), hn::MulAdd(cos, im, even.im)};
    difference = {hn::NegMulAdd(cos, re, even.re), hn::NegMulAdd(cos, im, even.im)};
  }
}

// A transform of five points, where a_j are sums and b_j differences of the points j and 5-j:
//   F[k] = x_0 + sum over j of a_j cos(2 pi j k / 5) +- sin(2 pi / 5) odd_k,   + for k, - for 5-k.
struct Fifth {
  Vec sum, even1, even2, odd1, odd2;
  HWY_INLINE Fifth(Vec first, Vec a1, Vec a2, Vec b1, Vec b2) {
    const Vec cos1 = hn::Set(F32(), kCos<1, 5>), cos2 = hn::Set(F32(), kCos<2, 5>);
    const Vec ratio = hn::Set(F32(), kSin<2, 5> / kSin<1, 5>);
    sum = hn::Add(first, hn::Add(a1, a2));
    even1 = hn::MulAdd(cos2, a2, hn::MulAdd(cos1, a1, first));
    even2 = hn::MulAdd(cos1, a2, hn::MulAdd(cos2, a1, first));
    odd1 = hn::MulAdd(ratio, b2, b1);
    odd2 = hn::MulSub(ratio, b1, b2);
  }
};

// out(k) = sum over j of in(j) exp(-2 pi i j k / n), for k in [0, n).
template <int n, class In, class Out>
HWY_INLINE void Transform(In in, Out out) {
  if constexpr (n == 1) {
    out(Index<0>(), in(Index<0>()));
  } else if constexpr (n == 5) {
    using hn::Add, hn::MulAdd, hn::NegMulAdd, hn::Sub;
    const Complex first = in(Index<0>());
    const Complex x1 = in(Index<1>()), x2 = in(Index<2>()), x3 = in(Index<3>()),
                  x4 = in(Index<4>());
    const Fifth re(first.re, Add(x1.re, x4.re), Add(x2.re, x3.re), Sub(x1.im, x4.im),
                   Sub(x2.im, x3.im));
    const Fifth im(first.im, Add(x1.im, x4.im), Add(x2.im, x3.im), Sub(x4.re, x1.re),
                   Sub(x3.re, x2.re));
    const Vec sin = hn::Set(F32(), kSin<1, 5>);
    out(Index<0>(), Complex{re.sum, im.sum});
    out(Index<1>(), Complex{MulAdd(sin, re.odd1, re.even1), MulAdd(sin, im.odd1, im.even1)});
    out(Index<2>(), Complex{MulAdd(sin, re.odd2, re.even2), MulAdd(sin, im.odd2, im.even2)});
    out(Index<3>(), Complex{NegMulAdd(sin, re.odd2, re.even2), NegMulAdd(sin, im.odd2, im.even2)});
    out(Index<4>(), Complex{NegMulAdd(sin, re.odd1, re.even1), NegMulAdd(sin, im.odd1, im.even1)});
  } else {
    Complex even[n / 2], odd[n / 2];
    Transform<n / 2>([&](auto j) CONVLAB_INLINE_LAMBDA { return in(Index<2 * j>()); },
                     [&](auto k, Complex v) CONVLAB_INLINE_LAMBDA { even[k] = v; });
    Transform<n / 2>([&](auto j) CONVLAB_INLINE_LAMBDA { return in(Index<2 * j + 1>()); },
                     [&](auto k, Complex v) CONVLAB_INLINE_LAMBDA { odd[k] = v; });
    Unrolled<n / 2>([&](auto k) CONVLAB_INLINE_LAMBDA {
      Complex sum, difference;
      Butterfly<k, n>(even[k], odd[k], sum, difference);
      out(k, sum);
      out(Index<k + n / 2>(), difference);
    });
  }
}

// The inverse times n: exchanging re and im on both sides conjugates the exponential.
template <int n, class In, class Out>
HWY_INLINE void InverseTransform(In in, Out out) {
  Transform<n>(
      [&](auto k) CONVLAB_INLINE_LAMBDA {
        const Complex v = in(k);
        return Complex{v.im, v.re};
      },
      [&](auto j, Complex v) CONVLAB_INLINE_LAMBDA {
        out(j, Complex{v.im, v.re});
      });
}

// Real input, the non-redundant outputs k in [0, n/2]. out(0) and out(n/2) have im = 0.
template <int n, class In, class Out>
HWY_INLINE void RealTransform(In in, Out out) {
  const Vec zero = hn::Zero(F32());
  if constexpr (n == 1) {
    out(Index<0>(), Complex{in(Index<0>()), zero});
  } else if constexpr (n == 5) {
    const Vec x1 = in(Index<1>()), x2 = in(Index<2>()), x3 = in(Index<3>()), x4 = in(Index<4>());
    const Fifth f(in(Index<0>()), hn::Add(x1, x4), hn::Add(x2, x3), hn::Sub(x4, x1),
                  hn::Sub(x3, x2));
    const Vec sin = hn::Set(F32(), kSin<1, 5>);
    out(Index<0>(), Complex{f.sum, zero});
    out(Index<1>(), Complex{f.even1, hn::Mul(sin, f.odd1)});
    out(Index<2>(), Complex{f.even2, hn::Mul(sin, f.odd2)});
  } else {
    Complex even[n / 4 + 1], odd[n / 4 + 1];
    RealTransform<n / 2>([&](auto j) CONVLAB_INLINE_LAMBDA { return in(Index<2 * j>()); },
                         [&](auto k, Complex v) CONVLAB_INLINE_LAMBDA { even[k] = v; });
    RealTransform<n / 2>([&](auto j) CONVLAB_INLINE_LAMBDA { return in(Index<2 * j + 1>()); },
                         [&](auto k, Complex v) CONVLAB_INLINE_LAMBDA { odd[k] = v; });
    out(Index<0>(), Complex{hn::Add(even[0].re, odd[0].re), zero});
    out(Index<n / 2>(), Complex{hn::Sub(even[0].re, odd[0].re), zero});
    if constexpr (n % 4 == 0) out(Index<n / 4>(), Complex{even[n / 4].re, hn::Neg(odd[n / 4].re)});
    if constexpr (n > 4)
      Unrolled<(n / 2 - 1) / 2>([&](auto i) CONVLAB_INLINE_LAMBDA {
        constexpr int k = i + 1;
        Complex sum, difference;
        Butterfly<k, n>(even[k], odd[k], sum, difference);
        out(Index<k>(), sum);
        out(Index<n / 2 - k>(), Complex{difference.re, hn::Neg(difference.im)});
      });
  }
}

// in(k) for k in [0, n/2] of a Hermitian spectrum (im of 0 and n/2 ignored); out(j, real) is the
// inverse times n, for j in [0, n).
template <int n, class In, class Out>
HWY_INLINE void InverseRealTransform(In in, Out out) {
  if constexpr (n == 1) {
    out(Index<0>(), in(Index<0>()).re);
  } else if constexpr (n == 5) {  // the same five points, of which 5-k is the conjugate of k
    const Complex x1 = in(Index<1>()), x2 = in(Index<2>());
    const Fifth f(in(Index<0>()).re, hn::Add(x1.re, x1.re), hn::Add(x2.re, x2.re),
                  hn::Add(x1.im, x1.im), hn::Add(x2.im, x2.im));
    const Vec sin = hn::Set(F32(), kSin<1, 5>);
    out(Index<0>(), f.sum);
    out(Index<1>(), hn::NegMulAdd(sin, f.odd1, f.even1));
    out(Index<2>(), hn::NegMulAdd(sin, f.odd2, f.even2));
    out(Index<3>(), hn::MulAdd(sin, f.odd2, f.even2));
    out(Index<4>(), hn::MulAdd(sin, f.odd1, f.even1));
  } else {
    Complex even[n / 4 + 1], odd[n / 4 + 1];
    const Vec first = in(Index<0>()).re, last = in(Index<n / 2>()).re;
    even[0].re = hn::Add(first, last);
    odd[0].re = hn::Sub(first, last);
    if constexpr (n % 4 == 0) {
      const Complex middle = in(Index<n / 4>());
      even[n / 4].re = hn::Add(middle.re, middle.re);
      odd[n / 4].re = hn::Neg(hn::Add(middle.im, middle.im));
    }
    if constexpr (n > 4)
      Unrolled<(n / 2 - 1) / 2>([&](auto i) CONVLAB_INLINE_LAMBDA {
        constexpr int k = i + 1;
        const Complex a = in(Index<k>()), b = in(Index<n / 2 - k>());
        even[k] = {hn::Add(a.re, b.re), hn::Sub(a.im, b.im)};
        const Vec re = hn::Sub(a.re, b.re), im = hn::Add(a.im, b.im);
        const Vec cos = hn::Set(F32(), kCos<k, n>), tan = hn::Set(F32(), kTan<k, n>);
        odd[k] = {hn::Mul(cos, hn::NegMulAdd(tan, im, re)), hn::Mul(cos, hn::MulAdd(tan, re, im))};
      });
    InverseRealTransform<n / 2>([&](auto k) CONVLAB_INLINE_LAMBDA { return even[k]; },
                                [&](auto j, Vec v)
                                    CONVLAB_INLINE_LAMBDA { out(Index<2 * j>(), v); });
    InverseRealTransform<n / 2>([&](auto k) CONVLAB_INLINE_LAMBDA { return odd[k]; },
                                [&](auto j, Vec v)
                                    CONVLAB_INLINE_LAMBDA { out(Index<2 * j + 1>(), v); });
  }
}

// A real n x n tile of one vector of channels and its spectrum. Half of the spectrum determines the
// rest: all of columns 1 .. n/2-1, and rows 0 .. n/2 of columns 0 and n/2, which are transforms of
// real columns. That is n*n/2 + 2 points for n*n numbers.
template <int n>
struct TileFft {
  static constexpr int kHalf = n / 2 + 1;
  static constexpr int kPoints = n * (n / 2 - 1) + 2 * kHalf;
  static constexpr int kScratch = n * kHalf * 2 * kLanes;  // floats

  // Where re of point p lies: data + p * point_stride; im is im_offset further.
  template <class T>
  struct Spectrum {
    T* data;
    std::ptrdiff_t point_stride, im_offset;
    T* at(int p) const { return data + p * point_stride; }
  };
  // The first point of a column.
  static constexpr int Column(int v) {
    return v == 0 ? 0 : v == n / 2 ? kHalf : 2 * kHalf + (v - 1) * n;
  }

  // row(y) gives n pixels, pixel_stride floats apart, or null for a row of zeros; it is called for
  // each row in turn and may reuse one buffer. at_column(v) is called before each of the columns
  // 1 .. n/2-1, when all rows are read.
  template <class Row, class AtColumn>
  static void Forward(const Row& row_at, std::ptrdiff_t pixel_stride, float* scratch,
                      Spectrum<float> to, const AtColumn& at_column) {
    for (int y = 0; y < n; ++y) {
      float* const row = scratch + y * kRow;
      const float* const from = row_at(y);
      if (from == nullptr) {
        for (int i = 0; i < 2 * kHalf; ++i) hn::Store(hn::Zero(F32()), F32(), row + i * kLanes);
        continue;
      }
      RealTransform<n>(
          [&](auto x) CONVLAB_INLINE_LAMBDA { return hn::Load(F32(), from + x * pixel_stride); },
          [&](auto v, Complex value)
              CONVLAB_INLINE_LAMBDA { StoreAt(row + v * 2 * kLanes, value); });
    }
    const auto column = [&](int v) HWY_ATTR { return scratch + v * 2 * kLanes; };
    const auto store = [&](float* at, Complex value) CONVLAB_INLINE_LAMBDA {
      hn::Store(value.re, F32(), at);
      hn::Store(value.im, F32(), at + to.im_offset);
    };
    for (const int v : {0, n / 2}) {
      const float* const from = column(v);
      float* const first = to.at(Column(v));
      PrefetchLines(first, to.point_stride, to.im_offset, kHalf);
      RealTransform<n>([&](auto y)
                           CONVLAB_INLINE_LAMBDA { return hn::Load(F32(), from + y * kRow); },
                       [&](auto u, Complex value)
                           CONVLAB_INLINE_LAMBDA { store(first + u * to.point_stride, value); });
    }
    for (int v = 1; v < n / 2; ++v) {
      at_column(v);
      const float* const from = column(v);
      float* const first = to.at(Column(v));
      PrefetchLines(first, to.point_stride, to.im_offset, n);
      Transform<n>([&](auto y) CONVLAB_INLINE_LAMBDA { return LoadAt(from + y * kRow); },
                   [&](auto u, Complex value)
                       CONVLAB_INLINE_LAMBDA { store(first + u * to.point_stride, value); });
    }
  }

  // The inverse times n * n. Calls write(y, pixels) for the first `rows` rows, with n pixels of one
  // vector each.
  template <class Write>
  static void Inverse(Spectrum<const float> from, float* scratch, int rows, const Write& write) {
    const auto load = [&](const float* at) CONVLAB_INLINE_LAMBDA {
      return Complex{hn::Load(F32(), at), hn::Load(F32(), at + from.im_offset)};
    };
    for (const int v : {0, n / 2}) {
      const float* const first = from.at(Column(v));
      float* const to = scratch + v * 2 * kLanes;
      PrefetchLines(to, kRow, 0, rows);
      InverseRealTransform<n>(
          [&](auto u) CONVLAB_INLINE_LAMBDA { return load(first + u * from.point_stride); },
          [&](auto y, Vec value) CONVLAB_INLINE_LAMBDA {
            if (y < rows) hn::Store(value, F32(), to + y * kRow);
          });
    }
    for (int v = 1; v < n / 2; ++v) {
      const float* const first = from.at(Column(v));
      float* const to = scratch + v * 2 * kLanes;
      PrefetchLines(to, kRow, kLanes, rows);
      InverseTransform<n>([&](auto u)
                              CONVLAB_INLINE_LAMBDA { return load(first + u * from.point_stride); },
                          [&](auto y, Complex value) CONVLAB_INLINE_LAMBDA {
                            if (y < rows) StoreAt(to + y * kRow, value);
                          });
    }
    HWY_ALIGN float pixels[n * kLanes];
    for (int y = 0; y < rows; ++y) {
      const float* const row = scratch + y * kRow;
      InverseRealTransform<n>(
          [&](auto v) CONVLAB_INLINE_LAMBDA { return LoadAt(row + v * 2 * kLanes); },
          [&](auto x, Vec value)
              CONVLAB_INLINE_LAMBDA { hn::Store(value, F32(), pixels + x * kLanes); });
      write(y, static_cast<const float*>(pixels));
    }
  }

 private:
  static constexpr int kRow = kHalf * 2 * kLanes;  // one row of scratch: its half spectrum

  // Stores that miss hold up all that follows, so the lines of a transform's `count` results are
  // prefetched before it.
  static HWY_INLINE void PrefetchLines(const float* at, std::ptrdiff_t step,
                                       std::ptrdiff_t im_offset, int count) {
    for (int i = 0; i < count; ++i, at += step) {
      hwy::Prefetch(at);
      hwy::Prefetch(at + im_offset);
    }
  }

  static HWY_INLINE Complex LoadAt(const float* at) {
    return {hn::Load(F32(), at), hn::Load(F32(), at + kLanes)};
  }
  static HWY_INLINE void StoreAt(float* at, Complex value) {
    hn::Store(value.re, F32(), at);
    hn::Store(value.im, F32(), at + kLanes);
  }
};

}  // namespace fft
}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
