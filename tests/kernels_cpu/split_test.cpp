// implicit_gemm by bf16 products of matrix tiles (implicit_gemm/split.h), emulated on every
// instruction set, and on the hardware where it is. bf16 also by dot products.
#include "kernels_cpu/implicit_gemm/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "conv/error.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"
#include "kernels_cpu/half/bits.h"
#include "kernels_cpu/half/units.h"
#include "tests/kernels_cpu/expect_exact.h"
#include "tests/kernels_cpu/matrix_units.h"

namespace convlab {
namespace {

// The chunk's key in the config.
const char* key_of(Pass pass) { return pass == Pass::backward_filter ? "pixels" : "depth"; }

struct Case {
  std::string text;
  Epilogue epilogue = {};
  bool accumulate = false;
};

// The environment's choices of a unit for bf16: emulated, and the hardware that is there.
struct Units {
  const char *amx, *dots;
};
std::vector<Units> units_of(const std::string& isa) {
  std::vector<Units> units{{"emulated", "off"}, {"off", "emulated"}};
  if (isa != "avx512") return units;
  if (cpu::amx_support().usable) units.push_back({nullptr, "off"});
  if (cpu::half_units().avx512_bf16) units.push_back({"off", nullptr});
  return units;
}

class SplitGemmTest : public testing::TestWithParam<std::string> {
 protected:
  UnitWanted emulated_{"emulated"};
};

// Sums of small integers are exact, whatever the order: every shape, tail and bound.
TEST_P(SplitGemmTest, MatchesTheReference) {
  const Case cases[] = {
      {.text = "mb1ic1ih1oc1oh1kh1ph0"},
      {.text = "mb2ic16ih5oc16oh5kh1ph0"},  // half a step of depth; one tile of columns
      {.text = "mb1ic48ih6oc80oh6kh1ph0"},  // tiles of rows: 2 and 1, of which one is partial
      {.text = "mb3ic24ih4oc40oh4kh1ph0"},  // rows of three images in one tile
      {.text = "mb1ic16ih7oc33oh7kh3ph1"},  // steps across two taps
      {.text = "mb2ic40ih6iw9oc70oh6ow9kh3ph1"},
      {.text = "mb1ic160ih4oc32oh4kh3ph1"},  // chunks of depth
      {.text = "mb2ic33ih14iw11oc20oh7ow6kh3ph1sh2sw2pw1"},
      {.text = "mb2ic32ih9oc32oh5kh1ph0sh2"},  // dx: pixels without taps
      {.text = "mb2ic40ih9iw12oc20oh3ow6kh1ph0sh3sw2pw0"},
      {.text = "mb1ic16ih20iw17oc16oh9ow5kh4kw3sh2sw3ph1pw0"},
      {.text = "mb1ic16ih17oc16oh11kh3ph0dh2"},
      {.text = "mb1ic16ih1oc16oh1kh5ph2"},
      {.text = "g3mb2ic48ih5oc96oh5kh3ph1",
       .epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu}},
      {.text = "g4mb3ic128ih6iw7oc64oh3ow4kh3sh2ph1", .accumulate = true},
      {.text = "mb2ic20ih5oc91oh5kh1ph0",
       .epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu}},
      {.text = "mb2ic64ih4oc41oh4kh3ph1", .epilogue = {.bias = true}},
      {.text = "mb1ic192ih6oc40oh3kh1ph0sh2", .accumulate = true},
      {.text =
           "mb3ic80ih5oc112oh5kh3ph1"},  // backward_filter: pairs of tiles, and one tile, of both
      {.text = "mb2ic40ih8oc24oh8kh2ph0"},  // and four taps, which fill a vector of their own
      {.text = "mb5ic16ih9oc16oh9kh1ph0", .accumulate = true},  // threads share pixels only
  };
  const auto algo = cpu::make_implicit_gemm();
  for (const Case& c : cases)
    for (const Pass pass : all_passes) {
      ConvProblem p = blocked_problem(c.text, pass, GetParam());
      if (pass == Pass::forward) p.epilogue = c.epilogue;
      p.accumulate = c.accumulate;
      const char* const key = key_of(pass);
      expect_exact(*algo, p, GetParam(), [&](std::vector<Config>& configs) {
        std::erase_if(configs, [](const Config& config) { return !cpu::is_split(config); });
        EXPECT_GE(configs.size(), 2u);
        std::erase_if(configs, [&](const Config& config) { return config.get(key) == 1024; });
        configs.push_back(with_math({{key, 96}}, DType::f32, MathType::bf16x3));
        configs.push_back(with_math({{key, 32}}, DType::f32, MathType::bf16x6));
      });
    }
}

