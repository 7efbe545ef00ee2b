// AVX512_BF16's dot products: the emulation against the hardware, bit for bit, and which one is
// selected.
#include <gtest/gtest.h>
#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

#include "conv/error.h"
#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/amx/terms.h"
#include "kernels_cpu/avx512_bf16/dot_target.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"
#include "kernels_cpu/avx512_bf16/emulated_dots.h"
#include "kernels_cpu/half/units.h"
#include "tests/kernels_cpu/matrix_units.h"

#if HWY_ARCH_X86
// clang-format off
#include <immintrin.h>
HWY_PUSH_ATTRIBUTES(CONVLAB_AVX512_BF16_TARGET)
#include "kernels_cpu/avx512_bf16/vector_dots.h"
// clang-format on
namespace convlab::cpu {
namespace {

void dots_on_hardware(const std::uint16_t* a, const std::uint16_t* b, float* sums) {
  VectorDots::multiply_add<8, 2>(reinterpret_cast<const std::byte*>(a),
                                 reinterpret_cast<const std::byte*>(b), 1, sums);
}

}  // namespace
}  // namespace convlab::cpu
HWY_POP_ATTRIBUTES

namespace convlab::cpu {
namespace {

// Exponents of a's and b's elements and of the sums, from the least to the most; 255 has infinities
// and NaNs.
struct Exponents {
  std::array<unsigned, 2> factors, sums;
};

TEST(Dots, OnHardwareAndEmulatedAgreeInEveryBit) {
  if (!half_units().avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512_BF16";
  const Exponents ranges[] = {
      {{120, 130}, {120, 135}},  // ordinary
      {{100, 154}, {100, 150}},  // far apart: most bits of most products are rounded off
      {{40, 90}, {0, 40}},       // results around the least normal, and subnormal
      {{0, 80}, {0, 8}},         // also subnormal factors
      {{150, 254}, {120, 254}},  // overflow
      {{0, 255}, {0, 255}},      // everything
  };
  std::mt19937 random(13);
  const auto bits = [&](std::array<unsigned, 2> exponents) -> std::uint32_t {
    const unsigned exponent = exponents[0] + unsigned(random()) % (exponents[1] - exponents[0] + 1);
    return (random() & 0x807fffff) | exponent << 23;
  };
  constexpr int kSums = 512;
  std::int64_t nans = 0, different = 0;
  for (const Exponents& range : ranges)
    for (int round = 0; round < 100; ++round) {
      alignas(64) std::uint16_t a[512], b[1024];
      alignas(64) float hardware[kSums], emulated[kSums];
      for (std::uint16_t& value : a) value = std::uint16_t(bits(range.factors) >> 16);
      for (std::uint16_t& value : b) value = std::uint16_t(bits(range.factors) >> 16);
      for (int i = 0; i < kSums; ++i) {
        const std::uint32_t sum = round % 3 == 0 ? 0 : bits(range.sums);
        std::memcpy(&hardware[i], &sum, sizeof sum);
      }
      std::copy_n(hardware, kSums, emulated);
      dots_on_hardware(a, b, hardware);
      EmulatedDots::multiply_add(8, 2, reinterpret_cast<const std::byte*>(a),
                                 reinterpret_cast<const std::byte*>(b), 1, emulated);
      for (int i = 0; i < kSums; ++i) {
        const bool both_nan = std::isnan(hardware[i]) && std::isnan(emulated[i]);
        nans += both_nan;
        if (!both_nan && std::memcmp(&hardware[i], &emulated[i], sizeof(float)) != 0) ++different;
      }
    }
  EXPECT_EQ(different, 0);
  EXPECT_GT(nans, 100);
}

}  // namespace
}  // namespace convlab::cpu
#endif

namespace convlab::cpu {
namespace {

// The least significant bits show the order, and that each product is rounded.
TEST(Dots, AddTheUpperProductFirst) {
  const auto bf16 = [](float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return std::uint16_t(bits >> 16);
  };
  const std::uint16_t one[2] = {bf16(1), bf16(1)}, small_and_large[2] = {bf16(1), bf16(0x1p24f)};
  EXPECT_EQ(emulate_dot(-0x1p24f, small_and_large, one), 1);
  EXPECT_EQ(emulate_dot(1, small_and_large, one), 0x1p24f);
  const std::uint16_t subnormal[2] = {1, 1};
  EXPECT_EQ(emulate_dot(0x1p-130f, subnormal, one), 0);
}

TEST(DotUnit, IsOnlyWhereItIsUsableOrAskedFor) {
  {
    const UnitWanted unset("off", nullptr);
    EXPECT_EQ(dot_unit("avx512"), half_units().avx512_bf16 ? avx512_bf16_unit : "");
    EXPECT_EQ(dot_unit("avx2"), "");
  }
  {
    const UnitWanted emulated("off", "emulated");
    EXPECT_EQ(dot_unit("baseline"), emulated_avx512_bf16_unit);
  }
  {
    const UnitWanted off("off", "off");
    EXPECT_EQ(dot_unit("avx512"), "");
  }
  const UnitWanted other("off", "yes");
  EXPECT_THROW(dot_unit("avx512"), InputError);
}

}  // namespace
}  // namespace convlab::cpu
