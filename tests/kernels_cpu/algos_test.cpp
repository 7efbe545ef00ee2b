// Every algorithm of the CPU's registry against the reference: problems x passes x layouts x
// configs x ISAs. New algorithms are picked up from the registry.
//
// CONVLAB_TEST_REDUCED=1 keeps the widest ISA and a share of the problems.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "autotune/candidates.h"
#include "autotune/testbed/verify.h"
#include "conv/error.h"
#include "conv/refusals.h"
#include "kernels_cpu/cpu.h"
#include "tests/inner_product.h"
#include "tests/kernels_cpu/isas.h"
#include "tests/kernels_cpu/running_isa.h"
#include "tests/listed_configs.h"
#include "tests/nan_epilogue.h"
#include "tests/problems.h"

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

// These only multiply and add, so sums of small integers are exact to the last bit. The others
// transform their operands.
bool is_exact(const ConvAlgo& algo) {
  static const std::set<std::string> ids{"depthwise",      "direct",        "direct_first_layer",
                                         "direct_grouped", "direct_plain",  "im2col",
                                         "im2col_blocked", "implicit_gemm", "onednn.direct"};
  return ids.contains(algo.info().id);
}

// F(6,3) is the least accurate of the transforms: 6e-6 in f32 over 256 channels of N(0,1) data
// (Barabasz et al. 2018), times a margin for small sums. f64 is 2^29 times as accurate.
double max_error(const ConvAlgo& algo, const ConvProblem& p) {
  const bool is_f64 = p.dtype == DType::f64;
  const std::optional<ActivationKind> kind = p.epilogue.activation;
  const bool exact = !kind || *kind == ActivationKind::relu || *kind == ActivationKind::relu6;
  // Half a unit in the last place of the result.
  if (p.dtype == DType::f16) return 0x1p-11;
  if (p.dtype == DType::bf16) return 0x1p-8;
  if (is_exact(algo)) return exact ? 0 : is_f64 ? 1e-14 : 1e-6;
  return is_f64 ? 1e-12 : 5e-5;
}

std::string command(const ConvAlgo& algo, const ConvProblem& p, const Config& config,
                    const DeviceInfo& device, std::uint64_t seed) {
  return fmt::format(
      "CONVLAB_ISA={} convlab check {} --pass {} --dtype {} --algos {} --threads {} --seed {}"
      "  (x {}, y {}, config '{}'{}{}{}{})",
      device.isa, to_text(p), to_string(p.pass), to_string(p.dtype), algo.info().id, device.threads,
      seed, to_string(p.x_layout), to_string(p.y_layout), config.text(),
      p.epilogue.bias ? " +bias" : "", p.epilogue.residual ? " +residual" : "",
      p.epilogue.activation ? fmt::format(" +{}", to_string(*p.epilogue.activation)) : "",
      p.accumulate ? " accumulate" : "");
}

// The norm of the sums over that of the outputs: an activation like tanh makes large sums 1, but
// passes on the error of the sums near 0, which is one of the sums' norm.
double shrinkage(const ReferenceCase& reference, std::uint64_t seed) {
  ConvProblem p = reference.problem();
  if (!p.epilogue.activation) return 1;
  p.epilogue.activation.reset();
  const auto norm = [](const std::vector<double>& v) {
    return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.));
  };
  const ReferenceCase sums(p, seed, DataKind::small_integers);
  return std::max(1., norm(sums.expected()) / norm(reference.expected()));
}

using Count = std::map<std::string, int>;  // candidates that ran, by algorithm

// Runs every candidate for this problem in every pair of layouts on one ISA.
void check_candidates(ConvProblem p, std::uint64_t seed, const std::string& isa, Count& ran) {
  const auto device = make_cpu_device({2, isa});
  ASSERT_EQ(running_isa(), isa);
  const auto stream = device->make_stream();
  const ReferenceCase reference(p, seed, DataKind::small_integers);
  const double margin = shrinkage(reference, seed);
  for (const Layout x_layout : all_layouts)
    for (const Layout y_layout : all_layouts) {
      p.x_layout = x_layout;
      p.y_layout = y_layout;
      for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu)) {
        if (algo->refuse(p, *device)) {
          EXPECT_TRUE(algo->info().origin == Origin::vendor || algo->refuse(unfinished(p), *device))
              << "takes it only without its epilogue, or without adding to the output\n  "
              << command(*algo, p, {}, device->info(), seed);
          continue;
        }
        for (const Config& config : algo->configs(p, *device)) {
          const bool sums_are_exact = is_exact(*algo) && size_of(p.dtype) > 2;
          const double bound = max_error(*algo, p) * (sums_are_exact ? 1 : margin);
          const CheckResult verdict =
              check_candidate(*algo, p, config, reference, *device, *stream, bound);
          if (verdict.status == Status::refused) continue;  // its workspace is too large
          EXPECT_EQ(verdict.status, Status::ok)
              << verdict.reason << "\n  " << command(*algo, p, config, device->info(), seed);
          ++ran[algo->info().id];
        }
      }
    }
}

