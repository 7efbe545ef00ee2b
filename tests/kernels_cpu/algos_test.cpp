// Every algorithm of the CPU's registry against the reference: problems x passes x layouts x
// configs x ISAs. New algorithms are picked up from the registry.
//
// CONVLAB_TEST_REDUCED=1 keeps the widest ISA and a share of the problems (for sanitizers);
// CONVLAB_TEST_SEED=N draws other random problems.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "autotune/verify.h"
#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "tests/kernels_cpu/running_isa.h"

namespace convlab {
namespace {

const AlgoRegistry& registry() {
  static const AlgoRegistry algos = [] {
    AlgoRegistry r;
    append_cpu_algos(r);
    return r;
  }();
  return algos;
}

bool reduced() { return std::getenv("CONVLAB_TEST_REDUCED") != nullptr; }

// Best first: oneDNN stays with the ISA that a process asks it for first.
std::vector<std::string> isas() {
  std::vector<std::string> names = supported_isas();
  std::reverse(names.begin(), names.end());
  if (reduced()) names.resize(1);
  return names;
}

// These only multiply and add, so that sums of small integers come out to the last bit; the
// others transform their operands.
bool is_exact(const ConvAlgo& algo) {
  static const std::set<std::string> ids{"direct", "im2col", "implicit_gemm", "onednn.direct"};
  return ids.contains(algo.info().id);
}

// Of the transforms, F(6,3) is the least accurate: 6e-6 in f32 over 256 channels of N(0,1) data
// (research: Barabasz et al. 2018), times a margin for small sums. f64 has 2^29 times the accuracy.
double max_error(const ConvAlgo& algo, DType dtype) {
  if (is_exact(algo)) return 0;
  return dtype == DType::f64 ? 1e-12 : 5e-5;
}

std::string command(const ConvAlgo& algo, const ConvProblem& p, const Config& config,
                    const DeviceInfo& device, std::uint64_t seed) {
  return fmt::format(
      "CONVLAB_ISA={} convlab check {} --pass {} --dtype {} --algos {} --threads {} --seed {}"
      "  (x {}, y {}, config '{}'{}{}{}{})",
      device.isa, to_text(p), to_string(p.pass), to_string(p.dtype), algo.info().id, device.threads,
      seed, to_string(p.x_layout), to_string(p.y_layout), config.text(),
      p.epilogue.bias ? " +bias" : "", p.epilogue.residual ? " +residual" : "",
      p.epilogue.relu ? " +relu" : "", p.accumulate ? " accumulate" : "");
}

using Count = std::map<std::string, int>;  // candidates that ran, by algorithm

// Runs every candidate for this problem in every pair of layouts on one ISA.
void check_candidates(ConvProblem p, std::uint64_t seed, const std::string& isa, Count& ran) {
  const auto device = make_cpu_device({2, isa});
  ASSERT_EQ(running_isa(), isa);
  const auto stream = device->make_stream();
  const ReferenceCase reference(p, seed, DataKind::small_integers);
  for (const Layout x_layout : all_layouts)
    for (const Layout y_layout : all_layouts) {
      p.x_layout = x_layout;
      p.y_layout = y_layout;
      for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu)) {
        if (algo->refuse(p, *device)) continue;
        for (const Config& config : algo->configs(p, *device)) {
          const Operands::Verdict verdict = check_candidate(*algo, p, config, reference, *device,
                                                            *stream, max_error(*algo, p.dtype));
          if (verdict.status == Status::refused) continue;  // its workspace is too large
          EXPECT_EQ(verdict.status, Status::ok)
              << verdict.reason << "\n  " << command(*algo, p, config, device->info(), seed);
          ++ran[algo->info().id];
        }
      }
    }
}

