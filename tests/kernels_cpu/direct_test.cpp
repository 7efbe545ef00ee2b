// The family direct, beyond the test over the registry: non-temporal stores, which only large
// outputs are offered; small groups, packed several to a vector; a first layer with more rows than
// its window slides down; one whose dy does not fit in the caches at once; and gradients of 3x3
// filters computed in parts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conv/error.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "tests/kernels_cpu/expect_exact.h"

namespace convlab {
namespace {

class Direct : public testing::TestWithParam<std::string> {
 protected:
  ConvProblem problem(const char* text, Pass pass, bool plain_x) const {
    return blocked_problem(text, pass, GetParam(), plain_x);
  }
  void check(const ConvAlgo& algo, const ConvProblem& p, bool stream = false) {
    expect_exact(algo, p, GetParam(), [&](std::vector<Config>& configs) {
      for (Config& config : configs)
        if (stream) config = cpu::with_nontemporal_stores(config);
    });
  }
  const std::unique_ptr<ConvAlgo> direct_ = cpu::make_direct();
  const std::unique_ptr<ConvAlgo> first_layer_ = cpu::make_direct_first_layer();
};

TEST_P(Direct, StreamsItsResults) {
  ConvProblem p = problem("mb2ic48ih9oc40oh9kh3ph1", Pass::forward, false);
  p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
  check(*direct_, p, true);
  check(*direct_, problem("mb2ic33ih14oc20oh7kh3sh2ph1", Pass::backward_data, false), true);
  check(*first_layer_, problem("mb2ic3ih19oc40oh19kh3ph1", Pass::forward, true), true);
}

// Tiles end with the line when each line leaves half a tile: 7 or 21 pixels.
TEST_P(Direct, EndsTilesWithShortLines) {
  for (const char* text : {"mb2ic24ih13iw41oc40oh7ow21kh3sh2ph1", "mb3ic16ih9iw7oc33oh9ow7kh5ph2"})
    for (const Pass pass : {Pass::forward, Pass::backward_data})
      check(*direct_, problem(text, pass, false));
}

// Thread shares begin within images, strides exceed the filter, and taps skip rows.
TEST_P(Direct, SlidesDownAFirstLayersRows) {
  for (const char* text :
       {"mb4ic3ih37iw20oc20oh37ow20kh3ph1", "mb2ic2ih90iw21oc18oh30ow7kh2sh3ph0",
        "mb1ic4ih77iw17oc34oh20ow5kh1sh4ph0", "mb1ic3ih60iw40oc16oh30ow20kh3sh2ph2dh1",
        "mb2ic3ih120iw40oc20oh29ow9kh11sh4ph2"})
    for (const Pass pass : {Pass::forward, Pass::backward_filter})
      check(*first_layer_, problem(text, pass, true));
}

TEST_P(Direct, TakesAFirstLayersGradientInBands) {
  for (const char* text :
       {"mb2ic3ih15iw65oc520oh8ow33kh3sh2ph1", "mb1ic1ih12iw70oc512oh12ow70kh3ph1",
        "mb1ic2ih20iw90oc300oh5ow22kh5kw7sh4sw4ph2pw3",
        "mb1ic4ih18iw40oc400oh8ow18kh3sh2ph0dh0dw1"})
    check(*first_layer_, problem(text, Pass::backward_data, true));
}

// 3x3 filters: numbers of filters and channels that fill no tile, outputs in bands, and several
// images.
TEST_P(Direct, TakesRowsOfTaps) {
  for (const char* text :
       {"mb3ic40ih9oc21oh9kh3ph1", "mb2ic19ih12oc34oh6kh3sh2ph1", "mb40ic8ih7oc5oh7kh3ph1",
        "mb2ic33ih200iw70oc9oh100ow35kh3sh2ph1", "mb1ic16ih9iw5oc8oh9ow4kh3ph1pw0"}) {
    ConvProblem p = problem(text, Pass::backward_filter, false);
    check(*direct_, p);
    p.accumulate = true;
    check(*direct_, p);
  }
}

// Groups of two, four and eight where a vector holds several: rows shorter than a tile, of parts of
// tiles, wide filters of more taps than a tile has, strides, dilation, padding beyond the image.
TEST_P(Direct, PacksSmallGroupsIntoAVector) {
  const auto grouped = cpu::make_direct_grouped();
  int taken = 0;
  for (const char* text :
       {"g16mb2ic64ih9iw23oc64oh9ow23kh3ph1", "g9mb3ic36ih8iw5oc36oh4ow3kh3sh2ph1",
        "g3mb1ic24ih12oc24oh12kh3ph1", "g7mb2ic56ih11iw14oc56oh11ow14kh3dh1ph2",
        "g11mb1ic22ih9iw30oc22oh9ow30kh1kw11ph0pw5", "g6mb1ic24ih3oc24oh7kh3ph3",
        "g5mb2ic20ih10iw9oc20oh4ow3kh1sh3ph0pw0", "g4mb1ic32ih1iw40oc32oh1ow36kh1kw5ph0"})
    for (const Pass pass : all_passes)
      for (const DType dtype : {DType::f32, DType::f64})
        for (const bool nhwc : {false, true}) {
          ConvProblem p = problem(text, pass, false);
          p.dtype = dtype;
          if (nhwc) p.x_layout = p.y_layout = Layout::nhwc;
          const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
          if (grouped->refuse(p, *device)) continue;
          ++taken;
          check(*grouped, p, pass != Pass::backward_filter);
          if (pass == Pass::forward)
            p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
          p.accumulate = pass != Pass::forward;
          check(*grouped, p);
        }
  EXPECT_GE(taken, 8 * 3);
}

TEST_P(Direct, LeavesLargerGroupsToOthers) {
  const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  const auto reason = [&](const char* text) {
    const auto refusal =
        cpu::make_direct_grouped()->refuse(problem(text, Pass::forward, false), *device);
    return refusal ? refusal->reason() : "";
  };
  const bool eight = GetParam() == "avx512";
  const std::string needs = fmt::format("needs groups of 2{} channels and as many filters, has ",
                                        eight ? ", 4 or 8" : " or 4");
  EXPECT_EQ(reason("g4ic16ih8oc16oh8kh3ph1"), "");
  EXPECT_EQ(reason("g4ic32ih8oc32oh8kh3ph1"), eight ? "" : needs + "4 of 8 channels and 8 filters");
  EXPECT_EQ(reason("g4ic64ih8oc64oh8kh3ph1"), needs + "4 of 16 channels and 16 filters");
  EXPECT_EQ(reason("g4ic16ih8oc32oh8kh3ph1"), needs + "4 of 4 channels and 8 filters");
  EXPECT_EQ(reason("g4ic12ih8oc12oh8kh3ph1"), needs + "4 of 3 channels and 3 filters");
}

TEST(DirectConfig, StreamsOnlyWhereItSaysSo) {
  const auto device = make_cpu_device({.threads = 2, .isa = ""});
  ConvProblem p = parse_problem("mb4ic3ih20oc8oh20kh3ph1").problem;
  const Config streaming{{"stores", "nontemporal"}};
  const auto plain = cpu::make_direct_plain(), algo = cpu::make_direct_first_layer();
  EXPECT_EQ(plain->configs(p, *device), std::vector<Config>{Config{}});
  EXPECT_THROW(plain->plan(p, streaming, *device), InputError);
  if (device->info().l3_bytes == 0) GTEST_SKIP() << "this machine does not tell its L3's size";
  p.n = 4096;
  p.x_layout = Layout::nchw;
  p.y_layout = blocked_layout(device->info());
  p.h = p.w = p.p = p.q = 100;
  ASSERT_GT(p.y_bytes(), device->info().l3_bytes);
  EXPECT_EQ(algo->configs(p, *device).front(), streaming);
  p.accumulate = true;
  EXPECT_EQ(algo->configs(p, *device), std::vector<Config>{Config{}});
}

// backward_filter divides a row between threads and into strips, as rows of a column.
TEST_P(Direct, DividesASingleRow) {
  for (const char* text : {"mb1ic16iw700oc16ow700kw3pw2", "mb2ic20iw500oc40ow250kw5sw2pw4",
                           "g2mb1ic32iw450oc32ow450kw3dw7pw16", "mb1ic48iw600oc16ow600kw1pw0"})
    for (const bool accumulate : {false, true}) {
      ConvProblem p = problem(text, Pass::backward_filter, false);
      p.accumulate = accumulate;
      check(*direct_, p);
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Direct, testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace convlab
