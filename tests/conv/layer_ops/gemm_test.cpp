// Products of matrices against a sum in double.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "conv/error.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {
namespace {

class Gemm : public LayerTest {};

// A and B as they are stored: op(A) is m x k, op(B) is k x n.
Values product(const GemmDesc& g, const Values& a, const Values& b, const Values& c) {
  Values result(static_cast<std::size_t>(g.m * g.n));
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < g.n; ++j) {
      const auto at = static_cast<std::size_t>(i * g.n + j);
      double sum = g.accumulate ? c[at] : 0;
      for (std::int64_t p = 0; p < g.k; ++p)
        sum += a[static_cast<std::size_t>(g.transpose_a ? p * g.m + i : i * g.k + p)] *
               b[static_cast<std::size_t>(g.transpose_b ? j * g.k + p : p * g.n + j)];
      result[at] = sum;
    }
  return result;
}

Values run(const LayerLab& lab, const GemmDesc& g, const Values& a, const Values& b,
           const Values& c) {
  auto first = lab.array(a), second = lab.array(b);
  // Without accumulation the output must not be read: it starts as NaN.
  auto out = g.accumulate ? lab.array(c) : lab.array(g.m * g.n);
  lab.ops().gemm(lab.dtype(), g, first.data(), second.data(), out.data(), lab.stream());
  EXPECT_EQ(first.values(), a);
  EXPECT_EQ(second.values(), b);
  return out.values();
}

void expect_product(const LayerLab& lab, const GemmDesc& g) {
  SCOPED_TRACE(fmt::format("{} x {} x {}{}{}{}", g.m, g.n, g.k, g.transpose_a ? " A^T" : "",
                           g.transpose_b ? " B^T" : "", g.accumulate ? " +=" : ""));
  const Values a = random_values(g.m * g.k, 1), b = random_values(g.k * g.n, 2),
               c = random_values(g.m * g.n, 3);
  // Each sum's rounding error is some ulps times the square root of its length.
  expect_near(run(lab, g, a, b, c), product(g, a, b, c),
              lab.tolerance() * (1 + std::sqrt(double(g.k))));
}

void expect_all_products(const LayerLab& lab, std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const bool accumulate : {false, true})
        expect_product(lab, {m, n, k, transpose_a, transpose_b, accumulate});
}

// Matrices have no layout.
void for_each_device_and_type(const std::function<void(const LayerLab&)>& f) {
  for (const LayerDevice& device : layer_backend().devices)
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(fmt::format("{} {}", device.name, to_string(dtype)));
      f(LayerLab(device, 3, dtype, Layout::nchw));
    }
}

TEST_F(Gemm, IsTheSumOfProducts) {
  for_each_device_and_type([](const LayerLab& lab) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {1, 7, 1},
                                  {1, 67, 130},
                                  {2, 33, 65},
                                  {3, 5, 3},
                                  {5, 100, 17},
                                  {7, 1, 40},
                                  {8, 19, 64},
                                  {13, 70, 9},
                                  {16, 31, 16},
                                  {17, 33, 18},
                                  {40, 16, 3},
                                  {67, 130, 1},
                                  {70, 66, 35}})
      expect_all_products(lab, m, n, k);
  });
}

// The three products of a fully connected layer, large enough for several threads and pieces, with
// one image and with several.
TEST_F(Gemm, TrainsAFullyConnectedLayer) {
  for_each_device_and_type([](const LayerLab& lab) {
    const std::int64_t classes = 37, channels = 2099;
    for (const std::int64_t images : {1, 4, 11}) {
      expect_product(lab, {images, classes, channels, false, true, false});   // y = x w^T
      expect_product(lab, {images, channels, classes, false, false, false});  // dx = dy w
      expect_product(lab, {classes, channels, images, true, false, false});   // dw = dy^T x
    }
  });
}

TEST_F(Gemm, NothingHidesANaN) {
  for_each_device_and_type([](const LayerLab& lab) {
    for (const bool transpose_b : {false, true}) {
      const GemmDesc g{2, 19, 21, false, transpose_b};
      Values a = random_values(2 * 21, 1);
      a[20] = std::nan("");
      const Values c = run(lab, g, Values(2 * 21, 0), Values(19 * 21, 0), {});
      EXPECT_EQ(c, Values(2 * 19, 0));
      auto first = lab.array(a), second = lab.array(Values(19 * 21, 0)), out = lab.array(2 * 19);
      lab.ops().gemm(lab.dtype(), g, first.data(), second.data(), out.data(), lab.stream());
      const Values with_nan = out.values();
      for (std::size_t j = 0; j < 19; ++j) EXPECT_TRUE(std::isnan(with_nan[j])) << j;
      for (std::size_t j = 19; j < 38; ++j) EXPECT_EQ(with_nan[j], 0) << j;
    }
  });
}

TEST_F(Gemm, RefusesWhatMakesNoSense) {
  const LayerLab lab;
  const auto gemm = [&](DType dtype, const GemmDesc& g) {
    lab.ops().gemm(dtype, g, nullptr, nullptr, nullptr, lab.stream());
  };
  EXPECT_THROW(gemm(DType::f16, {1, 1, 1}), InputError);
  EXPECT_THROW(gemm(DType::f32, {0, 1, 1}), InputError);
  EXPECT_THROW(gemm(DType::f32, {1, -1, 1}), InputError);
  EXPECT_THROW(gemm(DType::f64, {1, 1, 0}), InputError);
}

}  // namespace
}  // namespace convlab
