// implicit_gemm against the reference, bit for bit on small integers, on every instruction set. It
// covers cases that the registry-wide tests do not target: chunked depth, panels of one vector,
// several row blocks, every stride phase of backward_data, both ways of splitting threads.
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

#include <gtest/gtest.h>

#include "conv/types/math_type.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "tests/kernels_cpu/expect_exact.h"

namespace convlab {
namespace {

struct Case {
  std::string text;
  bool plain_x = false;
  Epilogue epilogue = {};
  bool accumulate = false;
};

class ImplicitGemm : public testing::TestWithParam<std::string> {};

// A plain running sum over 50,000 pixels errs by 2.8e-6 even if two threads each sum half
// (measured): each product is rounded to the magnitude of the sum so far. The terms of bf16x3 alone
// err by 4.6e-6; whether its sums err little, bf16x6 shows.
TEST_P(ImplicitGemm, LongSumsErrLittle) {
  for (const bool plain_x : {false, true}) {
    const ConvProblem p =
        blocked_problem(plain_x ? "mb1ic3ih224oc16oh224kh3ph1" : "mb1ic16ih224oc16oh224kh1ph0",
                        Pass::backward_filter, GetParam(), plain_x);
    const ReferenceCase reference(p, 8);
    const auto algo = cpu::make_implicit_gemm();
    const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
    const auto stream = device->make_stream();
    for (const Config& config : algo->configs(p, *device)) {
      const double limit = math_type(config) == MathType::bf16x3 ? 8e-6 : 1e-6;
      const auto verdict = check_candidate(*algo, p, config, reference, *device, *stream, limit);
      EXPECT_EQ(verdict.status, Status::ok) << plain_x << ' ' << verdict.reason;
    }
  }
}

TEST_P(ImplicitGemm, MatchesTheReference) {
  const Case cases[] = {
      {.text = "mb2ic16ih9oc16oh9kh3ph1"},
      {.text = "mb3ic64ih7oc64oh7kh3ph1"},
      {.text = "mb1ic128ih7oc96oh7kh3ph1"},
      {.text = "mb2ic40ih13oc70oh13kh3ph1"},
      {.text = "mb2ic16ih40oc16oh40kh3ph1"},
      {.text = "mb2ic33ih14iw11oc20oh7ow6kh3ph1sh2sw2pw1"},
      {.text = "mb2ic32ih15oc32oh8kh1ph0sh2"},
      {.text = "mb2ic40ih9iw12oc20oh3ow6kh1ph0sh3sw2pw0"},
      {.text = "mb2ic33ih9iw21oc25oh9ow8kh1ph0sh1sw3pw0"},  // padding to the right only
      {.text = "mb3ic48ih6oc80oh6kh1ph0"},
      {.text = "mb1ic160ih7oc160oh7kh1ph0"},  // threads split a panel
      {.text = "mb2ic300ih5oc17oh5kh1ph0"},
      // At most 24 columns, or that many in the last panel, in groups of four; also with 7 rows or
      // one.
      {.text = "mb1ic24ih6oc24oh6kh1ph0",
       .epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu}},
      {.text = "mb2ic56ih9oc56oh9kh3ph1", .epilogue = {.residual = true}},
      {.text = "mb3ic33ih8oc22oh4kh1ph0sh2", .accumulate = true},
      // Shallow products: tiles of three and four vectors, whose last columns may be padding.
      {.text = "mb2ic20ih9oc91oh9kh1ph0",
       .epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu}},
      {.text = "mb3ic124ih5oc64oh5kh1ph0", .epilogue = {.bias = true}},
      {.text = "mb1ic192ih11oc120oh6kh1ph0sh2", .accumulate = true},
      {.text = "mb5ic40ih9oc80oh9kh3ph1"},    // chunks of backward_filter: 2, 2 and 1 images,
      {.text = "mb3ic32ih20oc48oh20kh3ph1"},  // and halves of one
      {.text = "mb1ic16ih1oc16oh1kh5ph2"},
      {.text = "mb1ic16ih20iw17oc16oh9ow5kh4kw3sh2sw3ph1pw0"},
      {.text = "mb1ic16ih17oc16oh11kh3ph0dh2"},
      {.text = "mb1ic16ih12oc32oh10kh5ph1"},
      // A row is divided between threads and into chunks, as rows of a column.
      {.text = "mb1ic40iw700oc70ow700kw3pw2"},
      {.text = "mb2ic33iw500oc32ow250kw5sw2pw4", .accumulate = true},
      {.text = "g2mb1ic32iw450oc64ow450kw3dw7pw16"},
      // Groups: a thread takes whole ones, or all threads one after another.
      {.text = "g3mb2ic48ih9oc96oh9kh3ph1",
       .epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu}},
      {.text = "g4mb3ic128ih10iw7oc64oh5ow4kh3sh2ph1", .accumulate = true},
      {.text = "g5mb2ic80ih7oc80oh4kh1sh2ph0"},  // zeros between the pixels of dx
      {.text = "g2mb3ic96ih8oc160oh8kh1ph0", .epilogue = {.bias = true}},
      {.text = "g2mb1ic64ih7oc32oh7kh3dh1ph2", .accumulate = true},
      {.text = "mb2ic3ih32oc64oh16kh7sh2ph3", .plain_x = true},
      {.text = "mb2ic3ih19oc40oh19kh3ph1", .plain_x = true},
      {.text = "mb1ic1ih10oc16oh3kh2sh4ph0", .plain_x = true},
      {.text = "mb1ic3ih43oc16oh9kh11sh4ph2", .plain_x = true},
      {.text = "mb2ic64ih7oc48oh7kh3ph1",
       .epilogue = {.bias = true, .activation = ActivationKind::relu}},
      {.text = "mb2ic64ih7oc41oh7kh3ph1",
       .epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu}},
      {.text = "mb2ic64ih7oc41oh7kh3ph1", .epilogue = {.residual = true}},
      {.text = "mb2ic64ih7oc41oh7kh3ph1", .accumulate = true},
      {.text = "mb2ic33ih14oc20oh5kh2ph0sh3", .accumulate = true},
      {.text = "mb2ic40ih11oc48oh6kh1ph0sh2", .accumulate = true},
      {.text = "mb1ic64ih7oc40oh7kh1ph0", .accumulate = true},  // backward_filter adds to dw
      {.text = "mb2ic41ih6oc23oh6kh1ph0", .accumulate = true},
      {.text = "mb2ic64ih60oc40oh60kh1ph0", .accumulate = true},
      {.text = "mb2ic3ih32oc64oh16kh7sh2ph3", .plain_x = true, .accumulate = true},
  };
  const auto algo = cpu::make_implicit_gemm();
  for (const Case& c : cases)
    for (const Pass pass : all_passes) {
      ConvProblem p = blocked_problem(c.text, pass, GetParam(), c.plain_x);
      if (pass == Pass::forward) p.epilogue = c.epilogue;
      p.accumulate = c.accumulate;
      expect_exact(*algo, p, GetParam(), [&](std::vector<Config>& configs) {
        if (pass == Pass::backward_filter || (pass == Pass::backward_data && c.plain_x)) return;
        configs.push_back(configs.front());
        configs.back() = cpu::with_nontemporal_stores(configs.back());  // as for large outputs
      });
    }
}

// dw is split between threads by this cost, at whole tiles. Three blocks of 8 channels are four
// tiles of 6 rows; one block is one tile and a slow remainder.
TEST_P(ImplicitGemm, TilesOfFewRowsCostAsMuchAsOfFour) {
  const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  EXPECT_EQ(cpu::row_cost(24), 24);
  EXPECT_EQ(cpu::row_cost(1), 4);
  EXPECT_EQ(cpu::row_cost(48 + 2), 48 + 4);
  EXPECT_EQ(cpu::row_cost(8), GetParam() == "avx512" ? 8 : 6 + 4);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, ImplicitGemm, testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace convlab
