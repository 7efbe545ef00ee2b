// winograd_grouped, beyond the test over the registry: every way in which groups lie in vectors,
// bands, edges.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "autotune/testbed/verify.h"
#include "conv/refusals.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/gemm/tile_shape.h"
#include "tests/cpu_backed_device.h"

namespace convlab {
namespace {

ConvProblem problem_of(const char* text, Pass pass, Layout layout) {
  ConvProblem p = parse_problem(text).problem;
  p.pass = pass;
  p.dtype = DType::f32;
  p.x_layout = p.y_layout = layout;
  return p;
}

// Whether the algorithm takes it; if so, it has to be right.
bool take(const ConvProblem& p, Device& device) {
  const auto algo = cpu::make_winograd_grouped();
  if (algo->refuse(p, device)) return false;
  const ReferenceCase reference(p, 4);
  const auto stream = device.make_stream();
  const CheckResult verdict = check_candidate(*algo, p, Config{}, reference, device, *stream, 5e-6);
  EXPECT_EQ(verdict.status, Status::ok)
      << verdict.reason << "\n  " << to_text(p) << ' ' << to_string(p.pass) << ' '
      << to_string(p.x_layout) << ' ' << device.info().isa << ' ' << device.info().threads;
  return true;
}

// Rows of every remainder, shorter than a tile and of many tiles; a last vector that groups do not
// fill; groups of one vector, of a panel, of a panel and a vector; more filters than channels.
constexpr const char* texts[] = {
    "g10mb2ic40ih9iw15oc40oh9ow15kh3ph1",  // 4
    "g6mb1ic48ih14oc48oh14kh3ph1",         // 8
    "g3mb2ic24ih5iw2oc24oh9ow6kh3ph3",    "g5mb1ic40ih6iw61oc40oh4ow60kh3ph0pw1",
    "g4mb1ic64ih13oc64oh13kh3ph1",  // 16
    "g2mb3ic64ih7iw10oc64oh7ow10kh3ph1",  "g3mb1ic96ih11iw4oc144oh11ow4kh3ph1",
    "g2mb1ic96ih8iw17oc128oh8ow17kh3ph1",
};

TEST(WinogradGrouped, TakesGroupsThatShareAVectorOrFillSome) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      int taken = 0;
      for (const char* text : texts)
        for (const Pass pass : {Pass::forward, Pass::backward_data})
          for (const Layout layout : {blocked_layout(device->info()), Layout::nhwc}) {
            ConvProblem p = problem_of(text, pass, layout);
            if (!take(p, *device)) continue;
            ++taken;
            p.accumulate = pass == Pass::backward_data;
            if (!p.accumulate)
              p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
            take(p, *device);
          }
      EXPECT_GE(taken, isa == "avx512" ? 2 * (8 + 5) : 2 * 4) << isa;
    }
}

// Bands of a row: V of the rows around it is made for each.
TEST(WinogradGrouped, ComputesWithCachesOfOneByte) {
  class TinyDevice : public CpuBackedDevice {
   public:
    TinyDevice() { info_.l1_bytes = info_.l2_bytes = 1, info_.l3_bytes = 0; }
  } device;
  for (const char* text : texts)
    for (const Pass pass : {Pass::forward, Pass::backward_data})
      take(problem_of(text, pass, blocked_layout(device.info())), device);
}

TEST(WinogradGrouped, SaysWhyItRefuses) {
  const auto device = make_cpu_device();
  const auto reason = [&](const char* text, Pass pass = Pass::forward, DType dtype = DType::f32) {
    ConvProblem p = problem_of(text, pass, blocked_layout(device->info()));
    p.dtype = dtype;
    const auto refusal = cpu::make_winograd_grouped()->refuse(p, *device);
    return refusal ? refusal->reason() : "";
  };
  const char* const taken = "g2ic32ih8oc32oh8kh3ph1";
  EXPECT_EQ(reason(taken), "");
  EXPECT_EQ(reason(taken, Pass::backward_data), "");
  EXPECT_EQ(reason(taken, Pass::backward_filter), "needs fwd or bwd_d, has bwd_w");
  EXPECT_EQ(reason(taken, Pass::forward, DType::f64), "needs f32, has f64");
  EXPECT_EQ(reason("g2ic32ih8oc32oh8kh5ph2"), "needs a 3x3 filter, has 5x5");
  EXPECT_EQ(reason("g2ic32ih8oc32oh4kh3sh2ph1"), "needs stride 1, has 2x2");
  EXPECT_EQ(reason("g2ic32ih8oc32oh8kh3dh1ph2"), "needs dilation 1, has 2x2");
  const cpu::TileShape shape = cpu::tile_shape();
  const std::string needs = fmt::format(
      "needs groups of up to 64 channels and filters, both in multiples of {}{}, has ", shape.block,
      shape.lanes < shape.block ? ""
      : shape.block == 16       ? ", or 4 or 8 of each"
                                : ", or 4 of each");
  EXPECT_EQ(reason("g2ic160ih8oc160oh8kh3ph1"), needs + "2 of 80 channels and 80 filters");
  EXPECT_EQ(reason("ic32ih8oc32oh8kh3ph1"), needs + "1 of 32 channels and 32 filters");
  EXPECT_EQ(reason("g4ic24ih8oc24oh8kh3ph1"), needs + "4 of 6 channels and 6 filters");
  EXPECT_EQ(reason("g4ic16ih8oc32oh8kh3ph1"), needs + "4 of 4 channels and 8 filters");
}

}  // namespace
}  // namespace convlab
