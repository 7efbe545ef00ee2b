// The conversion of CUPTI's records, and the message if CUPTI refuses.
#include "kernels_cuda/device/kernel_log.h"

#include <gtest/gtest.h>

#include <array>

#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#if __has_include(<cupti.h>)
#include <cupti.h>

namespace convlab {
namespace {

#if CUPTI_API_VERSION >= 130000
using Record = CUpti_ActivityKernel10;
#else
using Record = CUpti_ActivityKernel9;
#endif

TEST(KernelLog, KeepsWhatRanWithItsName) {
  try {
    cuda::kernel_runs(nullptr, 0);
  } catch (const EnvironmentError& error) {
    if (std::string(error.what()).find("libcupti") != std::string::npos)
      GTEST_SKIP() << error.what();
  }
  // Records laid out contiguously, each of the size that the library has for its kind.
  std::array<Record, 3> records{};
  for (auto& record : records) record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  records[0].start = 1'000'000;
  records[0].end = 3'500'000;
  records[0].name = "_ZN7convlab4cuda4copyEPf";
  records[1].start = 5;
  records[1].end = 4;  // of a kernel truncated by the end of the buffer
  records[1].name = "lost";
  records[2].start = 4'000'000;
  records[2].end = 4'000'500;
  records[2].name = "cudnn_ampere_scudnn_128x64_relu_interior_nn_v1";
  const std::vector<KernelRun> runs =
      cuda::kernel_runs(reinterpret_cast<std::byte*>(records.data()), sizeof records);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].name, "convlab::cuda::copy(float*)");
  EXPECT_DOUBLE_EQ(runs[0].ms, 2.5);
  EXPECT_EQ(runs[1].name, "cudnn_ampere_scudnn_128x64_relu_interior_nn_v1");
  EXPECT_NEAR(runs[1].ms, 0.0005, 1e-12);
}

TEST(KernelLog, SaysInOneLineWhyThereIsNone) {
  try {
    cuda::start_kernel_log();
    EXPECT_TRUE(cuda::finish_kernel_log().empty());  // nothing ran on a card in between
  } catch (const EnvironmentError& error) {
    const std::string says = error.what();
    EXPECT_TRUE(says.starts_with("CUPTI: ")) << says;
    EXPECT_EQ(says.find('\n'), std::string::npos) << says;
  }
}

}  // namespace
}  // namespace convlab
#endif
