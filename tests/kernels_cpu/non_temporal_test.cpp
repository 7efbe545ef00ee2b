// The choice of outputs for non-temporal stores, on a device with given caches.
#include "kernels_cpu/gemm/non_temporal.h"

#include <gtest/gtest.h>

#include "conv/problem.h"

namespace convlab {
namespace {

TEST(NonTemporal, TakesWhatExceedsTheCachesAndLongRunsOfZeros) {
  DeviceInfo device;
  device.threads = 2;
  device.l2_bytes = 1 << 20;
  device.l3_bytes = 32 << 20;
  const auto may = [&](const char* text, Pass pass, bool accumulate = false) {
    ConvProblem p = parse_problem(text).problem;
    p.pass = pass;
    p.accumulate = accumulate;
    return cpu::may_store_non_temporal(p, device);
  };
  const char* const strided = "mb16ic64ih56oc128oh28kh1sh2ph0";  // x has 12.8 MB, y 6.4
  EXPECT_TRUE(may(strided, Pass::backward_data));
  EXPECT_FALSE(may(strided, Pass::backward_data, true));  // no zeros are written
  EXPECT_FALSE(may(strided, Pass::forward));
  EXPECT_FALSE(may("mb1ic64ih56oc128oh28kh1sh2ph0", Pass::backward_data));   // 0.8 MB: fits in L2
  EXPECT_FALSE(may("mb16ic64ih56oc128oh28kh3sh2ph1", Pass::backward_data));  // all pixels have taps
  EXPECT_TRUE(may("mb64ic64ih56oc64oh56kh3ph1", Pass::forward));             // 51 MB
  EXPECT_FALSE(may("mb16ic64ih56oc64oh56kh3ph1", Pass::forward));
}

}  // namespace
}  // namespace convlab
