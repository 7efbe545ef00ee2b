#include "kernels_cpu/gemm/openblas.h"

#include <gtest/gtest.h>

namespace convlab {
namespace {

TEST(OpenBlas, AdvisesKernelsThatUseTheIsa) {
  EXPECT_EQ(advisable_openblas_core("Haswell", "avx512"), "SkylakeX");
  EXPECT_EQ(advisable_openblas_core("Zen", "avx512"), "SkylakeX");
  EXPECT_EQ(advisable_openblas_core("Prescott", "avx512"), "SkylakeX");
  EXPECT_EQ(advisable_openblas_core("SkylakeX", "avx512"), "");
  EXPECT_EQ(advisable_openblas_core("Sapphirerapids", "avx512"), "");
  EXPECT_EQ(advisable_openblas_core("Nehalem", "avx2"), "Haswell");
  EXPECT_EQ(advisable_openblas_core("Zen", "avx2"), "");
  EXPECT_EQ(advisable_openblas_core("SkylakeX", "avx2"), "Haswell");
  EXPECT_EQ(advisable_openblas_core("Prescott", "baseline"), "");
}

TEST(OpenBlas, RestartsOnceAndRespectsTheUsersChoice) {
  const OpenBlasInfo wrong{"0.3.21", "Haswell", true, "SkylakeX"};
  const OpenBlasInfo right{"0.3.21", "SkylakeX", true, ""};
  EXPECT_EQ(openblas_core_to_restart_with(wrong, false, false), "SkylakeX");
  EXPECT_EQ(openblas_core_to_restart_with(wrong, true, false), "");
  EXPECT_EQ(openblas_core_to_restart_with(wrong, false, true), "");
  EXPECT_EQ(openblas_core_to_restart_with(right, false, false), "");
}

TEST(OpenBlas, ReportsTheLoadedBuild) {
  const OpenBlasInfo info = openblas_info();
  EXPECT_TRUE(info.version.starts_with("0.")) << info.version;
  EXPECT_FALSE(info.core.empty());
  EXPECT_NE(info.text().find(info.core), std::string::npos);
}

}  // namespace
}  // namespace convlab