// Tensors in bf16, on the hardware too where it is. The sums are small enough to be exact in it.
TEST_P(SplitGemmTest, TakesBf16AsItIsStored) {
  const Epilogue all{.bias = true, .residual = true, .activation = ActivationKind::relu};
  const Case cases[] = {
      {.text = "mb1ic1ih1oc1oh1kh1ph0"},
      {.text = "mb2ic16ih5oc16oh5kh1ph0"},
      {.text = "mb1ic48ih6oc80oh6kh1ph0", .epilogue = all},
      {.text = "mb3ic24ih4oc40oh4kh1ph0", .accumulate = true},
      {.text = "mb1ic16ih7oc33oh7kh3ph1", .epilogue = {.bias = true}},
      {.text = "mb2ic33ih14iw11oc20oh7ow6kh3ph1sh2sw2pw1"},
      {.text = "mb2ic40ih9iw12oc20oh3ow6kh1ph0sh3sw2pw0", .accumulate = true},
      {.text = "mb1ic16ih17oc16oh11kh3ph0dh2", .epilogue = {.residual = true}},
      {.text = "g3mb2ic48ih5oc96oh5kh3ph1", .epilogue = all},
      {.text = "mb2ic8ih5oc24oh5kh1ph0", .epilogue = {.activation = ActivationKind::hardswish}},
      {.text = "mb5ic16ih9oc16oh9kh1ph0", .accumulate = true},
  };
  const auto algo = cpu::make_implicit_gemm();
  for (const Units& units : units_of(GetParam()))
    for (const Case& c : cases)
      for (const Pass pass : all_passes) {
        const UnitWanted wanted(units.amx, units.dots);
        ConvProblem p = blocked_problem(c.text, pass, GetParam());
        p.dtype = DType::bf16;
        if (pass == Pass::forward) p.epilogue = c.epilogue;
        p.accumulate = c.accumulate;
        const bool exact = p.epilogue.activation != ActivationKind::hardswish;
        for (const int threads : {1, 3}) {
          const auto device = make_cpu_device({.threads = threads, .isa = GetParam()});
          const auto stream = device->make_stream();
          const ReferenceCase reference(p, 7, DataKind::small_integers);
          ASSERT_FALSE(algo->refuse(p, *device)) << c.text;
          std::vector<Config> configs = algo->configs(p, *device);
          if (pass == Pass::backward_filter) configs.push_back({{"pixels", 32}, {"math", "bf16"}});
          for (const Config& config : configs) {
            EXPECT_EQ(math_type(config), MathType::bf16);
            const auto verdict = check_candidate(*algo, p, config, reference, *device, *stream,
                                                 exact ? 0.0 : 0x1p-9);
            EXPECT_EQ(verdict.status, Status::ok)
                << cpu::bf16_unit(device->info()) << ": " << c.text << ' ' << to_string(pass)
                << " threads " << threads << ' ' << config.text() << ": " << verdict.reason;
          }
        }
      }
}

