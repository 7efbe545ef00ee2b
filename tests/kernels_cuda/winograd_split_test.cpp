// Fused winograd with its sum over channels split among blocks, executed on the CPU and as nvcc
// made it. What is listed for which card is in winograd_test.cpp.
#include <fmt/format.h>

#include <vector>

#include "conv/error.h"
#include "kernels_cuda/on_cpu/schedule.h"
#include "tests/kernels_cuda/one_algo.h"

namespace convlab {
namespace {

class CudaWinogradSplit : public OneCudaAlgo {
 protected:
  CudaWinogradSplit() : OneCudaAlgo("winograd") {}

  static Config config(int tile, int split, const char* math = "f32") {
    return {{"tile", tile}, {"schedule", "fused"}, {"math", math}, {"split", split}};
  }
};

// 21 channels are chunks of 8, 8 and 5, which two parts share unevenly; 37 are five chunks. The
// epilogue's ReLU is wrong if applied to parts, and so is what accumulates.
TEST_F(CudaWinogradSplit, IsRight) {
  for (const Pass pass : {Pass::forward, Pass::backward_data})
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      ConvProblem p = problem("mb2ic21ih7iw9oc37kh3ph1", pass, layout);
      if (pass == Pass::forward)
        p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
      else
        p.accumulate = true;
      const ReferenceCase reference(p, 12);
      for (const int tile : {2, 4})
        for (const int split : {2, 3})
          for (const char* math : {"f32", "tf32x3"})
            expect_right(p, config(tile, split, math), reference, 2e-5);
    }
}

TEST_F(CudaWinogradSplit, IsDeterministic) {
  const ConvProblem p = problem("mb1ic32ih7oc40kh3ph1", Pass::forward);
  const ReferenceCase reference(p, 13);
  std::vector<std::vector<std::byte>> results;
  const unsigned seed = on_cpu::config.seed;
  for (const unsigned schedule : {0u, 5u, 6u}) {
    on_cpu::config.seed = schedule;
    Operands operands(reference, p, *device_, *stream_);
    GuardedBuffer workspace;
    Trial trial(algo_, config(4, 4), operands, workspace, *device_, *stream_);
    EXPECT_EQ(trial.check(reference, 2e-5).status, Status::ok);
    const auto* out = static_cast<const std::byte*>(operands.args().out);
    results.emplace_back(out, out + p.output_bytes());
  }
  on_cpu::config.seed = seed;
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_F(CudaWinogradSplit, SaysItsWorkspaceAndPhases) {
  const ConvProblem p = problem("mb1ic64ih7oc48oh7kh3ph1", Pass::forward);
  const double out = double(p.output_bytes());
  EXPECT_EQ(algo_.plan(p, config(4, 1), *device_)->workspace_bytes(), 0);
  EXPECT_EQ(algo_.plan(p, config(4, 3), *device_)->workspace_bytes(), 3 * p.output_bytes());
  const WorkEstimate whole = algo_.work(p, config(4, 1), *device_);
  const WorkEstimate split = algo_.work(p, config(4, 3), *device_);
  ASSERT_EQ(whole.phases.size(), 1);
  ASSERT_EQ(split.phases.size(), 2);
  EXPECT_EQ(whole.phases[0].bytes_written, out);
  EXPECT_EQ(split.phases[0].bytes_written, 3 * out);
  EXPECT_EQ(split.phases[0].bytes_read, whole.phases[0].bytes_read);
  EXPECT_EQ(split.phases[1].name, "add_parts");
  EXPECT_EQ(split.phases[1].bytes_read, 3 * out);
  EXPECT_EQ(split.phases[1].bytes_written, out);
}

TEST_F(CudaWinogradSplit, RefusesPartsWithoutChannels) {
  const ConvProblem p = problem("mb1ic36ih7oc48oh7kh3ph1", Pass::forward);
  EXPECT_NE(algo_.plan(p, config(4, 5), *device_), nullptr);
  for (const int split : {0, 6}) try {
      algo_.plan(p, config(4, split), *device_);
      ADD_FAILURE() << split;
    } catch (const InputError& error) {
      EXPECT_EQ(error.what(),
                fmt::format("winograd's split={}: expected 1 to 5 with 36 channels", split));
    }
}

}  // namespace
}  // namespace convlab