// One per kind of trouble. The name says which.
const std::vector<std::string>& problem_texts() {
  static const std::vector<std::string> texts{
      R"(mb1ic1ih1oc1oh1kh1ph0n"one_of_everything")",
      R"(mb2ic16ih8oc32oh8kh3ph1n"whole_blocks")",
      R"(mb2ic5ih7iw9oc7oh7ow9kh3kw3ph1pw1n"ragged_channels")",
      R"(mb1ic3ih23iw21oc19oh12ow11kh7kw7sh2sw2ph3pw3n"first_layer")",
      R"(mb1ic3ih35oc24oh8kh11sh4ph2n"alexnet_first_layer")",
      R"(mb1ic40ih1oc24oh1kh3ph1n"one_pixel_3x3")",
      R"(mb3ic33ih1oc17oh1kh1ph0n"one_pixel_1x1")",
      R"(mb1ic8ih2oc8oh4kh5ph3n"filter_larger_than_image")",
      R"(mb1ic4ih3iw50oc6oh3ow50kh1kw5ph0pw2n"wide_and_flat")",
      R"(mb1ic6ih31iw3oc9oh31ow3kh5kw1ph2pw0n"tall_and_narrow")",
      R"(mb2ic18ih11iw13oc10oh6ow5kh3kw3sh2sw3ph1pw2n"asymmetric_strides")",
      R"(mb1ic9ih8iw8oc12oh8ow8kh4kw4ph1pw2n"even_filter_asymmetric_pads")",
      R"(mb1ic16ih9oc16oh9kh3ph2n"bottom_padding_below_top")",
      R"(mb1ic17ih14oc20oh7kh1sh2ph0n"pointwise_stride_2")",
      R"(mb2ic12ih10oc8oh4kh1sh3ph0n"stride_leaves_input_unread")",
      R"(mb1ic32ih14oc48oh7kh3sh2ph1n"downsampling")",
      R"(mb1ic10ih15iw17oc11oh15ow15kh3kw3dh1dw2ph2pw2n"dilated")",
      R"(mb1ic4ih16oc4oh6kh3sh2dh2ph1n"dilated_and_strided")",
      R"(g2mb2ic12ih9oc10oh9kh3ph1n"two_ragged_groups")",
      R"(g4mb1ic64ih7oc128oh7kh3ph1n"groups_of_whole_blocks")",
      R"(g3mb1ic48ih6oc24oh6kh1ph0n"grouped_pointwise")",
      R"(g24mb2ic24ih10oc24oh10kh3ph1n"depthwise")",
      R"(g37mb1ic37ih11oc37oh6kh5sh2ph2n"depthwise_ragged_strided")",
      R"(g8mb1ic8ih9oc24oh9kh3dh1ph2n"depthwise_multiplier_dilated")",
      R"(mb1ic24ih12oc16oh12kh5ph2n"five_by_five")",
      R"(mb2ic16ih21oc16oh21kh3ph1n"several_tiles")",
      R"(mb1ic20ih33iw34oc18oh31ow32kh3ph0n"no_padding")",
      R"(mb5ic3ih6oc4oh6kh3ph1n"batch_above_threads")",
      R"(mb1ic130ih6oc70oh6kh3ph1n"many_channels")",
      R"(mb1ic256ih7oc72oh7kh1ph0n"deep_pointwise")",
  };
  return texts;
}

NamedProblem test_problem(std::size_t i) { return parse_problem(problem_texts()[i]); }

class EveryAlgo : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (reduced() && GetParam() % 3 != 0) GTEST_SKIP() << "CONVLAB_TEST_REDUCED is set";
  }
};

TEST_P(EveryAlgo, AgreesWithTheReference) {
  ConvProblem p = test_problem(GetParam()).problem;
  Count ran;
  for (const std::string& isa : isas())
    for (const Pass pass : all_passes)
      for (const DType dtype : {DType::f32, DType::f64}) {
        p.pass = pass;
        p.dtype = dtype;
        check_candidates(p, 1, isa, ran);
      }
  EXPECT_GT(ran["direct"], 0) << "direct takes every problem";
  EXPECT_GT(ran["im2col"], 0) << "im2col takes every problem";
}

TEST_P(EveryAlgo, AccumulatesIntoTheOutput) {
  ConvProblem p = test_problem(GetParam()).problem;
  p.accumulate = true;
  Count ran;
  for (const Pass pass : all_passes) {
    p.pass = pass;
    check_candidates(p, 2, supported_isas().back(), ran);
  }
}

TEST_P(EveryAlgo, AppliesTheEpilogue) {
  ConvProblem p = test_problem(GetParam()).problem;
  Count ran;
  for (const Epilogue e : {Epilogue{true, false, false}, Epilogue{false, true, false},
                           Epilogue{false, false, true}, Epilogue{true, true, true}}) {
    p.epilogue = e;
    check_candidates(p, 3, supported_isas().back(), ran);
  }
}

// The result of one pass, times the operand that the pass does not read. All passes draw the same
// x, w and dy from one seed.
double inner_product(const ConvAlgo& algo, const ConvProblem& p, std::span<const double> other,
                     Device& device) {
  const auto stream = device.make_stream();
  const ReferenceCase data(p, 4, DataKind::small_integers);
  Operands operands(data, p, device, *stream);
  Trial trial(algo, algo.configs(p, device).front(), operands, device, *stream);
  trial.pack();
  trial.run();
  const float* const out = static_cast<const float*>(operands.args().out);
  const TensorDesc desc = p.pass == Pass::forward ? p.y_desc()
                          : p.pass == Pass::backward_data
                              ? p.x_desc()
                              : TensorDesc{p.k, p.c / p.groups, p.r, p.s};
  double sum = 0;
  std::size_t i = 0;
  for (std::int64_t n = 0; n < desc.n; ++n)
    for (std::int64_t c = 0; c < desc.c; ++c)
      for (std::int64_t h = 0; h < desc.h; ++h)
        for (std::int64_t w = 0; w < desc.w; ++w)
          sum += other[i++] * double(out[desc.offset(n, c, h, w)]);
  return sum;
}

