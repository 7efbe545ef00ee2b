// Direct on CUDA, beyond the test over the registry: stride phases, boxes larger than images, tiles
// of every shape, and the split sums of backward_filter.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conv/error.h"
#include "kernels_cuda/on_cpu/access_counts.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/problems.h"

namespace convlab {
namespace {

class CudaDirect : public OneCudaAlgo {
 protected:
  CudaDirect() : OneCudaAlgo("direct") {}

  // Adds the whole epilogue in forward and accumulates in backward. Sums of small integers are
  // exact to the last bit. Without `configs` it takes the algorithm's own.
  void expect_exact(ConvProblem p, std::vector<Config> configs = {}) {
    if (p.pass == Pass::forward)
      p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
    p.accumulate = p.pass != Pass::forward;
    const auto refusal = algo_.refuse(p, *device_);
    ASSERT_FALSE(refusal) << to_text(p) << ": " << refusal->reason();
    if (configs.empty()) configs = algo_.configs(p, *device_);
    const ReferenceCase reference(p, 3, DataKind::small_integers);
    for (const Config& config : configs) expect_right(p, config, reference);
  }
  void expect_exact(const std::string& text) {
    for (const Pass pass : all_passes)
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        expect_exact(problem(text, pass, layout));
  }
};

TEST_F(CudaDirect, StridesLargerThanTheFilterLeaveInputsWithoutTaps) {
  expect_exact("mb2ic9ih13oc17kh3sh5ph1");
  expect_exact("mb1ic8ih17iw11oc8kh2kw1sh3sw7");
}

TEST_F(CudaDirect, DilationAndStrideShareAFactor) {
  expect_exact("mb1ic8ih15oc9kh3sh2dh1ph2");  // dilation 2: odd rows of dx have no tap
  expect_exact("mb1ic8ih19iw14oc9kh4kw3sh6sw4dh3dw5ph3pw5");
  expect_exact("mb1ic8ih15iw20oc9kh3sh3sw2dh4dw1ph4pw1");
}

TEST_F(CudaDirect, FilterLargerThanTheImage) {
  expect_exact("mb2ic8ih2iw3oc9kh5kw7ph2pw3");
  expect_exact("mb3ic9ih1oc8kh3ph1");  // one pixel
}

TEST_F(CudaDirect, PaddingDiffersOnAllSides) {
  expect_exact("mb1ic8ih7iw9oc8oh8ow7kh4kw3ph2pw0");
  expect_exact("mb1ic8ih12iw12oc8oh5ow6kh3kw3sh2sw2ph0pw1");  // rows that no output reads
}

TEST_F(CudaDirect, Groups) {
  expect_exact("g3mb2ic27ih6oc30kh3ph1");
  expect_exact("g37mb2ic37ih9oc37kh3ph1");   // depthwise, more than a warp's channels
  expect_exact("g5mb1ic5ih9oc10kh5sh2ph2");  // two filters per channel, three chunks of taps
}

// Dilations and strides of rows that share a factor, that do not, and that exceed the image: the
// strips of a thread are rows that lie dilation / gcd apart.
TEST_F(CudaDirect, StripsOfEveryStrideAndDilation) {
  for (const char* text :
       {"g6mb1ic6ih31iw9oc6kh3sh1dh2ph3", "g6mb1ic6ih31iw9oc6kh5sh2dh3ph4",
        "g6mb1ic6ih31iw9oc6kh4sh4dh1ph2", "g6mb1ic6ih31iw9oc6kh3sh6dh3ph4",
        "g6mb1ic6ih9iw9oc12kh3sh1dh12ph13", "g33mb2ic66ih17iw33oc99kh9kw2sh1ph4pw0"})
    for (const Pass pass : {Pass::forward, Pass::backward_data})
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        for (const char* config : {"kernel=plain,rows=4", "kernel=plain,rows=8"})
          expect_exact(problem(text, pass, layout), {Config::parse(config)});
}

TEST_F(CudaDirect, Depth) {
  expect_exact("mb2ic9id5ih6oc17kd3kh3pd1ph1");
  expect_exact("mb1ic8id7ih9iw7oc9od4kd3kh3kw2sd2sh2sw1pd1ph1pw0dd0dh1dw0");
  expect_exact("mb1ic8id11ih5oc9od5oh5kd3kh3sd2dd2pd1ph1");  // dilation and stride in depth
  expect_exact("mb1ic8id9ih5oc9kd3kh3sd3sh1dd2pd3ph1");      // a common factor, phases without taps
  expect_exact("mb2ic8id3ih5oc9od6oh5kd4kh1pd4ph0");         // slices of padding, asymmetric
  expect_exact("mb1ic8id1ih7oc9od2oh7kd2kh3sd3sh1pd2ph1");   // outputs of padding alone
  expect_exact("g33mb2ic33id4ih9oc66kd3kh3sd2sh2pd1ph1");    // depthwise, two filters a channel
  expect_exact("g3mb2ic27id3ih6oc30kd3kh3pd1ph1");
}

TEST_F(CudaDirect, TilesOfEveryShape) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    for (const int width : {8, 16, 32})
      for (const char* tile :
           {"k=16,pixels=4,warps=2", "k=8,pixels=4,warps=1", "k=8,pixels=2,warps=4"}) {
        const Config config = Config::parse(fmt::format("kernel=staged,{},width={}", tile, width));
        for (const Pass pass : {Pass::forward, Pass::backward_data})
          expect_exact(problem("mb1ic35ih18iw37oc41kh3sh2ph1", pass, layout), {config});
      }
}

TEST_F(CudaDirect, SplitSumsOfEveryCount) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    for (const char* config : {"kernel=staged,warps=1,split=1", "kernel=staged,warps=2,split=3",
                               "kernel=staged,warps=4,split=500",  // more than there are tiles
                               "kernel=plain,split=1", "kernel=plain,split=7"})
      expect_exact(problem("mb3ic17ih9iw13oc19kh3ph1", Pass::backward_filter, layout),
                   {Config::parse(config)});
}