// im2col and one algorithm of the family direct take every problem.
void expect_all_purpose_ran(const Count& ran) {
  EXPECT_TRUE(ran.contains("im2col"));
  const std::vector<const ConvAlgo*> direct = registry().named(DeviceKind::cpu, "direct");
  EXPECT_TRUE(std::any_of(direct.begin(), direct.end(),
                          [&](const ConvAlgo* a) { return ran.contains(a->info().id); }));
}

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
  expect_all_purpose_ran(ran);
}

// In the order of the problems f16 and bf16 take turns, and so do the instruction sets with them.
TEST_P(EveryAlgo, AgreesWithTheReferenceIn16Bits) {
  ConvProblem p = test_problem(GetParam()).problem;
  Count ran;
  std::size_t turn = GetParam();
  for (const std::string& isa : isas()) {
    p.dtype = turn++ % 2 == 0 ? DType::bf16 : DType::f16;
    for (const Pass pass : all_passes) {
      p.pass = pass;
      check_candidates(p, 1, isa, ran);
    }
  }
  // What else can stand in the output, or be added to it.
  p.accumulate = true;
  check_candidates(p, 2, supported_isas().back(), ran);
  p.accumulate = false;
  p.pass = Pass::forward;
  p.epilogue = {true, true, ActivationKind::relu};
  check_candidates(p, 3, supported_isas().back(), ran);
  expect_all_purpose_ran(ran);
}

TEST_P(EveryAlgo, AccumulatesIntoTheOutput) {
  ConvProblem p = test_problem(GetParam()).problem;
  p.accumulate = true;
  Count ran;
  for (const Pass pass : all_passes) {
    p.pass = pass;
    check_candidates(p, 2, supported_isas().back(), ran);
  }
  expect_all_purpose_ran(ran);
}

TEST_P(EveryAlgo, AppliesTheEpilogue) {
  ConvProblem p = test_problem(GetParam()).problem;
  Count ran;
  for (const Epilogue e :
       {Epilogue{true, false}, Epilogue{false, true}, Epilogue{false, false, ActivationKind::relu},
        Epilogue{true, true, ActivationKind::relu}}) {
    p.epilogue = e;
    check_candidates(p, 3, supported_isas().back(), ran);
  }
  expect_all_purpose_ran(ran);
}

// <conv(x, w), dy> = <x, bwd_d(dy, w)> = <w, bwd_w(x, dy)> holds independently of the reference.
TEST_P(EveryAlgo, PassesAreAdjoint) {
  const auto device = make_cpu_device({2, ""});
  for (const DType dtype : {DType::f32, DType::f64}) {
    ConvProblem forward = test_problem(GetParam()).problem;
    forward.dtype = dtype;
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
          const double f32_margin = 1e-4 * std::sqrt(forward.flops()) + 1e-5 * std::abs(y);
          const double margin = is_exact(*algo)       ? 0
                                : dtype == DType::f64 ? 1e-8 * f32_margin
                                                      : f32_margin;
          EXPECT_NEAR(y, x, margin) << command(*algo, data, {}, device->info(), 4);
          EXPECT_NEAR(y, w, margin) << command(*algo, filter, {}, device->info(), 4);
        }
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, EveryAlgo,
                         testing::Range<std::size_t>(0, problem_texts().size()),
                         [](const auto& param) { return test_problem(param.param).name; });

INSTANTIATE_TEST_SUITE_P(Depth, EveryAlgo,
                         testing::Range<std::size_t>(problem_texts().size(),
                                                     problem_texts().size() +
                                                         depth_problem_texts().size()),
                         [](const auto& param) { return test_problem(param.param).name; });

