// winograd by bf16 products of matrix tiles (winograd/split.h), emulated on every instruction set,
// and on the hardware where it is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "conv/error.h"
#include "conv/types/expected_error.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/amx/amx.h"
#include "tests/kernels_cpu/expect_exact.h"
#include "tests/kernels_cpu/matrix_units.h"

namespace convlab {
namespace {

constexpr Pass passes[] = {Pass::forward, Pass::backward_data};

bool is_split(const Config& config) { return config.has("math"); }

Config config_of(MathType math, std::int64_t tile, std::int64_t block,
                 const char* schedule = "private") {
  return with_math({{"tile", tile}, {"schedule", std::string(schedule)}, {"block", block}},
                   DType::f32, math);
}

// Above what is measured: with bf16x6 f32's transforms lose most.
double error_bound(const Config& config) {
  if (math_type(config) != MathType::bf16x6) return 1.15 * expected_error(config);
  return config.get("tile") == 2 ? 4e-7 : config.get("tile") == 4 ? 1.2e-6 : 5e-6;
}

class WinogradSplit : public testing::TestWithParam<std::string> {
 protected:
  UnitWanted emulated_{"emulated"};
};

// Blocks of all sizes: a last tile of rows that overlaps another one, fewer rows than a tile has,
// one, two and three tiles of rows.
TEST_P(WinogradSplit, MatchesTheReference) {
  struct Case {
    const char* text;
    Epilogue epilogue = {};
    bool accumulate = false;
  };
  const Case cases[] = {
      {"mb1ic16ih5oc16oh5kh3ph1"},          // half a step of depth, one tile of columns
      {"mb1ic40ih12iw9oc40oh12ow9kh3ph1"},  // tails of depth and of columns
      {"mb1ic14ih9oc21oh7kh3ph0"},
      {"mb1ic16ih3iw70oc8oh3ow70kh3ph1"},  // rows of many tiles
      {"mb4ic20ih7oc20oh7kh3ph1",
       {.bias = true, .residual = true, .activation = ActivationKind::silu}},  // a mosaic
      {"mb1ic16ih13iw11oc20oh13ow11kh3dh1ph2"},
      {"g2mb2ic64ih7iw9oc64oh7ow9kh3ph1", {.bias = true}, true},
  };
  constexpr const char* schedules[] = {"private", "shared", "panels"};
  const auto algo = cpu::make_winograd();
  const auto device = make_cpu_device({.threads = 3, .isa = GetParam()});
  const auto stream = device->make_stream();
  for (const Case& c : cases)
    for (const Pass pass : passes) {
      ConvProblem p = blocked_problem(c.text, pass, GetParam());
      if (pass == Pass::forward) p.epilogue = c.epilogue;
      p.accumulate = c.accumulate && pass == Pass::backward_data;
      const ReferenceCase reference(p, 7);
      std::vector<Config> configs = algo->configs(p, *device);
      std::erase_if(configs, [](const Config& config) { return !is_split(config); });
      EXPECT_GE(configs.size(), 4u);
      std::int64_t turn = 0;
      for (const std::int64_t block : {1, 5, 16, 23, 33, 48}) {
        configs.push_back(config_of(MathType::bf16, 2, block, schedules[(turn + 2) % 3]));
        configs.push_back(config_of(MathType::bf16x3, 2, block, schedules[turn % 3]));
        configs.push_back(config_of(MathType::bf16x6, 4, block, schedules[++turn % 3]));
      }
      std::int64_t run = 0;
      for (const Config& config : configs) {
        try {
          (void)algo->plan(p, config, *device);
        } catch (const InputError&) {
          continue;  // there are not so many tiles
        }
        ++run;
        const auto verdict =
            check_candidate(*algo, p, config, reference, *device, *stream, error_bound(config));
        EXPECT_EQ(verdict.status, Status::ok) << to_text(p) << ' ' << to_string(pass) << " config "
                                              << config.text() << ": " << verdict.reason;
      }
      EXPECT_GE(run, 8);
    }
}

// A product that is left out, or added twice, costs 2e-3 (2^-9) or, of bf16x6's, 5e-6 (2^-18), and
// more by the larger tiles.
TEST_P(WinogradSplit, AddsTheProductsThatItsMathNames) {
  const auto algo = cpu::make_winograd();
  const auto device = make_cpu_device({.threads = 2, .isa = GetParam()});
  const auto stream = device->make_stream();
  for (const Pass pass : passes) {
    const ConvProblem p = blocked_problem("mb1ic64ih13oc32oh13kh3ph1", pass, GetParam());
    const ReferenceCase reference(p, 5);
    const auto error_of = [&](MathType math, std::int64_t tile) {
      return check_candidate(*algo, p, config_of(math, tile, 16), reference, *device, *stream, 1.0)
          .rel_error;
    };
    for (const std::int64_t tile : {2, 4}) {
      const double expected = expected_error(config_of(MathType::bf16x3, tile, 16));
      EXPECT_LT(error_of(MathType::bf16x3, tile), 1.15 * expected) << tile;
      EXPECT_GT(error_of(MathType::bf16x3, tile), 0.8 * expected) << tile;
    }
    EXPECT_LT(error_of(MathType::bf16x6, 2), 4e-7);
    EXPECT_LT(error_of(MathType::bf16x6, 4), 1e-6);
  }
}

// bf16x6 errs as f32 does, also in sums over many channels.
TEST_P(WinogradSplit, LongSumsErrLittle) {
  const auto algo = cpu::make_winograd();
  const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  const auto stream = device->make_stream();
  const ConvProblem p = blocked_problem("mb1ic512ih8oc16oh8kh3ph1", Pass::forward, GetParam());
  const ReferenceCase reference(p, 5);
  for (const std::int64_t tile : {2, 4, 6}) {
    const Config config = config_of(MathType::bf16x6, tile, 4);
    const auto verdict = check_candidate(*algo, p, config, reference, *device, *stream, 1.0);
    EXPECT_LT(verdict.rel_error, error_bound(config)) << tile;
  }
}

// Splitting and rounding keep a NaN, whatever its bits.
TEST_P(WinogradSplit, KeepsNaNs) {
  const auto algo = cpu::make_winograd();
  float ones = 0;
  std::memset(&ones, 0xff, sizeof ones);
  const float inf = std::numeric_limits<float>::infinity();
  for (const float value : {ones, std::numeric_limits<float>::quiet_NaN(), inf})
    for (const Pass pass : passes)
      for (const MathType math : {MathType::bf16x3, MathType::bf16x6}) {
        const ConvProblem p = blocked_problem("mb1ic16ih8oc16oh8kh3ph1", pass, GetParam());
        const std::vector<float> out =
            result_on("emulated", *algo, p, config_of(math, 4, 4), GetParam(), value);
        EXPECT_TRUE(std::isnan(out[0])) << value << ' ' << to_string(pass);
      }
}

TEST_P(WinogradSplit, IsListedOnlyWithAUnitAndNeverFirst) {
  const auto algo = cpu::make_winograd();
  const auto with = make_cpu_device({.threads = 1, .isa = GetParam()});
  const UnitWanted off("off");
  const auto without = make_cpu_device({.threads = 1, .isa = GetParam()});
  for (const Pass pass : passes) {
    const ConvProblem p = blocked_problem("mb16ic64ih14oc64oh14kh3ph1", pass, GetParam());
    EXPECT_FALSE(is_split(algo->configs(p, *with).front()));
    for (const Config& config : algo->configs(p, *without)) EXPECT_FALSE(is_split(config));
    const auto listed = algo->configs(p, *with);
    EXPECT_EQ(listed.size() - std::size_t(std::count_if(listed.begin(), listed.end(), is_split)),
              algo->configs(p, *without).size());
    for (const Config& config : listed) {
      if (!is_split(config)) continue;
      EXPECT_THROW(algo->plan(p, config, *without), EnvironmentError);
      // FLOPs are those of all products.
      const double times = math_type(config) == MathType::bf16x6 ? 6 : 3, m = config.get("tile");
      const double t = m + 2;
      EXPECT_GE(algo->work(p, config, *with).flops(), times * p.flops() * t * t / (9 * m * m));
    }
  }
}

TEST_P(WinogradSplit, SaysWhatItsMathTakes) {
  const auto algo = cpu::make_winograd();
  const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  const auto expect_refused = [&](const char* text, Pass pass, const Config& config) {
    EXPECT_THROW(algo->plan(blocked_problem(text, pass, GetParam()), config, *device), InputError)
        << text << ' ' << config.text();
  };
  const Config split = config_of(MathType::bf16x3, 4, 1);
  const char* const text = "mb1ic16ih8oc16oh8kh3ph1";
  (void)algo->plan(blocked_problem(text, Pass::forward, GetParam()), split, *device);
  expect_refused(text, Pass::backward_filter, split);
  expect_refused("mb1ic16ih8oc16oh4kh3sh2ph1", Pass::forward, split);
  expect_refused("mb1ic16ih8oc16oh8kh5ph2", Pass::forward, split);
  for (const char* math : {"f32", "tf32"}) {
    Config other = split;
    other.set("math", math);
    expect_refused(text, Pass::forward, other);
  }
  expect_refused(text, Pass::forward,
                 {{"tile", 4}, {"schedule", "unpacked_shared"}, {"math", "bf16x3"}});
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, WinogradSplit, testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return info.param; });

TEST(WinogradSplitOnHardware, GivesTheBitsOfTheEmulation) {
  if (!cpu::amx_support().usable) GTEST_SKIP() << cpu::amx_support().why_not;
  if (supported_isas().back() != "avx512") GTEST_SKIP() << "this build has no AVX-512";
  const auto algo = cpu::make_winograd();
  for (const char* text : {"mb2ic48ih9oc80oh9kh3ph1", "mb1ic64ih27oc24oh27kh3ph1"})
    for (const Pass pass : passes)
      for (const MathType math : {MathType::bf16x3, MathType::bf16x6})
        for (const std::int64_t block : {7, 16, 24}) {
          const ConvProblem p = blocked_problem(text, pass, "avx512");
          const Config config = config_of(math, 2, block);
          const std::vector<float> hardware = result_on(nullptr, *algo, p, config);
          const std::vector<float> emulated = result_on("emulated", *algo, p, config);
          EXPECT_EQ(std::memcmp(hardware.data(), emulated.data(), hardware.size() * 4), 0)
              << text << ' ' << to_string(pass) << ' ' << config.text();
        }
}

}  // namespace
}  // namespace convlab
