// The own product against plain loops: both tiles, transpositions, leading dimensions, remainders.
#include "kernels_cuda/recurrent/product.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels_cuda/cuda.h"
#include "tests/recurrent/recurrent_case.h"

namespace convlab::cuda {
namespace {

struct Sizes {
  std::int64_t m, n, k;
};

class OwnProduct : public testing::TestWithParam<Sizes> {};

TEST_P(OwnProduct, AgreesWithPlainLoops) {
  if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
  const auto device = make_cuda_device();
  const auto stream = device->make_stream();
  const auto [m, n, k] = GetParam();
  std::mt19937 random(5);
  const auto draw = [&](std::int64_t count) {
    std::vector<double> v(static_cast<std::size_t>(count));
    for (double& e : v) e = double(int(random() % 2001) - 1000) / 1000;
    return v;
  };
  for (const DType dtype : {DType::f32, DType::f64})
    for (int variant = 0; variant < 8; ++variant) {
      const bool transpose_a = variant & 1, transpose_b = variant & 2, accumulate = variant & 4;
      const std::int64_t lda = (transpose_a ? m : k) + 3, ldb = (transpose_b ? k : n) + 1,
                         ldc = n + 2;
      const auto a = draw((transpose_a ? k : m) * lda), b = draw((transpose_b ? n : k) * ldb),
                 before = draw(m * ldc);
      std::vector<double> expected = before;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double& sum = expected[std::size_t(i * ldc + j)];
          if (!accumulate) sum = 0;
          for (std::int64_t l = 0; l < k; ++l)
            sum += a[std::size_t(transpose_a ? l * lda + i : i * lda + l)] *
                   b[std::size_t(transpose_b ? j * ldb + l : l * ldb + j)];
        }
      const GuardedArray of_a(*device, dtype, a), of_b(*device, dtype, b);
      const GuardedArray of_c(*device, dtype, before);
      own_gemm({.dtype = dtype,
                .m = m,
                .n = n,
                .k = k,
                .transpose_a = transpose_a,
                .transpose_b = transpose_b,
                .lda = lda,
                .ldb = ldb,
                .ldc = ldc},
               of_a.data(), of_b.data(), accumulate, of_c.data(), *stream);
      stream->synchronize();
      EXPECT_LE(rel_error(of_c.values(), expected), dtype == DType::f64 ? 1e-15 : 5e-7) << variant;
      EXPECT_TRUE(of_c.is_intact()) << variant;
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, OwnProduct,
                         testing::Values(Sizes{1, 1, 1}, Sizes{3, 33, 7}, Sizes{16, 32, 64},
                                         Sizes{17, 70, 65}, Sizes{515, 514, 19}),
                         [](const auto& test) {
                           const Sizes s = test.param;
                           return std::to_string(s.m) + "x" + std::to_string(s.n) + "x" +
                                  std::to_string(s.k);
                         });

}  // namespace
}  // namespace convlab::cuda
