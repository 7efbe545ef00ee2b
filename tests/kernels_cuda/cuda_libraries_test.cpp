// cuBLAS, cuFFT, cuDNN and NCCL, which load without a card, have every function that is called
// here.
#include <gtest/gtest.h>

#include "kernels_cuda/fft/cufft_calls.h"
#include "kernels_cuda/gemm/cublas_calls.h"
#include "kernels_cuda/vendor.h"
#if CONVLAB_HAVE_CUDNN
#include "kernels_cuda/cudnn/calls.h"
#endif
#if CONVLAB_HAVE_NCCL
#include "kernels_cuda/nccl/nccl_calls.h"
#endif

namespace convlab::cuda {
namespace {

// A missing library is skipped; a library without a function fails.
void expect_complete(LazyLibrary& library) {
  const std::string obstacle = library.obstacle();
  if (obstacle.find("cannot open shared object file") != std::string::npos)
    GTEST_SKIP() << obstacle;
  EXPECT_EQ(obstacle, "");
}

TEST(CudaLibraries, CublasHasWhatIsCalled) { expect_complete(cublas_library); }
TEST(CudaLibraries, CufftHasWhatIsCalled) { expect_complete(cufft_library); }
#if CONVLAB_HAVE_CUDNN
TEST(CudaLibraries, CudnnHasWhatIsCalled) { expect_complete(cudnn_library); }
#endif
#if CONVLAB_HAVE_NCCL
TEST(CudaLibraries, NcclHasWhatIsCalled) { expect_complete(nccl_library); }
#endif

// Also with limited memory, or with a broken library in LD_LIBRARY_PATH.
TEST(CudaLibraries, AlgorithmsRefuseWithoutTheirs) {
  const auto refusal = [](const char* library) {
    return refuse_missing_libraries({.id = "", .summary = "", .libraries = {"driver", library}});
  };
  const auto reason = [](const std::optional<Refusal>& r) { return r ? r->reason() : ""; };
  EXPECT_EQ(reason(refusal("cublas")), cublas_library.obstacle());
  EXPECT_EQ(reason(refusal("cufft")), cufft_library.obstacle());
  EXPECT_FALSE(refusal("cuda"));
}

}  // namespace
}  // namespace convlab::cuda
