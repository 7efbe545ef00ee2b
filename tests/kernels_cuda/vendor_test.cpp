// The vendor interface against plain loops: cuBLAS and cuFFT on a card, their stand-ins when
// executed on the CPU.
#include "kernels_cuda/vendor.h"

#include <gtest/gtest.h>

#include <complex>
#include <numbers>
#include <random>

#include "conv/error.h"
#include "tests/kernels_cuda/card/card_device.h"

namespace convlab::cuda {
namespace {

class Vendor : public CardTest {};

// --- products

using Complex = std::complex<double>;

// f16 and bf16 are passed as bits. Their values here are small integers, which both hold exactly.
std::uint16_t small_float_bits(int v, int mantissa_bits, int bias) {
  if (v == 0) return 0;
  const unsigned sign = v < 0 ? 0x8000u : 0u, magnitude = unsigned(std::abs(v));
  const int exponent = int(std::bit_width(magnitude)) - 1;
  const unsigned mantissa = (magnitude << mantissa_bits >> exponent) & ((1u << mantissa_bits) - 1);
  return std::uint16_t(sign | unsigned(exponent + bias) << mantissa_bits | mantissa);
}

template <class T>
T value(DType, Complex v) {
  if constexpr (std::is_floating_point_v<T>)
    return T(v.real());
  else
    return T(v);
}
template <>
std::uint16_t value(DType dtype, Complex v) {
  const int i = int(v.real());
  return dtype == DType::f16 ? small_float_bits(i, 10, 15) : small_float_bits(i, 7, 127);
}

struct Matrices {
  std::vector<Complex> a, b, c;
};

std::int64_t elements(std::int64_t batch, std::int64_t stride, std::int64_t rows, std::int64_t ld) {
  return (batch - 1) * stride + rows * ld;
}

// Small integers: every sum is exact in every type, so results must be equal, not just close.
Matrices random_matrices(const Gemm& g) {
  std::mt19937 random(5);
  const auto make = [&](std::int64_t count) {
    std::vector<Complex> m;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto draw = [&] { return double(random() % 5) - 2; };
      const double real = draw();
      m.emplace_back(real, g.complex ? draw() : 0);
    }
    return m;
  };
  Matrices m;
  m.a = make(elements(g.batch, g.stride_a, g.transpose_a ? g.k : g.m, g.lda));
  m.b = make(elements(g.batch, g.stride_b, g.transpose_b ? g.n : g.k, g.ldb));
  m.c = make(elements(g.batch, g.stride_c, g.m, g.ldc));
  return m;
}

std::vector<Complex> plain_loops(const Gemm& g, double alpha, double beta, const Matrices& m) {
  std::vector<Complex> c = m.c;
  for (std::int64_t i = 0; i < g.batch; ++i)
    for (std::int64_t row = 0; row < g.m; ++row)
      for (std::int64_t column = 0; column < g.n; ++column) {
        Complex sum = 0;
        for (std::int64_t k = 0; k < g.k; ++k) {
          Complex a = m.a[i * g.stride_a + (g.transpose_a ? k * g.lda + row : row * g.lda + k)];
          Complex b =
              m.b[i * g.stride_b + (g.transpose_b ? column * g.ldb + k : k * g.ldb + column)];
          sum += (g.conjugate_a ? std::conj(a) : a) * (g.conjugate_b ? std::conj(b) : b);
        }
        Complex& out = c[i * g.stride_c + row * g.ldc + column];
        out = alpha * sum + beta * out;
      }
  return c;
}

// Ragged sizes, with gaps after rows and between matrices, which must stay unchanged.
Gemm ragged(bool transpose_a, bool transpose_b) {
  Gemm g{.m = 19, .n = 70, .k = 13, .transpose_a = transpose_a, .transpose_b = transpose_b};
  g.lda = (transpose_a ? g.m : g.k) + 3;
  g.ldb = (transpose_b ? g.k : g.n) + 1;
  g.ldc = g.n + 2;
  g.batch = 3;
  g.stride_a = (transpose_a ? g.k : g.m) * g.lda + 5;
  g.stride_b = (transpose_b ? g.n : g.k) * g.ldb + 7;
  g.stride_c = g.m * g.ldc + 1;
  return g;
}

class VendorGemm : public Vendor {
 protected:
  template <class T>
  void expect_equal(const Gemm& g) {
    const double alpha = 2, beta = -1;
    const Matrices m = random_matrices(g);
    const auto typed = [&](const std::vector<Complex>& values) {
      std::vector<T> t;
      for (Complex v : values) t.push_back(value<T>(g.dtype, v));
      return t;
    };
    const Buffer a = upload(typed(m.a)), b = upload(typed(m.b)), c = upload(typed(m.c));
    gemm(g, alpha, a.data(), b.data(), beta, c.data(), *stream_);
    EXPECT_EQ(download<T>(c), typed(plain_loops(g, alpha, beta, m)));
  }
};

TEST_F(VendorGemm, TransposesBatchesAndSkipsGaps) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      Gemm g = ragged(transpose_a, transpose_b);
      expect_equal<float>(g);
      g.math = MathType::tf32;  // small integers are exact there too
      expect_equal<float>(g);
      g.math = MathType::f32;
      g.dtype = DType::f64;
      expect_equal<double>(g);
      g.dtype = DType::f16;
      expect_equal<std::uint16_t>(g);
      g.k = 6;  // bf16 holds integers up to 256
      g.dtype = DType::bf16;
      expect_equal<std::uint16_t>(g);
    }
}