// Every algorithm with every activation: small problems of which each takes some, with whole
// channel blocks and without, a depth, and 1 or 2 channels a group.
TEST(Epilogue, AppliesEveryActivation) {
  Count ran;
  for (const std::string& isa : isas())
    for (const char* text :
         {"mb1ic64ih5oc64oh5kh3ph1", "mb2ic16ih6oc20oh6kh1ph0", "mb1ic3ih13oc20oh7kh5sh2ph2",
          "mb1ic3ih9oc20oh9kh3ph1", "mb1ic24ih7oc2oh7kh3ph1", "g20mb1ic20ih6oc20oh6kh3ph1",
          "g6mb1ic24ih6oc24oh6kh3ph1", "g24mb1ic24ih9oc24oh9kh7ph3", "mb2ic128ih3oc128oh3kh1ph0",
          "mb1ic16id3ih4oc20kd3kh3pd1ph1"})
      for (const ActivationKind kind : all_activations) {
        ConvProblem p = parse_problem(text).problem;
        p.epilogue = {true, true, kind};
        check_candidates(p, 5, isa, ran);
        if (kind != ActivationKind::sigmoid && kind != ActivationKind::hardswish) continue;
        p.dtype = DType::f64;
        p.epilogue = {false, false, kind};
        check_candidates(p, 5, isa, ran);
      }
  for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu)) {
    const std::string& id = algo->info().id;
    if (id == "im2col_blocked") continue;  // has no forward pass, so no epilogue
    EXPECT_TRUE(ran.contains(id) || algo->info().origin == Origin::vendor) << id;
  }
}

// A net with one bad weight must not output a plausible class.
TEST(Epilogue, LetsNaNsThrough) {
  Count ran;
  for (const std::string& isa : isas()) {
    const auto device = make_cpu_device({2, isa});
    for (const char* text :
         {"mb2ic64ih6oc64oh6kh3ph1", "mb2ic64ih6oc64oh6kh1ph0", "mb1ic3ih19oc20oh10kh5sh2ph2",
          "mb1ic3ih19oc20oh19kh3ph1", "g24mb1ic24ih6oc24oh6kh3ph1", "g6mb1ic24ih6oc24oh6kh3ph1",
          "g24mb1ic24ih9oc24oh9kh7ph3"})
      for (const DType dtype : {DType::f32, DType::f64})
        for (const auto& [x_layout, y_layout] : std::vector<std::pair<Layout, Layout>>{
                 {Layout::nchw, Layout::nchw},
                 {Layout::nhwc, Layout::nhwc},
                 {Layout::nchw, blocked_layout(device->info())},
                 {blocked_layout(device->info()), blocked_layout(device->info())}}) {
          ConvProblem p = parse_problem(text).problem;
          p.dtype = dtype;
          p.epilogue = {true, true, ActivationKind::relu};
          p.x_layout = x_layout;
          p.y_layout = y_layout;
          for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu)) {
            if (algo->refuse(p, *device)) continue;
            for (const Config& config : algo->configs(p, *device)) {
              EXPECT_EQ(lost_nan(*algo, p, config, *device), "")
                  << command(*algo, p, config, device->info(), 7);
              ++ran[algo->info().id];
            }
          }
        }
  }
  for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu)) {
    const std::string& id = algo->info().id;
    if (id == "im2col_blocked") continue;  // has no forward pass, so no epilogue
    EXPECT_TRUE(ran.contains(id) || algo->info().origin == Origin::vendor) << id;
  }
}

// One of the family's four algorithms or depthwise takes every problem, and never two take one:
// that would only lengthen races.
TEST(Families, OneOfDirectOrDepthwiseTakesAProblem) {
  const auto device = make_cpu_device({2, ""});
  std::vector<const ConvAlgo*> direct = registry().named(DeviceKind::cpu, "direct");
  EXPECT_EQ(direct.size(), 4u);
  direct.push_back(&registry().get(DeviceKind::cpu, "depthwise"));
  for (std::size_t i = 0; i < problem_texts().size() + depth_problem_texts().size(); ++i)
    for (const Pass pass : all_passes)
      for (const DType dtype : {DType::f32, DType::f64})
        for (const Layout x_layout : all_layouts)
          for (const Layout y_layout : all_layouts) {
            ConvProblem p = test_problem(i).problem;
            p.pass = pass;
            p.dtype = dtype;
            p.x_layout = x_layout;
            p.y_layout = y_layout;
            std::vector<std::string> takers;
            for (const ConvAlgo* algo : direct)
              if (!algo->refuse(p, *device)) takers.push_back(algo->info().id);
            const bool other_blocks =
                is_blocked(x_layout) && x_layout != blocked_layout(device->info());
            const std::size_t least = x_layout == y_layout && !other_blocks ? 1 : 0;
            EXPECT_TRUE(takers.size() >= least && takers.size() <= 1)
                << test_problem(i).name << ' ' << to_string(dtype) << ' ' << to_string(x_layout)
                << ' ' << to_string(y_layout) << ": " << takers.size();
          }
}

