// Parts of a batch begin where vector accesses, and cuDNN's promise of them, may.
#include "nets/run/batched_conv.h"

#include <gtest/gtest.h>

#include "kernels_cpu/cpu.h"
#include "nets/plan/conv_choice.h"
#include "tests/kernels_cuda/one_algo.h"

namespace convlab::nets {
namespace {

PassPlan in_parts(std::int64_t images) {
  PassPlan plan;
  plan.images = images;
  return plan;
}

// Images of 588 and 980 bytes in f32: four of each are multiples of 16.
ConvProblem odd_images(std::int64_t batch, DType dtype = DType::f32) {
  ConvProblem p = problem("mb1ic3ih7oc5oh7kh3ph1", Pass::forward, Layout::nchw, dtype);
  p.n = batch;
  return p;
}

TEST(CudaBatchedConv, RefusesPartsThatBeginBetweenTwoVectors) {
  const ConvAlgo& algo = cuda_algo("direct");
  const auto card = make_cuda_device();
  const auto reason = [&](std::int64_t images) {
    const auto refusal = BatchedConv::refuse(algo, odd_images(8), in_parts(images), *card);
    return refusal ? refusal->reason() : "";
  };
  EXPECT_EQ(reason(1),
            "needs parts whose bytes are multiples of 16, has 588 and 980 bytes in 1 images");
  EXPECT_NE(reason(2), "");
  for (const std::int64_t images : {4, 0, 8}) EXPECT_EQ(reason(images), "") << images;

  AlgoRegistry registry;
  append_cpu_algos(registry);
  const auto cpu = make_cpu_device();
  EXPECT_FALSE(BatchedConv::refuse(registry.get(DeviceKind::cpu, "direct_plain"), odd_images(8),
                                   in_parts(1), *cpu));
}

// Channels are padded in the workspace: 6400 bytes for 8 images, 3328 for 4.
TEST(CudaBatchedConv, ChoosesNoSuchParts) {
  const auto card = make_cuda_device();
  const ChooseOptions options{
      .mode = Mode::inference, .dtype = DType::bf16, .algos = {"implicit_gemm"}};
  ConvChoices choices(options, cuda_registry(), *card, ceilings_of(*card), nullptr);
  const ConvProblem p = odd_images(32, DType::bf16);
  const auto best = [&](std::int64_t bytes) {
    return choices.best(p, {Layout::nchw, Layout::nchw}, {.workspace = bytes}, true);
  };
  ASSERT_TRUE(best(25088));
  EXPECT_EQ(best(25088)->plan.images, 0);
  ASSERT_TRUE(best(6400));
  EXPECT_EQ(best(6400)->plan.images, 8);
  EXPECT_FALSE(best(6000));
  EXPECT_GE(choices.least_workspace(p, {Layout::nchw, Layout::nchw}).value_or(0), 6400);
}

}  // namespace
}  // namespace convlab::nets
