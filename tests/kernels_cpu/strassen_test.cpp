// strassen against the reference, bit for bit on small integers, on every instruction set: pairs by
// images and by pixels, ragged tiles, several blocks and chunks, strides, epilogues. For
// backward_filter also parts of the pixels and of dw, and quadrants in place and copied.
#include <gtest/gtest.h>

#include "kernels_cpu/algos.h"
#include "tests/kernels_cpu/expect_exact.h"

namespace convlab {
namespace {

struct Case {
  std::string text;
  Epilogue epilogue = {};
  bool accumulate = false;
};

class Strassen : public testing::TestWithParam<std::string> {
 protected:
  const std::unique_ptr<ConvAlgo> algo_ = cpu::make_strassen();
};

TEST_P(Strassen, MatchesTheReference) {
  const Case cases[] = {
      {.text = "mb2ic64ih7oc64oh7kh1ph0"},
      {.text = "mb1ic128ih10oc64oh10kh1ph0"},
      {.text = "mb4ic64ih9oc192oh5kh1ph0sh2"},
      {.text = "mb1ic64ih2oc64oh2kh1ph0"},
      {.text = "mb1ic64ih7iw11oc64oh4ow6kh1ph0sh2"},
      {.text = "mb6ic64ih9oc64oh9kh1ph0"},
      {.text = "mb2ic128ih3oc128oh3kh1ph0",
       .epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu}},
      {.text = "mb2ic256ih5oc64oh5kh1ph0",
       .epilogue = {.bias = true, .activation = ActivationKind::relu}},
      {.text = "mb2ic256ih5oc64oh5kh1ph0", .accumulate = true},
      {.text = "mb2ic192ih3oc128oh3kh1ph0"},
      {.text = "mb64ic64ih1oc64oh1kh1ph0"},
      {.text = "mb2ic64ih8iw7oc128oh4ow4kh1ph0sh2"},
      {.text = "mb2ic64ih8oc64oh4kh1ph0sh2", .accumulate = true},
      // 6.5 MB of dx, mostly zeros: non-temporal stores if three cores have at most 2 MB of L2
      // each.
      {.text = "mb2ic64ih113oc64oh57kh1ph0sh2"},
  };
  for (const Case& c : cases)
    for (const Pass pass : all_passes) {
      ConvProblem p = blocked_problem(c.text, pass, GetParam());
      if (pass == Pass::forward) p.epilogue = c.epilogue;
      p.accumulate = c.accumulate;
      expect_exact(*algo_, p, GetParam(), [pass](std::vector<Config>& configs) {
        configs.push_back(pass == Pass::backward_filter ? Config{{"pairs", 5}}
                                                        : Config{{"depth", 64}});
      });
    }
}

TEST_P(Strassen, RefusesWhatHasNoHalves) {
  const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  const std::pair<const char*, Pass> cases[] = {
      {"mb2ic64ih7oc64oh7kh3ph1", Pass::forward},
      {"mb1ic64ih7oc64oh7kh1ph0", Pass::forward},
      {"mb1ic64ih9iw11oc64oh5ow6kh1ph0sh2", Pass::forward},
      {"mb2ic24ih8oc64oh8kh1ph0", Pass::forward},
      {"mb2ic24ih8oc64oh8kh1ph0", Pass::backward_filter},
      {"mb2ic64ih8oc24oh8kh1ph0", Pass::backward_filter},
      {"mb1ic64ih7oc64oh7kh1ph0", Pass::backward_filter}};
  for (const auto& [text, pass] : cases)
    EXPECT_TRUE(algo_->refuse(blocked_problem(text, pass, GetParam()), *device)) << text;
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Strassen, testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace convlab