TEST(Families, AreNamedAndLeftOutAsOne) {
  const auto ids = [](const std::vector<std::string>& algos, const std::vector<std::string>& not_) {
    std::vector<std::string> admitted;
    for (const ConvAlgo* algo : admitted_algos(registry(), DeviceKind::cpu, algos, not_))
      admitted.push_back(algo->info().id);
    return admitted;
  };
  using Ids = std::vector<std::string>;
  const Ids direct{"direct", "direct_first_layer", "direct_grouped", "direct_plain"};
  EXPECT_EQ(ids({"direct"}, {}), direct);
  EXPECT_EQ(ids({"direct_plain"}, {}), Ids{"direct_plain"});
  EXPECT_EQ(ids({"im2col"}, {"im2col_blocked"}), Ids{"im2col"});  // the only member of its family
  EXPECT_EQ(ids({"direct", "fft"}, {"direct"}), Ids{"fft"});
  EXPECT_EQ(ids({"direct_plain"}, {"direct"}), Ids{});
  for (const std::string& id : ids({}, {"direct"}))
    EXPECT_EQ(std::find(direct.begin(), direct.end(), id), direct.end());
  EXPECT_THROW(ids({"direc"}, {}), InputError);
  EXPECT_THROW(ids({}, {"direct_"}), InputError);
  for (const ConvAlgo* algo : registry().all()) {
    const AlgoInfo& info = algo->info();
    const std::size_t dot = info.id.find('.');
    if (dot == std::string::npos) continue;
    EXPECT_EQ(info.family, info.id.substr(0, dot)) << info.id;
  }
}

TEST(Configs, OnlyThoseThatAreListedArePlanned) {
  const auto device = make_cpu_device({2, ""});
  for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu)) {
    int refused = 0;
    for (const char* text :
         {"mb2ic64ih6oc64oh6kh3ph1", "mb2ic64ih6oc128oh6kh5ph2", "mb2ic128ih6oc128oh6kh1ph0",
          "mb2ic3ih6oc64oh6kh3ph1", "g64mb2ic64ih6oc64oh6kh3ph1", "g16mb2ic64ih6oc64oh6kh3ph1",
          "g32mb1ic32ih9oc32oh9kh7ph3"})
      for (const Pass pass : all_passes)
        for (const Layout layout : {Layout::nchw, blocked_layout(device->info())}) {
          ConvProblem p = parse_problem(text).problem;
          p.pass = pass;
          p.x_layout = p.c < 4 ? Layout::nchw : layout;
          p.y_layout = layout;
          if (algo->refuse(p, *device)) continue;
          refused += expect_only_listed(*algo, p, *device);
          expect_unknown_name_refused(*algo, p, *device);
        }
    EXPECT_TRUE(refused > 0 || algo->info().origin == Origin::vendor) << algo->info().id;
  }
}

// With the machine's real thread count and cache sizes.
TEST(Machine, EveryConfigOfAllItsThreadsIsRight) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  for (const char* text : {"mb2ic64ih8oc64oh8kh3ph1", "mb1ic3ih23oc16oh12kh5sh2ph2"})
    for (const Pass pass : all_passes) {
      ConvProblem p = parse_problem(text).problem;
      p.pass = pass;
      const ReferenceCase reference(p, 9, DataKind::small_integers);
      for (const Layout x_layout : {Layout::nchw, blocked_layout(device->info())}) {
        p.x_layout = x_layout;
        p.y_layout = blocked_layout(device->info());
        for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu)) {
          if (algo->refuse(p, *device)) continue;
          for (const Config& config : algo->configs(p, *device)) {
            const auto verdict =
                check_candidate(*algo, p, config, reference, *device, *stream, max_error(*algo, p));
            EXPECT_TRUE(verdict.status == Status::ok || verdict.status == Status::refused)
                << verdict.reason << "\n  " << command(*algo, p, config, device->info(), 9);
          }
        }
      }
    }
}

TEST(RandomProblems, AgreeWithTheReference) {
  const std::uint64_t seed = random_problems_seed();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  Count ran;
  for (int i = 0; i < (reduced() ? 30 : 150); ++i) {
    const ConvProblem p = random_problem(random);
    const std::vector<std::string> all = isas();
    check_candidates(p, std::uint64_t(i), all[std::size_t(i) % all.size()], ran);
  }
  for (const ConvAlgo* algo : registry().for_device(DeviceKind::cpu)) {
    if (algo->info().origin == Origin::vendor) continue;
    EXPECT_TRUE(ran[algo->info().id] > 0 || reduced()) << algo->info().id << " took none of them";
  }
}

}  // namespace
}  // namespace convlab