TEST_F(CudaDirect, DoubleToTheLastBit) {
  for (const Pass pass : all_passes)
    for (const Layout layout : {Layout::nchw, Layout::nhwc})
      expect_exact(problem("mb2ic19ih11oc35kh3sh2ph1", pass, layout, DType::f64));
}

// Only the stored result is rounded to 16 bits.
TEST_F(CudaDirect, HalfTypesAreSummedInSingle) {
  for (const auto& [dtype, error] : {std::pair{DType::f16, 4e-4}, std::pair{DType::bf16, 3e-3}})
    for (const Pass pass : all_passes)
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        ConvProblem p = problem("mb2ic24ih11oc36kh3sh2ph1", pass, layout, dtype);
        if (pass == Pass::forward)
          p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
        const ReferenceCase reference(p, 3);
        for (const Config& config : algo_.configs(p, *device_))
          expect_right(p, config, reference, error);
      }
}

TEST_F(CudaDirect, MainLoopsHaveNoBankConflicts) {
  if (reduced()) GTEST_SKIP() << "sanitizers see nothing in counts, and slow them down";
  for (const char* text : {"mb1ic16ih32oc64kh3ph1", "mb1ic16ih32oc64kh3sh2ph1",
                           "mb1ic16ih14oc64kh3ph1", "mb1ic16ih7oc64kh1"})
    for (const Pass pass : all_passes) {
      const ConvProblem p = problem(text, pass);
      const ReferenceCase reference(p, 3, DataKind::small_integers);
      for (const Config& config : algo_.configs(p, *device_)) {
        if (config.choice("kernel") == "plain") continue;
        const auto counts = on_cpu::count_accesses(
            [&] { check_candidate(algo_, p, config, reference, *device_, *stream_, 0); });
        int loads = 0;
        for (const on_cpu::AccessCount& count : counts) {
          if (count.kind != on_cpu::AccessKind::shared_load) continue;
          ++loads;
          EXPECT_EQ(count.transactions, count.least)
              << fmt::format("'{}' {} {}: {}:{}", config.text(), to_string(pass), text,
                             count.site.file, count.site.line);
        }
        EXPECT_EQ(loads, 2);  // filters or dy, and x
      }
    }
}

TEST_F(CudaDirect, SaysWhatIsWrongWithAConfig) {
  const ConvProblem p = problem("mb1ic8ih9oc8kh3", Pass::forward);
  const auto expect_wrong = [&](const ConvProblem& of, const char* config) {
    EXPECT_THROW(algo_.plan(of, Config::parse(config), *device_), InputError) << config;
  };
  expect_wrong(p, "kernel=tiled");
  expect_wrong(p, "kernel=1");
  expect_wrong(p, "kernel=staged,k=5,pixels=4,warps=4,width=8");
  expect_wrong(p, "kernel=staged,k=8,pixels=4,warps=4,width=9");
  expect_wrong(problem("mb1ic8ih500oc128kh41sh10", Pass::forward),
               "kernel=staged,k=16,pixels=4,warps=8,width=32");
}

}  // namespace
}  // namespace convlab
