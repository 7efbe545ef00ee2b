// AMX's tiles: the emulation against the hardware, bit for bit, and which one is selected.
#include "kernels_cpu/amx/amx.h"

#include <gtest/gtest.h>
#include <hwy/base.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "conv/error.h"
#include "kernels_cpu/amx/amx_target.h"
#include "kernels_cpu/amx/emulated_tiles.h"

#if HWY_ARCH_X86
// clang-format off
#include <immintrin.h>
HWY_PUSH_ATTRIBUTES(CONVLAB_AMX_TARGET)
#include "kernels_cpu/amx/amx_tiles.h"
// clang-format on

namespace convlab::cpu {
namespace {

void product_on_hardware(float* sums, const std::uint16_t* a, const std::uint16_t* b) {
  AmxTiles tiles;
  tiles.load<0>(sums, 64);
  tiles.load<1>(a, 64);
  tiles.load<2>(b, 64);
  tiles.multiply_add<0, 1, 2>();
  tiles.store<0>(sums, 64);
}

void round_on_hardware(const float* values, std::uint16_t* to) {
  Line line0 = *reinterpret_cast<const LineAt*>(values);
  Line line1 = *reinterpret_cast<const LineAt*>(values + 16);
  AmxTiles::round(line0, line1, to);
}

}  // namespace
}  // namespace convlab::cpu
HWY_POP_ATTRIBUTES

namespace convlab::cpu {
namespace {

// Exponents of a's and b's elements and of the sums, from the least to the most; 255 has infinities
// and NaNs.
struct Exponents {
  std::array<unsigned, 2> a, b, sums;
};

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!amx_support().usable) GTEST_SKIP() << amx_support().why_not;
  }
  std::uint32_t bits(std::array<unsigned, 2> exponents) {
    const unsigned exponent = exponents[0] + unsigned(random()) % (exponents[1] - exponents[0] + 1);
    return (random() & 0x807fffff) | exponent << 23;
  }
  float value(std::array<unsigned, 2> exponents) {
    const std::uint32_t b = bits(exponents);
    float f = 0;
    std::memcpy(&f, &b, sizeof f);
    return f;
  }

  std::mt19937 random{11};
};

TEST_F(Amx, HardwareAndEmulationAgreeInEveryBit) {
  const Exponents ranges[] = {
      {{120, 130}, {120, 130}, {120, 135}},  // ordinary
      {{100, 154},
       {100, 154},
       {100, 150}},                  // far apart: most bits of most products are rounded off
      {{0, 80}, {30, 130}, {0, 8}},  // results around the least normal, and subnormal
      {{0, 3}, {120, 130}, {0, 3}},  // subnormal operands
      {{180, 254}, {150, 254}, {120, 254}},  // overflow
      {{0, 255}, {0, 255}, {0, 255}},        // everything
  };
  std::int64_t nans = 0, different = 0;
  for (const Exponents& range : ranges)
    for (int round = 0; round < 200; ++round) {
      alignas(64) std::uint16_t a[512], b[512];
      alignas(64) float hardware[256], emulated[256];
      for (int i = 0; i < 512; ++i) {
        a[i] = std::uint16_t(bits(range.a) >> 16);
        b[i] = std::uint16_t(bits(range.b) >> 16);
      }
      for (int i = 0; i < 256; ++i)
        hardware[i] = emulated[i] = round % 3 == 0 ? 0 : value(range.sums);
      product_on_hardware(hardware, a, b);
      emulate_tile_product(emulated, a, b);
      for (int i = 0; i < 256; ++i) {
        const bool both_nan = std::isnan(hardware[i]) && std::isnan(emulated[i]);
        nans += both_nan;
        if (!both_nan && std::memcmp(&hardware[i], &emulated[i], sizeof(float)) != 0) ++different;
      }
    }
  EXPECT_EQ(different, 0);
  EXPECT_GT(nans, 100);
}

TEST_F(Amx, RoundsAsTheEmulationDoes) {
  for (int round = 0; round < 20000; ++round) {
    float values[32];
    std::uint16_t hardware[32];
    for (float& v : values) v = value({0, 255});
    round_on_hardware(values, hardware);
    for (int i = 0; i < 32; ++i) ASSERT_EQ(hardware[i], round_to_bf16(values[i])) << values[i];
  }
}

// The permission is the process's: it holds in threads that were started before and after it.
TEST_F(Amx, WorksInEveryThread) {
  const auto multiply = [] {
    alignas(64) std::uint16_t a[512] = {0x3f80}, b[512] = {0x4000};
    alignas(64) float sums[256] = {};
    product_on_hardware(sums, a, b);
    return sums[0];
  };
  float there = 0;
  std::thread([&] { there = multiply(); }).join();
  EXPECT_EQ(there, 2);
  EXPECT_EQ(multiply(), 2);
}

}  // namespace
}  // namespace convlab::cpu
#endif

namespace convlab::cpu {
namespace {

TEST(RoundToBf16, TiesGoToEven) {
  EXPECT_EQ(round_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(round_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(round_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
  EXPECT_EQ(round_to_bf16(1.0f + 0x3p-8f), 0x3f82);
  EXPECT_EQ(round_to_bf16(-0x1p-130f), 0x8000);
  EXPECT_EQ(round_to_bf16(0x1.ffffp127f), 0x7f80);
  EXPECT_TRUE(std::isnan(std::nanf("")) && round_to_bf16(std::nanf("")) > 0x7f80);
}

TEST(MatrixUnit, IsOnlyWhereItIsUsableOrAskedFor) {
  const char* const before = std::getenv("CONVLAB_AMX");
  const std::string kept = before ? before : "";
  unsetenv("CONVLAB_AMX");
  EXPECT_EQ(matrix_unit("avx512"), amx_support().usable ? amx_unit : "");
  EXPECT_EQ(matrix_unit("avx2"), "");
  EXPECT_EQ(amx_support().usable, amx_support().why_not.empty());
  setenv("CONVLAB_AMX", "emulated", 1);
  EXPECT_EQ(matrix_unit("baseline"), emulated_amx_unit);
  setenv("CONVLAB_AMX", "off", 1);
  EXPECT_EQ(matrix_unit("avx512"), "");
  setenv("CONVLAB_AMX", "yes", 1);
  EXPECT_THROW(matrix_unit("avx512"), InputError);
  before ? setenv("CONVLAB_AMX", kept.c_str(), 1) : unsetenv("CONVLAB_AMX");
}

}  // namespace
}  // namespace convlab::cpu