// Each result is one product, whose rounding is the only one.
void expect_sums_rounded_once(const std::string& isa) {
  const auto algo = cpu::make_implicit_gemm();
  const auto device = make_cpu_device({.threads = 2, .isa = isa});
  const auto stream = device->make_stream();
  ConvProblem p = blocked_problem("mb1ic16ih16oc16oh16kh1ph0", Pass::forward, isa);
  p.dtype = DType::bf16;
  const auto plan = algo->plan(p, algo->configs(p, *device).front(), *device);
  const auto half = [&](std::int64_t bytes) {
    Buffer buffer = device->allocate(std::size_t(bytes));
    std::memset(buffer.data(), 0, std::size_t(bytes));
    return buffer;
  };
  const Buffer x = half(p.x_bytes()), w = half(p.filter_bytes()), out = half(p.y_bytes());
  std::mt19937 random(3);
  const auto any = [&] {  // 2^-62 to 2^62 of either sign
    return std::uint16_t((random() & 0x8000) | (65 + random() % 124) << 7 | (random() & 0x7f));
  };
  for (std::int64_t i = 0; i < p.x_bytes() / 2; ++i) x.as<std::uint16_t>()[i] = any();
  for (std::int64_t i = 0; i < 16; ++i) w.as<std::uint16_t>()[17 * i] = any();
  const Buffer packed = device->allocate(plan->packed_filter_bytes());
  const Buffer workspace = device->allocate(plan->workspace_bytes());
  plan->pack_filter(w.span(), packed.span(), *stream);
  plan->run({.x = x.data(), .w = packed.data(), .out = out.data()}, workspace.span(), *stream);
  for (std::int64_t c = 0; c < 16; ++c)
    for (std::int64_t pixel = 0; pixel < 256; ++pixel) {
      const std::int64_t at = p.y_desc().offset(0, c, pixel / 16, pixel % 16);
      const float product = cpu::widen_bf16(x.as<std::uint16_t>()[at]) *
                            cpu::widen_bf16(w.as<std::uint16_t>()[17 * c]);
      ASSERT_EQ(out.as<std::uint16_t>()[at], cpu::round_to_nearest_bf16(product)) << product;
    }
}

TEST_P(SplitGemmTest, RoundsSumsOfBf16Once) {
  for (const Units& units : units_of(GetParam())) {
    const UnitWanted wanted(units.amx, units.dots);
    expect_sums_rounded_once(GetParam());
  }
}

double error_of(const char* text, Pass pass, const std::string& isa, MathType math) {
  const ConvProblem p = blocked_problem(text, pass, isa);
  const auto device = make_cpu_device({.threads = 2, .isa = isa});
  const auto stream = device->make_stream();
  const ReferenceCase reference(p, 5);
  return check_candidate(*cpu::make_implicit_gemm(), p,
                         with_math({{key_of(pass), 512}}, p.dtype, math), reference, *device,
                         *stream, 1.0)
      .rel_error;
}

// A product that is left out, or added twice, costs 2e-3 (2^-9) or, of bf16x6's, 5e-6 (2^-18).
TEST_P(SplitGemmTest, AddsTheProductsThatItsMathNames) {
  for (const char* text : {"mb1ic64ih6oc32oh6kh1ph0", "mb1ic48ih5oc32oh5kh3ph1"})
    for (const Pass pass : all_passes) {
      const double x3 = error_of(text, pass, GetParam(), MathType::bf16x3);
      const double x6 = error_of(text, pass, GetParam(), MathType::bf16x6);
      EXPECT_LT(x3, 8e-6) << text;
      EXPECT_GT(x3, 1e-6) << text;
      EXPECT_LT(x6, 4e-7) << text;
    }
}

// Sums over 50000 pixels in one chain of additions have an error of 1.3e-6.
TEST_P(SplitGemmTest, SumsManyPixelsInChunks) {
  EXPECT_LT(
      error_of("mb16ic16ih56oc16oh56kh1ph0", Pass::backward_filter, GetParam(), MathType::bf16x6),
      4e-7);
}

