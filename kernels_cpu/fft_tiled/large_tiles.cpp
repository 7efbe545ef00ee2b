// Transforms of tiles too large for straight-line code, for depthwise.cpp.
//
// A transform of n = 16 m points, m = 3, 4 or 5, is m of 16 points and 16 of m (Cooley & Tukey
// 1965): with w = exp(-2 pi i / n),
//   F[k + 16 l] = sum over j of exp(-2 pi i j l / m) w^(j k) G_j[k],
// where G_j are the transforms of the points j, j + m, j + 2m, ... The former are a codelet. Its
// results stay in L1 until the latter read them.
//
// Real lines go in pairs, as the real and the imaginary part of one complex line: of Z = A + i B,
//   A[k] = (Z[k] + conj(Z[n - k])) / 2,   B[k] = (Z[k] - conj(Z[n - k])) / 2i.
// So rows, of which n is even, and the two real columns need no transform of their own, and the
// inverse is the same transform with real and imaginary parts exchanged.
#include <algorithm>

#include "conv/math/fft_tile_rules.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/fft_tiled/depthwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/fft_tiled/large_tiles.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "conv/types/layout.h"
#include "kernels_cpu/fft_tiled/codelets-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu {
namespace HWY_NAMESPACE {
namespace {

using fft::Complex;
using fft::F32;
using fft::kLanes;
using fft::TileFft;
using fft::Vec;
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kBlock = kLanes == 16 ? 16 : 8;
constexpr int kPart = 16;  // points of the codelet

// Complex vectors: re of element i at data + i * step, im `im` floats further.
template <class T>
struct Line {
  T* data;
  std::ptrdiff_t step, im;

