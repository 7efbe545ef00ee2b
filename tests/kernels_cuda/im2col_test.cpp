// Im2col on CUDA, beyond the test over the registry: chunks of rows and of images, x as the column
// matrix, groups as batches, runs of channels that fill vectors or do not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conv/error.h"
#include "conv/types/math_type.h"
#include "tests/kernels_cuda/one_algo.h"

namespace convlab {
namespace {

class CudaIm2col : public OneCudaAlgo {
 protected:
  CudaIm2col() : OneCudaAlgo("im2col") {}

  // Sums of small integers are exact to the last bit: with epilogue, accumulating, and plain.
  void expect_exact(const std::string& text, std::vector<std::int64_t> rows,
                    DType dtype = DType::f32) {
    for (const Pass pass : all_passes)
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        for (const bool more : {false, true}) {
          ConvProblem p = problem(text, pass, layout, dtype);
          if (more && pass == Pass::forward) p.epilogue = {true, true, ActivationKind::relu};
          if (more && pass != Pass::forward) p.accumulate = true;
          const auto refusal = algo_.refuse(p, *device_);
          ASSERT_FALSE(refusal) << text << ": " << refusal->reason();
          const ReferenceCase reference(p, 5, DataKind::small_integers);
          for (const std::int64_t count : rows)
            expect_right(p, with_math({{"rows", count}}, dtype, MathType::f32), reference);
        }
  }
};

TEST_F(CudaIm2col, ChunksOfRowsAndOfImages) {
  // 7 output rows per image. Chunks: one row; three, with a remainder of one; an image; two images,
  // with a remainder of one; all.
  expect_exact("mb3ic5ih7iw9oc6kh3ph1", {1, 3, 7, 14, 21});
  expect_exact("mb3ic4ih13iw6oc3kh3kw2sh2ph1pw1", {2, 7, 14});  // vectors of channels in NHWC
}

TEST_F(CudaIm2col, ChunksThatReachNoInputOrAllOfIt) {
  expect_exact("mb1ic3ih4iw5oc4kh5ph4pw2", {1, 3, 8});    // first and last rows see padding only
  expect_exact("mb2ic3ih6oc4kh3dh2ph3", {1, 2});          // dilation: chunks interleave in dx
  expect_exact("mb2ic3ih17iw11oc4kh2kw3sh5sw4", {1, 3});  // rows of dx that no tap reaches
}

TEST_F(CudaIm2col, PointwiseFindsItsColumnsInX) {
  expect_exact("mb3ic9ih5iw7oc10kh1", {2, 5, 10, 15});
  expect_exact("g3mb2ic12ih5oc9kh1", {5, 10});
  expect_exact("mb2ic9ih5oc10kh1sh2", {3, 6});     // x is not the column matrix with a stride
  expect_exact("mb2ic3ih5oc4oh7kh1ph1", {7, 14});  // nor with padding
}

TEST_F(CudaIm2col, GroupsAreBatches) {
  expect_exact("g2mb5ic6ih6oc8kh3ph1", {3, 12, 30});   // more images than groups
  expect_exact("g5mb2ic20ih6oc10kh3ph1", {6, 12});     // fewer
  expect_exact("g35mb2ic35ih5oc70kh3sh2ph1", {3, 6});  // two filters per channel
}

TEST_F(CudaIm2col, OnePixelAndManyTaps) {
  expect_exact("mb3ic7ih1oc5kh3ph1", {1, 2, 3});
  expect_exact("mb2ic8ih7oc5kh7ph0",
               {1, 2});  // one run for each row of the filter, wider than a warp
}

TEST_F(CudaIm2col, SeveralBlocksOfPixelsAndChannels) {
  expect_exact("mb2ic40ih19iw17oc9kh3ph1", {19, 38}, DType::f32);
  expect_exact("mb2ic6ih19iw17oc9kh3ph1", {19, 38}, DType::f64);
}

TEST_F(CudaIm2col, HalfTypes) {
  for (const auto& [dtype, error] : {std::pair{DType::f16, 1e-3}, std::pair{DType::bf16, 8e-3}})
    for (const Pass pass : all_passes)
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        for (const char* text : {"mb3ic8ih9oc6kh3ph1", "mb3ic5ih9oc6kh3ph1"}) {
          const ConvProblem p = problem(text, pass, layout, dtype);
          const ReferenceCase reference(p, 5);
          for (const std::int64_t rows : {4, 18})
            expect_right(p, {{"rows", rows}}, reference, error);
        }
}

TEST_F(CudaIm2col, WorkspaceFollowsTheRows) {
  const ConvProblem p = problem("mb4ic8ih16oc8kh3ph1", Pass::forward);
  const auto bytes = [&](std::int64_t rows) {
    return algo_.plan(p, {{"rows", rows}, {"math", "f32"}}, *device_)->workspace_bytes();
  };
  EXPECT_EQ(bytes(2), 8 * 9 * 2 * 16 * 4);
  EXPECT_EQ(bytes(64), 8 * 9 * 64 * 16 * 4);
  EXPECT_THROW(bytes(24), InputError);  // neither within an image nor whole images
  EXPECT_THROW(bytes(80), InputError);
  const ConvProblem pointwise = problem("mb4ic8ih16oc8kh1", Pass::forward);
  const auto plan = algo_.plan(pointwise, {{"rows", 64}, {"math", "f32"}}, *device_);
  EXPECT_EQ(plan->workspace_bytes(), 0);
}

TEST_F(CudaIm2col, DefaultIsStrictAndTf32IsLessExact) {
  const ConvProblem p = problem("mb1ic9ih8oc8kh3ph1", Pass::forward);
  const std::vector<Config> configs = algo_.configs(p, *device_);
  EXPECT_EQ(configs.front().choice("math"), "f32");
  const ReferenceCase reference(p, 5);
  const auto error = [&](const Config& config) {
    return check_candidate(algo_, p, config, reference, *device_, *stream_, 1e-2).rel_error;
  };
  EXPECT_LT(error(configs.front()), 1e-6);
  EXPECT_EQ(configs.back().choice("math"), "tf32");
  EXPECT_GT(error(configs.back()), 1e-5);
}

TEST_F(CudaIm2col, RejectsMathThatCublasLacks) {
  const ConvProblem p = problem("mb1ic9ih8oc8kh3ph1", Pass::forward);
  for (const char* config : {"rows=8,math=tf32x3", "rows=8,math=1", "rows=8"})
    EXPECT_THROW(algo_.plan(p, Config::parse(config), *device_), InputError) << config;
  const ConvProblem f16 = problem("mb1ic9ih8oc8kh3ph1", Pass::forward, Layout::nchw, DType::f16);
  EXPECT_THROW(algo_.plan(f16, {{"rows", 8}, {"math", "f32"}}, *device_), InputError);
}

}  // namespace
}  // namespace convlab
