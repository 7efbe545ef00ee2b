// 16-bit types by algorithms of f32 (kernels_cpu/half/through_f32.h).
#include "kernels_cpu/half/through_f32.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <span>

#include "autotune/check.h"
#include "autotune/testbed/verify.h"
#include "conv/types/element_type.h"
#include "conv/types/math_type.h"
#include "kernels_cpu/cpu.h"
#include "tests/kernels_cpu/matrix_units.h"

namespace convlab {
namespace {

// CONVLAB_MACHINE for as long as it lives: caches so small that each part of the batch is an image.
class SmallCaches {
 public:
  SmallCaches() { setenv("CONVLAB_MACHINE", "l2=4096,threads=2", 1); }
  SmallCaches(const SmallCaches&) = delete;
  ~SmallCaches() { unsetenv("CONVLAB_MACHINE"); }
};

const ConvAlgo& algo(const char* id) {
  static const AlgoRegistry registry = [] {
    AlgoRegistry r;
    append_cpu_algos(r);
    return r;
  }();
  return registry.get(DeviceKind::cpu, id);
}

// Tensors in nchw, as the reference has them, rounded.
template <class T>
Buffer upload(std::span<const double> values, Device& device) {
  Buffer buffer = device.allocate(values.size() * sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) buffer.as<T>()[i] = T(values[i]);
  return buffer;
}

// Sums of small integers are exact in f32, so the result is the reference rounded once.
template <class T>
void expect_rounded_once(const ConvAlgo& algo, const ConvProblem& p, Device& device) {
  const auto stream = device.make_stream();
  const ReferenceCase reference(p, 3, DataKind::small_integers);
  const auto& in = reference.input();
  const Buffer x = upload<T>(in.x, device), w = upload<T>(in.w, device);
  const Buffer dy = upload<T>(in.dy, device), bias = upload<T>(in.bias, device);
  const Buffer residual = upload<T>(in.residual, device);
  ASSERT_FALSE(algo.refuse(p, device)) << algo.refuse(p, device)->reason();
  for (const Config& config : algo.configs(p, device)) {
    const auto plan = algo.plan(p, config, device);
    const Buffer packed = device.allocate(plan->packed_filter_bytes());
    const Buffer workspace = device.allocate(plan->workspace_bytes());
    if (packed.bytes() > 0) plan->pack_filter(w.span(), packed.span(), *stream);
    Buffer out = device.allocate(std::size_t(p.output_bytes()));
    if (p.accumulate) out = upload<T>(in.out, device);
    plan->run({.x = x.data(),
               .w = packed.bytes() > 0 ? packed.data() : w.data(),
               .dy = dy.data(),
               .bias = bias.data(),
               .residual = residual.data(),
               .out = out.data()},
              workspace.span(), *stream);
    for (std::size_t i = 0; i < reference.expected().size(); ++i)
      ASSERT_EQ(out.as<T>()[i].bits(), T(reference.expected()[i]).bits())
          << algo.info().id << ' ' << to_text(p) << ' ' << to_string(p.pass) << ' ' << config.text()
          << " at " << i << ": " << reference.expected()[i];
  }
}

void expect_rounded_once() {
  const auto device = make_cpu_device();
  for (const char* const id : {"im2col", "direct_plain"})
    for (const char* const text : {"mb6ic8ih30oc8oh30kh3ph1", "mb5ic130ih7oc20oh4kh3sh2ph1"})
      for (const Pass pass : all_passes)
        for (const bool adds : {false, true}) {
          ConvProblem p = parse_problem(text).problem;
          p.pass = pass;
          if (pass == Pass::forward && !adds)
            p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
          p.accumulate = adds;
          p.dtype = DType::bf16;
          expect_rounded_once<BFloat16>(algo(id), p, *device);
          p.dtype = DType::f16;
          expect_rounded_once<Float16>(algo(id), p, *device);
        }
}

TEST(ThroughF32, RoundsOnce) { expect_rounded_once(); }

TEST(ThroughF32, RoundsOnceWithPartsOfTheBatch) {
  const SmallCaches caches;
  const auto device = make_cpu_device();
  const ConvProblem p = parse_problem("mb6ic8ih30oc8oh30kh3ph1").problem;
  ASSERT_LT(cpu::part_in_f32(p, device->info()).n, p.n);
  expect_rounded_once();
}

TEST(ThroughF32, PartsAreEqualAndTheirCopiesCounted) {
  const auto device = make_cpu_device();
  for (const std::int64_t n : {1, 7, 16, 30})
    for (const Pass pass : all_passes) {
      ConvProblem p = parse_problem(fmt::format("mb{}ic64ih56oc64oh56kh3ph1", n)).problem;
      p.pass = pass;
      p.dtype = DType::bf16;
      const ConvProblem part = cpu::part_in_f32(p, device->info());
      EXPECT_EQ(p.n % part.n, 0);
      EXPECT_EQ(part.accumulate, pass == Pass::backward_filter && part.n < p.n);
      const auto plan = algo("im2col").plan(p, algo("im2col").configs(p, *device)[0], *device);
      ConvProblem in_f32 = part;
      const auto inner =
          algo("im2col").plan(in_f32, algo("im2col").configs(in_f32, *device)[0], *device);
      const std::int64_t copies =
          part.x_bytes() + (pass == Pass::backward_filter ? part.y_bytes() : 0) +
          (pass == Pass::backward_data ? part.y_bytes() : part.output_bytes());
      EXPECT_EQ(plan->workspace_bytes(), inner->workspace_bytes() + std::size_t(copies));
    }
}

TEST(ThroughF32, PredictionsCountTheConversions) {
  const auto device = make_cpu_device();
  for (const Pass pass : all_passes) {
    ConvProblem p = parse_problem("mb4ic32ih14oc48oh14kh3ph1").problem;
    p.pass = pass;
    const ConvAlgo& im2col = algo("im2col");
    const double f32_flops = im2col.work(p, im2col.configs(p, *device)[0], *device).flops();
    p.dtype = DType::f16;
    const WorkEstimate work = im2col.work(p, im2col.configs(p, *device)[0], *device);
    ASSERT_GE(work.phases.size(), 3u);
    const PhaseWork &widen = work.phases.end()[-2], &round = work.phases.end()[-1];
    const bool filter = pass == Pass::backward_filter;
    const double x = double(p.x_bytes()), y = double(p.y_bytes()), w = double(p.filter_bytes());
    const double in = filter ? x + y : pass == Pass::forward ? x : y;
    const double out = filter ? w : pass == Pass::forward ? y : x;
    EXPECT_EQ(widen.name, "widen");
    EXPECT_EQ(widen.bytes_read, in);
    EXPECT_EQ(widen.bytes_written, 2 * in);
    EXPECT_EQ(round.name, "round");
    EXPECT_EQ(round.bytes_read, 2 * out);
    EXPECT_EQ(round.bytes_written, out);
    EXPECT_EQ(work.flops(), f32_flops);
    EXPECT_EQ(work.pack.bytes_read > 0, !filter);
  }
}

// Three bf16 products are enough for a result of 16 bits.
TEST(ThroughF32, ListsNoSixProducts) {
  const UnitWanted unit("emulated");
  const auto device = make_cpu_device();
  ConvProblem p = parse_problem("mb1ic32ih8oc32oh8kh3ph1").problem;
  p.dtype = DType::f16;
  p.x_layout = p.y_layout = device->info().vector_bytes >= 64 ? Layout::nchw16c : Layout::nchw8c;
  int of_three = 0;
  for (const Config& config : algo("implicit_gemm").configs(p, *device)) {
    EXPECT_NE(math_type(config), MathType::bf16x6) << config.text();
    of_three += math_type(config) == MathType::bf16x3;
  }
  EXPECT_GT(of_three, 0);
}

// A result in bf16 may do with one product of bf16, from the smallest tiles.
TEST(ThroughF32, LetsWinogradRoundItsTransformsToBf16) {
  const UnitWanted unit("emulated");
  const auto device = make_cpu_device();
  ConvProblem p = parse_problem("mb1ic32ih8oc32oh8kh3ph1").problem;
  p.x_layout = p.y_layout = device->info().vector_bytes >= 64 ? Layout::nchw16c : Layout::nchw8c;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    p.dtype = dtype;
    int of_one = 0;
    for (const Config& config : algo("winograd").configs(p, *device)) {
      if (math_type(config) != MathType::bf16) continue;
      ++of_one;
      EXPECT_EQ(config.get("tile"), 2);
      EXPECT_LT(algo("winograd").work(p, config, *device).flops(), 1.2 * p.flops());
    }
    EXPECT_EQ(of_one > 0, dtype == DType::bf16) << to_string(dtype);
  }
  p.dtype = DType::bf16;
  const Config config{{"tile", 2}, {"schedule", "private"}, {"block", 16}, {"math", "bf16"}};
  const ReferenceCase reference(p, 5);
  const double error =
      check_candidate(algo("winograd"), p, config, reference, *device, *device->make_stream(), 1.0)
          .rel_error;
  EXPECT_LT(error, 5e-3);
  EXPECT_GT(error, 2e-3);  // more than the result's rounding
}

// What an algorithm has for bf16 itself comes first, for that type only, with a unit only, and for
// images without depth, whose slices would be rounded one by one.
TEST(ThroughF32, PutsBf16sOwnConfigsFirst) {
  const auto own = [](const char* unit, const char* text, DType dtype, Pass pass) {
    const UnitWanted wanted(unit);
    const auto device = make_cpu_device();
    ConvProblem p = parse_problem(text).problem;
    p.dtype = dtype;
    p.pass = pass;
    p.x_layout = p.y_layout = device->info().vector_bytes >= 64 ? Layout::nchw16c : Layout::nchw8c;
    const auto configs = algo("implicit_gemm").configs(p, *device);
    const bool first = math_type(configs.front()) == MathType::bf16;
    for (const Config& config : configs) {
      const bool own_config = math_type(config) == MathType::bf16;
      EXPECT_TRUE(first || !own_config) << config.text();
    }
    return first;
  };
  for (const Pass pass : all_passes) {
    const char* const text = "mb1ic32ih8oc32oh8kh3ph1";
    EXPECT_TRUE(own("emulated", text, DType::bf16, pass));
    EXPECT_FALSE(own("emulated", text, DType::f16, pass));
    EXPECT_FALSE(own("off", text, DType::bf16, pass));
    EXPECT_FALSE(own("emulated", "mb1ic32id8ih8oc32od8oh8kd3kh3pd1ph1", DType::bf16, pass));
  }
}

}  // namespace
}  // namespace convlab