TEST_P(SplitGemmTest, IsListedOnlyWithAUnitAndNeverUnnamed) {
  const auto algo = cpu::make_implicit_gemm();
  const auto with = make_cpu_device({.threads = 1, .isa = GetParam()});
  const UnitWanted off("off");
  const auto without = make_cpu_device({.threads = 1, .isa = GetParam()});
  for (const Pass pass : all_passes) {
    const ConvProblem p = blocked_problem("mb16ic64ih6oc64oh6kh3ph1", pass, GetParam());
    EXPECT_FALSE(cpu::is_split(algo->configs(p, *with).front()));
    EXPECT_EQ(algo->configs(p, *with).size(), algo->configs(p, *without).size() + 4);
    for (const Config& config : algo->configs(p, *without)) EXPECT_FALSE(cpu::is_split(config));
    for (const Config& config : algo->configs(p, *with)) {
      if (!cpu::is_split(config)) continue;
      EXPECT_THROW(algo->plan(p, config, *without), EnvironmentError);
      // FLOPs are those of all products.
      const double times = math_type(config) == MathType::bf16x6 ? 6 : 3;
      EXPECT_GE(algo->work(p, config, *with).flops(), times * p.flops());
    }
    const std::string key = key_of(pass);
    EXPECT_THROW(algo->plan(p, {{key, 512}, {"math", "tf32"}}, *with), InputError);
    EXPECT_THROW(algo->plan(p, {{key, 512}, {"math", "bf16"}}, *with), InputError);
    EXPECT_THROW(algo->plan(p, {{key, 0}, {"math", "bf16x3"}}, *with), InputError);
    const std::string other = pass == Pass::backward_filter ? "depth" : "pixels";
    EXPECT_THROW(algo->plan(p, {{other, 512}, {"math", "bf16x3"}}, *with), InputError);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, SplitGemmTest, testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return info.param; });

// Dot products multiply tensors in bf16 only, and only where there is no matrix unit.
TEST_P(SplitGemmTest, ListsDotProductsForBf16Only) {
  const auto algo = cpu::make_implicit_gemm();
  const auto listed = [&](const char* amx, const char* dots, DType dtype, Pass pass) {
    const UnitWanted wanted(amx, dots);
    const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
    ConvProblem p = blocked_problem("mb1ic32ih8oc32oh8kh3ph1", pass, GetParam());
    p.dtype = dtype;
    EXPECT_EQ(cpu::dot_unit(device->info()).empty(), std::string_view(amx) != "off");
    const auto configs = algo->configs(p, *device);
    return std::any_of(configs.begin(), configs.end(), cpu::is_split);
  };
  for (const Pass pass : all_passes) {
    EXPECT_TRUE(listed("off", "emulated", DType::bf16, pass));
    EXPECT_FALSE(listed("off", "emulated", DType::f32, pass));
    EXPECT_TRUE(listed("emulated", "emulated", DType::f32, pass));
  }
}

TEST(DotsOnHardware, GiveTheBitsOfTheEmulation) {
  if (!cpu::half_units().avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512_BF16";
  if (supported_isas().back() != "avx512") GTEST_SKIP() << "this build has no AVX-512";
  for (const char* text : {"mb2ic48ih9oc80oh9kh3ph1", "mb1ic64ih7oc41oh4kh1sh2ph0"})
    for (const Pass pass : all_passes) {
      ConvProblem p = blocked_problem(text, pass, "avx512");
      p.dtype = DType::bf16;
      Config config = with_math({}, p.dtype, MathType::bf16);
      if (pass == Pass::backward_filter) config.set("pixels", 512);
      const auto result = [&](const char* dots) {
        const UnitWanted wanted("off", dots);
        return result_of(*cpu::make_implicit_gemm(), p, config);
      };
      EXPECT_EQ(result(nullptr), result("emulated")) << text << ' ' << to_string(pass);
    }
}

TEST(SplitOnHardware, GivesTheBitsOfTheEmulation) {
  if (!cpu::amx_support().usable) GTEST_SKIP() << cpu::amx_support().why_not;
  if (supported_isas().back() != "avx512") GTEST_SKIP() << "this build has no AVX-512";
  for (const char* text : {"mb2ic48ih9oc80oh9kh3ph1", "mb1ic64ih7oc32oh4kh1sh2ph0"}) {
    for (const Pass pass : {Pass::forward, Pass::backward_filter})
      for (const MathType math : {MathType::bf16x3, MathType::bf16x6}) {
        const ConvProblem p = blocked_problem(text, pass, "avx512");
        const Config config = with_math({{key_of(pass), 512}}, p.dtype, math);
        const auto algo = cpu::make_implicit_gemm();
        const std::vector<float> hardware = result_on(nullptr, *algo, p, config);
        const std::vector<float> emulated = result_on("emulated", *algo, p, config);
        EXPECT_EQ(std::memcmp(hardware.data(), emulated.data(), hardware.size() * 4), 0)
            << text << ' ' << to_string(pass) << ' ' << config.text();
      }
  }
}

}  // namespace
}  // namespace convlab
