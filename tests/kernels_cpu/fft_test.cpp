// What is special to convolution by Fourier transforms: grid sizes, wrapped padding, tile seams.
// What every algorithm must do is tested over the registry.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "autotune/verify.h"
#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

// Rounding grows with the logarithm of the transform's length: close to plain summation.
double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-14 : 4e-6; }

// Every pass of a problem, with every config, against the reference.
void expect_right(const std::string& id, const std::string& text, DType dtype, Layout x_layout,
                  Layout y_layout, const std::string& isa = "") {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, id);
  const auto device = make_cpu_device({0, isa});
  const auto stream = device->make_stream();
  for (const Pass pass : all_passes) {
    ConvProblem p = parse_problem(text).problem;
    p.pass = pass;
    p.dtype = dtype;
    p.x_layout = x_layout;
    p.y_layout = y_layout;
    const auto refusal = algo.refuse(p, *device);
    ASSERT_FALSE(refusal) << text << ": " << refusal->reason;
    const ReferenceCase reference(p, 7);
    for (const Config& config : algo.configs(p, *device)) {
      const auto verdict =
          check_candidate(algo, p, config, reference, *device, *stream, tolerance(dtype));
      EXPECT_EQ(verdict.status, Status::ok)
          << fmt::format("{} {} {} {} {}: {}", id, config.text(), to_string(pass), text,
                         device->info().isa, verdict.reason);
    }
  }
}

class Fft : public testing::Test {
 protected:
  void SetUp() override {
    AlgoRegistry registry;
    append_cpu_algos(registry);
    const auto device = make_cpu_device();
    const auto refusal =
        registry.get(DeviceKind::cpu, "fft").refuse(parse_problem("ic1ih4oc1kh1").problem, *device);
    if (refusal) GTEST_SKIP() << refusal->reason;
  }
};

TEST_F(Fft, WrapsPaddingAroundTheGrid) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const char* text : {
             "mb3ic5ih27oc7kh5ph2",           // 29 rows on a grid of 30
             "mb1ic2ih1oc3kh3ph1",            // one pixel, filter larger than the image
             "mb1ic1ih1oc1kh1",               // nothing but a product
             "mb2ic3ih13iw9oc4kh3kw5ph0pw4",  // different in both directions
             "mb1ic3ih7oc2oh7kh4ph1",         // even filter: padding 1 above, 2 below
             "mb1ic3ih31oc2kh11ph10",         // fully padded
         })
      expect_right("fft", text, dtype, Layout::nchw, Layout::nchw);
}

TEST_F(Fft, CoversEveryRowsAndDepthOfTheProduct) {
  expect_right("fft", "mb7ic67ih6oc50kh3ph1", DType::f32, Layout::nchw, Layout::nchw);
}

TEST_F(Fft, RunsOnEveryIsaAndLayout) {
  for (const std::string& isa : supported_isas())
    for (const DType dtype : {DType::f32, DType::f64})
      expect_right("fft", "mb3ic6ih9oc5kh3ph1", dtype, Layout::nchw, Layout::nhwc, isa);
}

}  // namespace
}  // namespace convlab
