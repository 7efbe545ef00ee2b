// Decisions of the runtime's wrappers, tested without a card.
#include "kernels_cuda/device/runtime.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "kernels_cuda/gemm/column_major.h"

namespace convlab::cuda {
namespace {

TEST(Runtime, CardsThatDoNotExistAreRefusedByTheirNumber) {
  const auto says = [](int index, int cards) -> std::string {
    try {
      require_card(index, cards);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(says(1, 2), "");
  EXPECT_EQ(says(1, 1), "cuda:1 does not exist: there is one card, cuda:0");
  EXPECT_EQ(says(2, 2), "cuda:2 does not exist: there are 2 cards, cuda:0 to cuda:1");
}

TEST(CudaErrors, AreToldApart) {
  const auto failed = [](cudaError_t error) {
    throw_failed(error, "out of luck", "cudaSomething", "a.cpp", 7);
  };
  EXPECT_THROW(failed(cudaErrorMemoryAllocation), OutOfMemory);
  EXPECT_THROW(failed(cudaErrorIllegalAddress), DeviceLost);
  EXPECT_THROW(failed(cudaErrorNoKernelImageForDevice), EnvironmentError);
  try {
    failed(cudaErrorInvalidValue);
    FAIL();
  } catch (const CudaError& e) {
    EXPECT_STREQ(e.what(), "cudaSomething: out of luck (error 1) at a.cpp:7");
  }
}

TEST(CudaErrors, AnExclusiveCardIsSaidWithItsRemedy) {
  try {
    throw_failed(cudaErrorDevicesUnavailable, "busy", "cudaSetDevice", "a.cpp", 7);
    FAIL();
  } catch (const EnvironmentError& e) {
    EXPECT_STREQ(e.what(),
                 "cudaSetDevice: busy (error 46) at a.cpp:7; if another process uses the card in "
                 "exclusive mode (a worker counts as one), allow several: nvidia-smi -c DEFAULT");
  }
}

TEST(CudaErrors, LaunchesThatCannotBeAreNotSticky) {
  EXPECT_FALSE(is_sticky(cudaSuccess));
  EXPECT_FALSE(is_sticky(cudaErrorInvalidConfiguration));
  EXPECT_FALSE(is_sticky(cudaErrorMemoryAllocation));
  EXPECT_TRUE(is_sticky(cudaErrorAssert));
  EXPECT_TRUE(is_sticky(cudaErrorLaunchFailure));
}

TEST(CudaObstacle, NamesWhatIsMissingAndTheRemedy) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  const auto text = [](cudaError_t error, int cards, int driver) {
    return obstacle_text(error, "said so", cards, driver, 13010);
  };
  EXPECT_EQ(text(cudaSuccess, 2, 13010), "");
  EXPECT_EQ(text(cudaErrorInsufficientDriver, 0, 0),
            "no NVIDIA driver: install one for CUDA 13.1 or newer (in a container, pass the host's "
            "through with --gpus all)");
  EXPECT_EQ(text(cudaErrorInsufficientDriver, 0, 12020),
            "the NVIDIA driver is for CUDA 12.2, this build for CUDA 13.1: update the driver, or "
            "build with an older toolkit");
  EXPECT_EQ(text(cudaErrorNoDevice, 0, 13010),
            "the NVIDIA driver finds no card: see what nvidia-smi says");
  EXPECT_EQ(text(cudaErrorSystemNotReady, 0, 13010),
            "the NVIDIA driver cannot be used: said so (error 802); see what nvidia-smi says");
  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  EXPECT_EQ(text(cudaErrorNoDevice, 0, 13010),
            "the NVIDIA driver shows no card: CUDA_VISIBLE_DEVICES is '7'");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(CardObstacle, IsAnOldCardOrABuildWithoutKernelsForIt) {
  const auto text = [](int major, int minor, cudaError_t image) {
    return card_obstacle("Some card", major, minor, image, "80-real;90");
  };
  EXPECT_EQ(text(7, 5, cudaErrorNoKernelImageForDevice),
            "Some card is sm_75: the kernels need sm_80 or newer");
  EXPECT_EQ(text(7, 5, cudaSuccess), "Some card is sm_75: the kernels need sm_80 or newer");
  EXPECT_EQ(text(8, 6, cudaErrorNoKernelImageForDevice),
            "Some card is sm_86, and this build has kernels for 80-real;90: configure with "
            "CMAKE_CUDA_ARCHITECTURES=native");
  for (const auto& [major, minor] : {std::pair(8, 0), {8, 9}, {9, 0}, {12, 0}})
    EXPECT_EQ(text(major, minor, cudaSuccess), "");
}

TEST(Tf32Override, IsPartOfALibrarysVersion) {
  unsetenv("NVIDIA_TF32_OVERRIDE");
  EXPECT_EQ(with_tf32_override("13.1.0"), "13.1.0");
  setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  EXPECT_EQ(with_tf32_override("13.1.0"), "13.1.0 with NVIDIA_TF32_OVERRIDE=0");
  unsetenv("NVIDIA_TF32_OVERRIDE");
}

// The arguments passed to cuBLAS, read as cuBLAS reads them: element (i, j) of a matrix is at i + j
// ld.
TEST(ColumnMajorGemm, IsTheRowMajorProduct) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      Gemm g{.m = 3, .n = 4, .k = 5, .transpose_a = transpose_a, .transpose_b = transpose_b};
      g.conjugate_b = transpose_b;
      g.lda = (transpose_a ? g.m : g.k) + 1;
      g.ldb = (transpose_b ? g.k : g.n) + 2;
      g.ldc = g.n + 3;
      g.batch = 2;
      g.stride_a = 31, g.stride_b = 37, g.stride_c = 41;
      const auto a = [](std::int64_t i) { return double(i * i % 11); };
      const auto b = [](std::int64_t i) { return double(i * i % 7); };

      const ColumnMajorGemm s = column_major(g);
      EXPECT_EQ(s.op_second, transpose_a ? Op::transpose : Op::none);
      EXPECT_EQ(s.op_first, transpose_b ? Op::conjugate_transpose : Op::none);
      const auto at = [](Op op, std::int64_t row, std::int64_t column, std::int64_t ld) {
        return op == Op::none ? row + column * ld : column + row * ld;
      };
      for (std::int64_t i = 0; i < s.batch; ++i)
        for (std::int64_t row = 0; row < s.m; ++row)
          for (std::int64_t column = 0; column < s.n; ++column) {
            double by_columns = 0;
            for (std::int64_t k = 0; k < s.k; ++k)
              by_columns += b(i * s.stride_first + at(s.op_first, row, k, s.ld_first)) *
                            a(i * s.stride_second + at(s.op_second, k, column, s.ld_second));
            // The same element of C in row-major order.
            const std::int64_t where = i * s.stride_c + row + column * s.ld_c,
                               in_matrix = where - i * g.stride_c, r = in_matrix / g.ldc,
                               c = in_matrix % g.ldc;
            ASSERT_LT(r, g.m);
            ASSERT_LT(c, g.n);
            double by_rows = 0;
            for (std::int64_t k = 0; k < g.k; ++k)
              by_rows += a(i * g.stride_a + (transpose_a ? k * g.lda + r : r * g.lda + k)) *
                         b(i * g.stride_b + (transpose_b ? c * g.ldb + k : k * g.ldb + c));
            ASSERT_EQ(by_columns, by_rows) << transpose_a << transpose_b;
          }
    }
}

}  // namespace
}  // namespace convlab::cuda