// <conv(x, w), dy> = <x, bwd_d(dy, w)> = <w, bwd_w(x, dy)>: true whatever the reference says.
TEST_P(EveryAlgo, PassesAreAdjoint) {
  const auto device = make_cpu_device({2, ""});
  ConvProblem forward = test_problem(GetParam()).problem;
  ConvProblem data = forward, filter = forward;
  data.pass = Pass::backward_data;
  filter.pass = Pass::backward_filter;
  const ReferenceCase reads_xw(forward, 4, DataKind::small_integers);
  const ReferenceCase reads_dy(data, 4, DataKind::small_integers);
  for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu))
    for (const Layout x_layout : all_layouts)
      for (const Layout y_layout : all_layouts) {
        for (ConvProblem* p : {&forward, &data, &filter}) {
          p->x_layout = x_layout;
          p->y_layout = y_layout;
        }
        if (algo->refuse(forward, *device) || algo->refuse(data, *device) ||
            algo->refuse(filter, *device))
          continue;
        const double y = inner_product(*algo, forward, reads_dy.input().dy, *device);
        const double x = inner_product(*algo, data, reads_xw.input().x, *device);
        const double w = inner_product(*algo, filter, reads_xw.input().w, *device);
        // Summands are integers of at most 4 * 2; a transform's rounding errors average out.
        const double margin =
            is_exact(*algo) ? 0 : 1e-4 * std::sqrt(forward.flops()) + 1e-5 * std::abs(y);
        EXPECT_NEAR(y, x, margin) << command(*algo, data, {}, device->info(), 4);
        EXPECT_NEAR(y, w, margin) << command(*algo, filter, {}, device->info(), 4);
      }
}

INSTANTIATE_TEST_SUITE_P(Problems, EveryAlgo,
                         testing::Range<std::size_t>(0, problem_texts().size()),
                         [](const auto& param) { return test_problem(param.param).name; });

// A small valid problem. Ranges are chosen so that about half of the draws are unusual in some way.
ConvProblem random_problem(std::mt19937_64& random) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (;;) {
    ConvProblem p;
    p.pass = all_passes[std::size_t(draw(0, 2))];
    p.dtype = draw(0, 3) == 0 ? DType::f64 : DType::f32;
    p.groups = draw(0, 2) == 0 ? draw(2, 6) : 1;
    p.n = draw(1, 3);
    p.c = p.groups * draw(1, 40);
    p.k = p.groups * draw(1, 40);
    p.h = draw(1, 24);
    p.w = draw(1, 24);
    p.r = draw(1, 5);
    p.s = draw(0, 1) == 0 ? p.r : draw(1, 5);
    p.stride_h = draw(0, 2) == 0 ? draw(1, 3) : 1;
    p.stride_w = draw(0, 2) == 0 ? draw(1, 3) : p.stride_h;
    p.dilation_h = draw(0, 3) == 0 ? draw(1, 3) : 1;
    p.dilation_w = draw(0, 3) == 0 ? draw(1, 3) : p.dilation_h;
    p.pad_h = draw(0, p.r);
    p.pad_w = draw(0, p.s);
    p.p = (p.h + p.pad_h + draw(0, p.r) - (p.r - 1) * p.dilation_h - 1) / p.stride_h + 1;
    p.q = (p.w + p.pad_w + draw(0, p.s) - (p.s - 1) * p.dilation_w - 1) / p.stride_w + 1;
    if (p.pass == Pass::forward && draw(0, 2) == 0)
      p.epilogue = {draw(0, 1) == 0, draw(0, 1) == 0, true};
    else
      p.accumulate = draw(0, 3) == 0;
    try {
      validate(p);
      if (p.flops() < 4e6) return p;
    } catch (const InputError&) {  // no output pixel, for one
    }
  }
}

TEST(RandomProblems, AgreeWithTheReference) {
  const char* const variable = std::getenv("CONVLAB_TEST_SEED");
  const std::uint64_t seed = variable ? std::strtoull(variable, nullptr, 10) : 20260101;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  Count ran;
  for (int i = 0; i < (reduced() ? 20 : 150); ++i) {
    const ConvProblem p = random_problem(random);
    const std::vector<std::string> all = isas();
    check_candidates(p, std::uint64_t(i), all[std::size_t(i) % all.size()], ran);
  }
  for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu)) {
    if (algo->info().origin == Origin::vendor) continue;
    EXPECT_GT(ran[algo->info().id], 0) << algo->info().id << " took none of them";
  }
}

}  // namespace
}  // namespace convlab