// They go to cuBLAS in parts.
TEST_F(VendorGemm, MultipliesMoreMatricesThanAGridIsDeep) {
  Gemm g{.m = 2, .n = 3, .k = 2, .lda = 2, .ldb = 3, .ldc = 3, .batch = 140'001};
  g.stride_a = 5, g.stride_b = 6, g.stride_c = 7;
  expect_equal<float>(g);
}

TEST_F(VendorGemm, ConjugatesComplexOperands) {
  for (const bool conjugate_a : {false, true})
    for (const bool conjugate_b : {false, true}) {
      Gemm g = ragged(true, true);
      g.complex = true;
      g.conjugate_a = conjugate_a;
      g.conjugate_b = conjugate_b;
      expect_equal<std::complex<float>>(g);
      g.dtype = DType::f64;
      expect_equal<std::complex<double>>(g);
    }
}

TEST_F(VendorGemm, RepeatsAnOperandWhoseStrideIsZero) {
  Gemm g = ragged(false, true);
  g.stride_a = 0;
  expect_equal<float>(g);
  g = ragged(false, false);
  g.stride_b = 0;
  expect_equal<float>(g);
}

TEST_F(VendorGemm, NeverReadsTheOutputWhenBetaIsZero) {
  const Gemm g{.m = 3, .n = 5, .k = 2, .lda = 2, .ldb = 5, .ldc = 5};
  const Buffer a = upload(std::vector<float>(6, 1)), b = upload(std::vector<float>(10, 1));
  const Buffer c = upload(std::vector<float>(15, std::numeric_limits<float>::quiet_NaN()));
  gemm(g, 1, a.data(), b.data(), 0, c.data(), *stream_);
  EXPECT_EQ(download<float>(c), std::vector<float>(15, 2));
}

// 1 + 2^-12 rounds to 1 with 10 bits of mantissa: TF32 drops the bit, strict f32 keeps it.
TEST_F(VendorGemm, OnlyTf32LosesMantissa) {
  Gemm g{.m = 64, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64};
  const Buffer a = upload(std::vector<float>(64 * 64, 1 + 0x1p-12f)),
               b = upload(std::vector<float>(64 * 64, 1)), c = upload(std::vector<float>(64 * 64));
  gemm(g, 1, a.data(), b.data(), 0, c.data(), *stream_);
  EXPECT_EQ(download<float>(c), std::vector<float>(64 * 64, 64 + 0x1p-6f));
  g.math = MathType::tf32;
  gemm(g, 1, a.data(), b.data(), 0, c.data(), *stream_);
  EXPECT_EQ(download<float>(c), std::vector<float>(64 * 64, 64));
}

TEST_F(VendorGemm, SaysWhatIsWrong) {
  const auto message = [&](const Gemm& g) -> std::string {
    try {
      gemm(g, 1, nullptr, nullptr, 0, nullptr, *stream_);
    } catch (const InputError& e) {
      return e.what();
    }
    return "accepted";
  };
  Gemm g{.m = 3, .n = 5, .k = 2, .lda = 2, .ldb = 5, .ldc = 4};
  EXPECT_EQ(message(g), "gemm: ldc is 4, a stored row has 5");
  g.ldc = 5;
  g.transpose_a = true;
  EXPECT_EQ(message(g), "gemm: lda is 2, a stored row has 3");
  g.lda = 3;
  g.math = MathType::tf32x3;
  EXPECT_EQ(message(g), "gemm: cuBLAS has no product of three TF32 ones");
  g.math = MathType::tf32;
  g.dtype = DType::f16;
  EXPECT_EQ(message(g), "gemm: TF32 stands for f32 products, not f16");
  g.math = MathType::f32;
  g.complex = true;
  EXPECT_EQ(message(g), "gemm: no complex products of f16");
}

// --- transforms

class VendorFft : public Vendor {
 protected:
  template <class T>
  void expect_transforms(DType dtype, std::int64_t h, std::int64_t w, double tolerance) {
    constexpr std::int64_t batch = 3;
    const std::int64_t half = w / 2 + 1;
    std::mt19937 random(7);
    std::vector<T> images;
    for (std::int64_t i = 0; i < batch * h * w; ++i) images.push_back(T(random() % 9) - 4);

    const auto fft = make_fft2d(dtype, h, w, batch, *device_);
    const Buffer workspace = device_->allocate(fft->workspace_bytes());
    const Buffer real = upload(images), complex = device_->allocate(std::size_t(batch * h * half) *
                                                                    sizeof(std::complex<T>));
    fft->forward(real.data(), complex.data(), workspace.span(), *stream_);
    const auto spectrum = download<std::complex<T>>(complex);
    for (std::int64_t i = 0; i < batch; ++i)
      for (std::int64_t u = 0; u < h; ++u)
        for (std::int64_t v = 0; v < half; ++v) {
          Complex sum = 0;
          for (std::int64_t y = 0; y < h; ++y)
            for (std::int64_t x = 0; x < w; ++x)
              sum += double(images[(i * h + y) * w + x]) *
                     std::polar(1.0, -2 * std::numbers::pi *
                                         (double(u * y) / double(h) + double(v * x) / double(w)));
          ASSERT_LT(std::abs(Complex(spectrum[(i * h + u) * half + v]) - sum), tolerance)
              << h << "x" << w << " at " << i << " " << u << " " << v;
        }

    fft->inverse(complex.data(), real.data(), workspace.span(), *stream_);
    const auto back = download<T>(real);
    for (std::size_t i = 0; i < images.size(); ++i)
      ASSERT_NEAR(double(back[i]) / double(h * w), images[i], tolerance) << h << "x" << w;
  }
};

TEST_F(VendorFft, IsTheDefinitionAndComesBack) {
  for (const auto& [h, w] : {std::pair{8, 8}, {5, 7}, {9, 4}, {1, 6}, {6, 1}}) {
    expect_transforms<float>(DType::f32, h, w, 1e-3);
    expect_transforms<double>(DType::f64, h, w, 1e-11);
  }
}

TEST_F(VendorFft, RefusesOtherTypes) {
  EXPECT_THROW(make_fft2d(DType::f16, 8, 8, 1, *device_), InputError);
  EXPECT_THROW(make_fft2d(DType::f32, 8, 0, 1, *device_), InputError);
}

}  // namespace
}  // namespace convlab::cuda
