#include <fmt/format.h>
#include <gtest/gtest.h>

#include "autotune/testbed/verify.h"
#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

class OneDnn : public testing::Test {
 protected:
  void SetUp() override {
    append_cpu_algos(registry_);
    if (registry_.find(DeviceKind::cpu, "onednn.direct") == nullptr)
      GTEST_SKIP() << "built without oneDNN";
  }

  const ConvAlgo& direct() const { return registry_.get(DeviceKind::cpu, "onednn.direct"); }

  // Every layout pair of the problem on one reference; returns how many were not refused.
  int check_layouts(const ConvAlgo& algo, ConvProblem p, double max_error) {
    const ReferenceCase reference(p, 1);
    int checked = 0;
    for (Layout x : all_layouts)
      for (Layout y : all_layouts) {
        p.x_layout = x;
        p.y_layout = y;
        if (algo.refuse(p, *device_)) continue;
        for (const Config& config : algo.configs(p, *device_)) {
          const auto verdict =
              check_candidate(algo, p, config, reference, *device_, *stream_, max_error);
          EXPECT_EQ(verdict.status, Status::ok)
              << fmt::format("{} {} {} to {}: {}", to_string(p.pass), config.text(), to_string(x),
                             to_string(y), verdict.reason);
          ++checked;
        }
      }
    return checked;
  }

  AlgoRegistry registry_;
  std::unique_ptr<Device> device_ = make_cpu_device();
  std::unique_ptr<Stream> stream_ = device_->make_stream();
};

ConvProblem problem(std::string_view text) { return parse_problem(text).problem; }

const char* const plain = "mb2ic32ih14oc32kh3ph1";
const char* const first = "mb1ic3ih19iw23oc16kh7sh2ph3";
const char* const ragged_pointwise = "mb1ic20ih9iw7oc24kh1sh2";
const char* const dilated = "mb1ic16ih15oc16oh12ow11kh3dh1dw2ph0pw1";  // asymmetric padding
const char* const grouped = "g2mb2ic32ih14oc32kh3ph1";
const char* const depthwise = "g32mb2ic32ih14oc32kh3ph1";

TEST_F(OneDnn, DirectAgreesWithTheReference) {
  for (const char* text : {plain, first, ragged_pointwise, dilated, grouped, depthwise})
    for (Pass pass : all_passes) {
      ConvProblem p = problem(text);
      p.pass = pass;
      EXPECT_GT(check_layouts(direct(), p, 1e-5), 0) << to_string(pass) << " " << text;
    }
}

TEST_F(OneDnn, WinogradAgreesWithTheReference) {
  const ConvAlgo* winograd = registry_.find(DeviceKind::cpu, "onednn.winograd");
  if (winograd == nullptr) GTEST_SKIP() << "oneDNN 3.x has no Winograd";
  if (device_->info().isa != "avx512") GTEST_SKIP() << "oneDNN's Winograd needs avx512";
  ConvProblem p = problem(plain);
  EXPECT_GT(check_layouts(*winograd, p, 1e-4), 0);
  EXPECT_TRUE(winograd->refuse(problem("mb2ic32ih14oc32kh3sh2ph1"), *device_));
}

// In width it may differ.
TEST_F(OneDnn, WinogradRefusesOtherPaddingBelowThanAboveInBackwardData) {
  const ConvAlgo* winograd = registry_.find(DeviceKind::cpu, "onednn.winograd");
  if (winograd == nullptr) GTEST_SKIP() << "oneDNN 3.x has no Winograd";
  if (device_->info().isa != "avx512") GTEST_SKIP() << "oneDNN's Winograd needs avx512";
  for (const Pass pass : all_passes) {
    ConvProblem p = problem("mb1ic32ih13oc32oh12kh3ph0");
    p.pass = pass;
    EXPECT_EQ(check_layouts(*winograd, p, 1e-4) > 0, pass != Pass::backward_data);
    p = problem("mb1ic32ih13oc32oh11ow12kh3ph0");
    p.pass = pass;
    EXPECT_GT(check_layouts(*winograd, p, 1e-4), 0);
  }
}

TEST_F(OneDnn, FusesTheEpilogueAndAccumulates) {
  ConvProblem p = problem(plain);
  p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
  EXPECT_GT(check_layouts(direct(), p, 1e-5), 0);
  p.epilogue = {};
  p.accumulate = true;
  EXPECT_GT(check_layouts(direct(), p, 1e-5), 0);
}

TEST_F(OneDnn, RefusesRatherThanFallBack) {
  ConvProblem p = problem(plain);
  p.x_layout = Layout::nchw16c;
  p.y_layout = Layout::nhwc;
  const auto refusal = direct().refuse(p, *device_);
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->reason().find("reference loops"), std::string::npos) << refusal->reason();

  p = problem(plain);
  p.dtype = DType::f64;
  EXPECT_TRUE(direct().refuse(p, *device_));
}

// oneDNN 2.6.3 reads its own ReLU's constants through a null pointer here; ours runs after it.
TEST_F(OneDnn, TakesAResidualAndReLUWhereItsOwnReLUCrashes) {
  if (device_->info().isa != "avx512") GTEST_SKIP() << "its brgconv needs avx512";
  ConvProblem p = problem("mb4ic64ih2iw22oc64oh2ow22kh1ph0");
  p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
  EXPECT_GT(check_layouts(direct(), p, 1e-5), 1);
}

TEST_F(OneDnn, RefusesToAddWherePixelsReadPaddingOnly) {
  if (device_->info().isa != "avx512") GTEST_SKIP() << "its brgconv needs avx512";
  ConvProblem p = problem("mb4ic64ih1iw22oc64oh2ow22kh1ph0");
  p.epilogue = {.bias = true};
  EXPECT_GT(check_layouts(direct(), p, 1e-5), 1);
  p.epilogue.residual = true;
  EXPECT_GT(check_layouts(direct(), p, 1e-5), 0);
  p.x_layout = p.y_layout = Layout::nhwc;
  EXPECT_TRUE(direct().refuse(p, *device_));
}

TEST_F(OneDnn, RefusesWhereItIsWrong) {
  if (device_->info().isa != "avx2") GTEST_SKIP() << "its 1x1 kernel of avx2";
  for (const char* text :
       {"mb2ic4ih12oc8oh6kh1sh2", "mb2ic6ih12oc24oh6kh1sh2", "mb2ic4ih12oc8oh12ow6kh1sw2"}) {
    ConvProblem p = problem(text);
    p.pass = Pass::backward_filter;
    EXPECT_GT(check_layouts(direct(), p, 1e-5), 0) << text;
    p.x_layout = p.y_layout = Layout::nhwc;
    EXPECT_TRUE(direct().refuse(p, *device_)) << text;
    p.c = 8;
    EXPECT_FALSE(direct().refuse(p, *device_)) << text;
  }
}

// oneDNN's ISA limit can be set only once per process.
TEST_F(OneDnn, RefusesADeviceOnAnotherIsaThanItsOwn) {
  const ConvProblem p = problem(plain);
  ASSERT_FALSE(direct().refuse(p, *device_));
  const std::string worst = supported_isas().front();
  if (device_->info().isa == worst) GTEST_SKIP() << "no second ISA to ask for";
  const auto other = make_cpu_device({.threads = 0, .isa = worst});
  EXPECT_TRUE(direct().refuse(p, *other));
  device_ = make_cpu_device();  // restores the process's ISA
}

}  // namespace
}  // namespace convlab