  HWY_INLINE T* at(std::ptrdiff_t i) const { return data + i * step; }
  HWY_INLINE Complex Load(std::ptrdiff_t i) const {
    return {hn::Load(F32(), at(i)), hn::Load(F32(), at(i) + im)};
  }
  HWY_INLINE void Store(std::ptrdiff_t i, Complex v) const {
    hn::Store(v.re, F32(), at(i));
    hn::Store(v.im, F32(), at(i) + im);
  }
  // With re and im exchanged on both sides a transform is the inverse one times n.
  Line exchanged() const { return {data + im, step, -im}; }
};
template <class T>
Line<T> Packed(T* data) {
  return {data, 2 * kLanes, kLanes};
}

// m transforms of every m-th point, to [part][k].
template <int m>
HWY_NOINLINE void TransformParts(const Line<const float>& from, float* parts) {
  for (int j = 0; j < m; ++j) {
    const Line<const float> in{from.at(j), m * from.step, from.im};
    const Line<float> out = Packed(parts + j * kPart * 2 * kLanes);
    fft::Transform<kPart>([&](auto i) CONVLAB_INLINE_LAMBDA { return in.Load(i); },
                          [&](auto k, Complex v) CONVLAB_INLINE_LAMBDA { out.Store(k, v); });
  }
}

// w^(j k) for part j > 0: cos and sin.
template <int m>
struct Twiddles {
  float cos[m - 1][kPart], sin[m - 1][kPart];
  constexpr Twiddles() : cos(), sin() {
    for (int j = 1; j < m; ++j)
      for (int k = 0; k < kPart; ++k) {
        const Twiddle w(j * k, m * kPart);
        cos[j - 1][k] = static_cast<float>(w.cos);
        sin[j - 1][k] = static_cast<float>(w.sin);
      }
  }
};
template <int m>
inline constexpr Twiddles<m> kTwiddles;

// The codelets divide by two down to one point or five.
template <int m, class In, class Out>
HWY_INLINE void TransformFew(In in, Out out) {
  if constexpr (m == 3) {
    const Complex first = in(Index<0>()), x1 = in(Index<1>()), x2 = in(Index<2>());
    const Vec half = hn::Set(F32(), 0.5f), sin = hn::Set(F32(), fft::kSin<1, 3>);
    const Complex sum{hn::Add(x1.re, x2.re), hn::Add(x1.im, x2.im)};
    const Complex difference{hn::Sub(x1.re, x2.re), hn::Sub(x1.im, x2.im)};
    const Complex even{hn::NegMulAdd(half, sum.re, first.re),
                       hn::NegMulAdd(half, sum.im, first.im)};
    out(Index<0>(), Complex{hn::Add(first.re, sum.re), hn::Add(first.im, sum.im)});
    out(Index<1>(), Complex{hn::MulAdd(sin, difference.im, even.re),
                            hn::NegMulAdd(sin, difference.re, even.im)});
    out(Index<2>(), Complex{hn::NegMulAdd(sin, difference.im, even.re),
                            hn::MulAdd(sin, difference.re, even.im)});
  } else {
    fft::Transform<m>(in, out);
  }
}

// The transform of n points. `from` and `to` may be the same.
template <int n>
HWY_NOINLINE void TransformLine(const Line<const float>& from, const Line<float>& to) {
  constexpr int m = n / kPart;
  HWY_ALIGN float parts[n * 2 * kLanes];
  TransformParts<m>(from, parts);
  for (int k = 0; k < kPart; ++k) {
    const Line<const float> at{parts + k * 2 * kLanes, kPart * 2 * kLanes, kLanes};
    TransformFew<m>(
        [&](auto j) CONVLAB_INLINE_LAMBDA {
          const Complex v = at.Load(j);
          if constexpr (j == 0) {
            return v;
          } else {
            const Vec cos = hn::Set(F32(), kTwiddles<m>.cos[j - 1][k]);
            const Vec sin = hn::Set(F32(), kTwiddles<m>.sin[j - 1][k]);
            return Complex{hn::MulAdd(cos, v.re, hn::Mul(sin, v.im)),
                           hn::MulSub(cos, v.im, hn::Mul(sin, v.re))};
          }
        },
        [&](auto l, Complex v) CONVLAB_INLINE_LAMBDA { to.Store(k + kPart * l, v); });
  }
}

// The spectra, points 0 to n/2, of two real lines of which z is the joint one.
template <int n>
HWY_INLINE void Separate(const Line<const float>& z, const Line<float>& a, const Line<float>& b) {
  const Vec half = hn::Set(F32(), 0.5f);
  for (int k = 0; k <= n / 2; ++k) {
    const Complex v = z.Load(k), w = z.Load(k == 0 ? 0 : n - k);
    const Vec re = hn::Mul(half, v.re), im = hn::Mul(half, v.im);
    a.Store(k, {hn::MulAdd(half, w.re, re), hn::NegMulAdd(half, w.im, im)});
    b.Store(k, {hn::MulAdd(half, w.im, im), hn::MulSub(half, w.re, re)});
  }
}

// Its inverse; a and b are real at 0 and n/2.
template <int n>
HWY_INLINE void Join(const Line<const float>& a, const Line<const float>& b, const Line<float>& z) {
  for (const int k : {0, n / 2}) z.Store(k, {hn::Load(F32(), a.at(k)), hn::Load(F32(), b.at(k))});
  for (int k = 1; k < n / 2; ++k) {
    const Complex v = a.Load(k), w = b.Load(k);
    z.Store(k, {hn::Sub(v.re, w.im), hn::Add(v.im, w.re)});
    z.Store(n - k, {hn::Add(v.re, w.im), hn::Sub(w.re, v.im)});
  }
}

template <int n>
constexpr int kRow = TileFft<n>::kHalf * 2 * kLanes;  // floats of a row's spectrum in the scratch

// The points of a tile's spectrum are those of TileFft.
template <int n>
Line<float> ColumnOf(const TileSpectrum<float>& spectrum, int v, int lane) {
  return {spectrum.data + TileFft<n>::Column(v) * spectrum.point_stride + lane,
          spectrum.point_stride, kBlock};
}
template <int n>
Line<const float> ColumnOf(const TileSpectrum<const float>& spectrum, int v, int lane) {
  return {spectrum.data + TileFft<n>::Column(v) * spectrum.point_stride + lane,
          spectrum.point_stride, kBlock};
}

void PrefetchRow(const WindowIn& window, std::int64_t y) {
  const Window& at = window.at;
  if (y < 0 || y >= at.h) return;
  const std::int64_t last = std::min(at.w, at.x + at.cols);
  for (std::int64_t x = std::max<std::int64_t>(at.x, 0); x < last; ++x)
    __builtin_prefetch(window.plane + at.offset(y, x) * kBlock, 0, 2);
}

template <int n>
void ForwardTile(const WindowIn& in, const WindowIn* next, float* scratch, TileSpectrum<float> to) {
  const Window& window = in.at;
  const std::int64_t first = std::max<std::int64_t>(0, -window.x);
  const std::int64_t last = std::min({std::int64_t{n}, window.cols, window.w - window.x});
  HWY_ALIGN float pixels[n * 2 * kLanes];
  HWY_ALIGN float joint[n * 2 * kLanes];
  const Vec zero = hn::Zero(F32());
  for (int lane = 0; lane < kBlock; lane += kLanes) {
    const auto is_inside = [&](std::int64_t y) {
      const std::int64_t row = window.y + y;
      return row >= 0 && row < window.h && y < window.rows && first < last;
    };
    for (int x = 0; x < n; ++x) Packed(pixels).Store(x, {zero, zero});
    for (std::int64_t y = 0; y < n; y += 2) {
      float* const row = scratch + y * kRow<n>;
      if (!is_inside(y) && !is_inside(y + 1)) {
        for (int i = 0; i < 2 * kRow<n>; i += kLanes) hn::Store(zero, F32(), row + i);
        continue;
      }
      for (int i = 0; i < 2; ++i) {
        const bool inside = is_inside(y + i);
        const float* const from =
            in.plane + window.offset(inside ? window.y + y + i : 0, window.x) * kBlock + lane;
        for (std::int64_t x = first; x < last; ++x)
          hn::Store(inside ? hn::Load(F32(), from + x * window.pixel_step * kBlock) : zero, F32(),
                    pixels + (2 * x + i) * kLanes);
      }
      TransformLine<n>(Packed<const float>(pixels), Packed(joint));
      Separate<n>(Packed<const float>(joint), Packed(row), Packed(row + kRow<n>));
    }
    // Columns 0 and n/2 are real.
    const std::ptrdiff_t middle = n / 2 * 2 * kLanes;
    TransformLine<n>({scratch, kRow<n>, middle}, Packed(joint));
    Separate<n>(Packed<const float>(joint), ColumnOf<n>(to, 0, lane), ColumnOf<n>(to, n / 2, lane));
    for (int v = 1; v < n / 2; ++v) {
      TransformLine<n>({scratch + v * 2 * kLanes, kRow<n>, kLanes}, ColumnOf<n>(to, v, lane));
      // Rows are bound by memory; columns read none of it.
      if (next != nullptr && lane == 0) {
        const Range rows = share(next->at.rows, v - 1, n / 2 - 1);
        for (std::int64_t y = rows.begin; y < rows.end; ++y) PrefetchRow(*next, next->at.y + y);
      }
    }
  }
}

template <int n>
void InverseTile(TileSpectrum<const float> from, float* scratch, const OutputEpilogue<float>& plane,
                 const Window& window) {
  const std::int64_t step = window.pixel_step * kBlock;
  HWY_ALIGN float joint[n * 2 * kLanes];
  const auto inverse = [&](const Line<const float>& line, const Line<float>& to)
                           HWY_ATTR { TransformLine<n>(line.exchanged(), to.exchanged()); };
  for (int lane = 0; lane < kBlock; lane += kLanes) {
    const Vec bias = plane.bias ? hn::Load(F32(), plane.bias + lane) : hn::Zero(F32());
    const std::ptrdiff_t middle = n / 2 * 2 * kLanes;
    Join<n>(ColumnOf<n>(from, 0, lane), ColumnOf<n>(from, n / 2, lane), Packed(joint));
    inverse(Packed<const float>(joint), {scratch, kRow<n>, middle});
    for (int v = 1; v < n / 2; ++v)
      inverse(ColumnOf<n>(from, v, lane), {scratch + v * 2 * kLanes, kRow<n>, kLanes});
    for (std::int64_t y = 0; y < window.rows; y += 2) {
      const float* const row = scratch + y * kRow<n>;
      Join<n>(Packed(row), Packed(row + kRow<n>), Packed(joint));
      inverse(Packed<const float>(joint), Packed(joint));
      for (std::int64_t i = 0; i < std::min<std::int64_t>(2, window.rows - y); ++i) {
        const std::int64_t offset = window.offset(window.y + y + i, window.x) * kBlock + lane;
        for (std::int64_t x = 0; x < window.cols; ++x)
          FinishAndStore(plane, hn::Add(hn::Load(F32(), joint + (2 * x + i) * kLanes), bias),
                         offset + x * step);
      }
    }
  }
}

template <int n>
constexpr TileKernels kKernels{.forward = &ForwardTile<n>,
                               .inverse = &InverseTile<n>,
                               .product = nullptr,
                               .few_product = nullptr,
                               .copy_non_temporal = nullptr,
                               .points = TileFft<n>::kPoints,
                               .scratch = round_up(TileFft<n>::kScratch, 16)};

const TileKernels& Kernels(std::int64_t tile) {
  return tile == 48 ? kKernels<48> : tile == 64 ? kKernels<64> : kKernels<80>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {
HWY_EXPORT(Kernels);
}  // namespace

const TileKernels& large_fft_tile_kernels(std::int64_t tile) {
  return HWY_DYNAMIC_DISPATCH(Kernels)(tile);
}

// n lines, half of them pairs of rows. Six FLOPs a twiddle; three points take 16.
double large_fft_tile_flops(double side) {
  const double parts = side / 16;
  const double few = parts == 3 ? 16 : transform_flops(parts);
  return side * (parts * transform_flops(16) + 16 * (6 * (parts - 1) + few)) + side * side * 3;
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
