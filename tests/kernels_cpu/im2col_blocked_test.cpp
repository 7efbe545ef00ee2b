// im2col_blocked against the reference, bit for bit on small integers, on every instruction set:
// cases that the registry-wide tests do not target.
#include <gtest/gtest.h>

#include "kernels_cpu/algos.h"
#include "tests/kernels_cpu/expect_exact.h"

namespace convlab {
namespace {

class Im2colBlocked : public testing::TestWithParam<std::string> {
 protected:
  ConvProblem problem(const char* text) const {
    return blocked_problem(text, Pass::backward_filter, GetParam());
  }
};

// Several images per chunk, bands of one image, an odd number of filters; with one tap and with
// several.
TEST_P(Im2colBlocked, MatchesTheReference) {
  for (const char* text : {"mb3ic48ih6oc80oh6kh1ph0", "mb21ic64ih20oc20oh20kh1ph0",
                           "mb1ic32ih77oc17oh77kh1ph0", "mb2ic32ih56iw57oc16oh28ow29kh1ph0sh2",
                           "mb2ic32ih13iw11oc130oh7ow6kh3ph1sh2", "mb1ic32ih121oc16oh61kh1ph0sh2",
                           "mb40ic16ih8oc128oh8kh3ph1", "mb3ic80ih9oc128oh7kh2ph1dh2"}) {
    ConvProblem p = problem(text);
    expect_exact(*cpu::make_im2col_blocked(), p, GetParam());
    p.accumulate = true;
    expect_exact(*cpu::make_im2col_blocked(), p, GetParam());
  }
}

// As in implicit_gemm's test: over 50,000 pixels.
TEST_P(Im2colBlocked, LongSumsErrLittle) {
  const ConvProblem p = problem("mb1ic16ih224oc16oh224kh1ph0");
  const ReferenceCase reference(p, 8);
  const auto algo = cpu::make_im2col_blocked();
  const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  const auto stream = device->make_stream();
  const auto verdict = check_candidate(*algo, p, {}, reference, *device, *stream, 1e-6);
  EXPECT_EQ(verdict.status, Status::ok) << verdict.reason;
}

TEST_P(Im2colBlocked, TakesSeveralTapsOnlyWhereTheFilterIsTheLargestTensor) {
  const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  const auto reason = [&](const ConvProblem& p) {
    const auto refusal = cpu::make_im2col_blocked()->refuse(p, *device);
    return refusal ? refusal->reason() : "";
  };
  EXPECT_EQ(reason(problem("mb2ic64ih56oc16oh56kh1ph0")), "");
  EXPECT_EQ(reason(problem("mb2ic64ih8oc128oh8kh3ph1")), "");
  EXPECT_EQ(reason(problem("mb2ic64ih8oc127oh8kh3ph1")),
            "needs at least 128 filters unless they have 1 tap, has 127");
  EXPECT_EQ(reason(problem("mb2ic64ih9oc128oh9kh3ph1")),
            "needs at most 64 output pixels an image unless filters have 1 tap, has 81");
  EXPECT_EQ(reason(problem("mb2ic64ih8oc128oh8kh5ph2")), "needs at most 9 taps, has 25");
  EXPECT_NE(reason(problem("mb2ic33ih8oc128oh8kh1ph0")), "");
  ConvProblem p = problem("mb2ic64ih8oc128oh8kh1ph0");
  p.pass = Pass::forward;
  EXPECT_EQ(reason(p), "needs bwd_w, has fwd");
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Im2colBlocked, testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace convlab
