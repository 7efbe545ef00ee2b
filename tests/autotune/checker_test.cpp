#include "autotune/race/checker.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels_cpu/cpu.h"
#include "tests/autotune/test_algos.h"

namespace convlab {
namespace {

class CheckerTest : public testing::Test {
 protected:
  CheckerTest() {
    append_test_algos(algos_.conv);
    problem_ = parse_problem("mb1ic4ih5oc4oh5kh3ph1").problem;
  }
  CheckResult check(const std::string& algo, double max_error = 1e-5) {
    Candidate c;
    c.algo = algo;
    return checker_.check(problem_, c, max_error);
  }

  Algos algos_;
  const std::unique_ptr<Device> device_ = make_cpu_device({1, ""});
  Checker checker_{algos_, *device_, 1};
  ConvProblem problem_;
};

// In this process nothing runs any more after "loser".
TEST_F(CheckerTest, ACandidateThatLosesTheDeviceLosesItself) {
  EXPECT_EQ(check("plain").status, Status::ok);
  EXPECT_EQ(checker_.losses(), 0);
  const CheckResult lost = check("loser");
  EXPECT_EQ(lost.status, Status::failed);
  EXPECT_EQ(lost.reason, "the device is gone");
  EXPECT_TRUE(std::isinf(lost.rel_error));

  const CheckResult after = check("plain");
  EXPECT_EQ(after.status, Status::ok) << after.reason;
  EXPECT_LT(after.rel_error, 1e-6);
  EXPECT_EQ(check("chooser").reason, "");
  EXPECT_EQ(check("sloppy").status, Status::inaccurate);
  EXPECT_EQ(check("sloppy", 1e-2).status, Status::ok);
  EXPECT_EQ(check("greedy").status, Status::refused);
}

TEST_F(CheckerTest, TheProcessesThatFollowMayBeLostAsWell) {
  check("loser");
  for (const char* algo : {"loser", "abort"}) {
    EXPECT_EQ(check(algo).status, Status::failed) << algo;
    EXPECT_EQ(check("plain").status, Status::ok) << algo;
  }
  EXPECT_EQ(checker_.losses(), 3);
}

}  // namespace
}  // namespace convlab
