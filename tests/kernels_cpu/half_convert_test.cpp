// Conversions between f32 and the 16-bit types, on every instruction set: each of the 65536 values,
// and each rounding between neighbours.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "conv/types/element_type.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/half/convert.h"
#include "kernels_cpu/half/units.h"

namespace convlab {
namespace {

using Bits = std::vector<std::uint16_t>;

// By the host's conversions through double.
double value_of(DType half, std::uint16_t bits) {
  return half == DType::f16 ? double(Float16::from_bits(bits)) : double(BFloat16::from_bits(bits));
}
std::uint16_t rounded(DType half, float v) {
  return half == DType::f16 ? Float16(v).bits() : BFloat16(v).bits();
}

class HalfConvert : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { device_ = make_cpu_device({.threads = 2, .isa = GetParam()}); }

  // Both ways to round that this CPU has.
  static std::vector<bool> ways() {
    if (GetParam() == "avx512" && cpu::half_units().avx512_bf16) return {false, true};
    return {false};
  }
  static void expect_rounded(DType half, const std::vector<float>& values) {
    for (const bool by_unit : ways()) {
      Bits bits(values.size());
      cpu::round(half, values.data(), bits.data(), std::int64_t(values.size()), by_unit);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (std::isnan(values[i]))
          ASSERT_TRUE(std::isnan(value_of(half, bits[i]))) << i;
        else
          ASSERT_EQ(bits[i], rounded(half, values[i]))
              << to_string(half) << ' ' << values[i] << (by_unit ? " by the unit" : "");
      }
    }
  }

  std::unique_ptr<Device> device_;
};

TEST_P(HalfConvert, EveryValueIsWidenedAndComesBack) {
  Bits bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = std::uint16_t(i);
  for (const DType half : {DType::f16, DType::bf16}) {
    std::vector<float> wide(bits.size());
    cpu::widen(half, bits.data(), wide.data(), std::int64_t(bits.size()));
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const double expected = value_of(half, bits[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
        continue;
      }
      ASSERT_EQ(double(wide[i]), expected) << i;
      ASSERT_EQ(std::signbit(wide[i]), std::signbit(expected)) << i;
    }
    expect_rounded(half, wide);
  }
}

TEST_P(HalfConvert, RoundsToTheNearestAndTiesToEven) {
  for (const DType half : {DType::f16, DType::bf16}) {
    std::vector<float> values;
    const float infinity = std::numeric_limits<float>::infinity();
    for (std::uint16_t low = 0; std::isfinite(value_of(half, low)); ++low) {
      const double a = value_of(half, low), b = value_of(half, std::uint16_t(low + 1));
      const float middle =
          std::isfinite(b) ? float((a + b) / 2) : float(a + (a - value_of(half, low - 1)) / 2);
      for (const float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, infinity)})
        values.insert(values.end(), {v, -v});
    }
    for (const float v : {infinity, 1e30f, 3e38f, std::numeric_limits<float>::max(), 1e-45f, 1e-40f,
                          std::numeric_limits<float>::quiet_NaN()})
      values.insert(values.end(), {v, -v});
    for (const std::uint32_t nan : {0x7f800001u, 0xffffffffu, 0x7fffffffu, 0xff800001u})
      values.push_back(std::bit_cast<float>(nan));
    expect_rounded(half, values);
  }
}

TEST_P(HalfConvert, NothingBeyondTheCountIsTouched) {
  for (const DType half : {DType::f16, DType::bf16})
    for (std::int64_t count = 0; count < 100; ++count) {
      const auto size = static_cast<std::size_t>(count);
      std::vector<float> wide(size + 40, 7.0f);
      Bits bits(size + 40, 0xabcd);
      for (std::size_t i = 0; i < size; ++i) wide[i] = float(i) + 0.5f;
      cpu::round(half, wide.data(), bits.data(), count, 3, nullptr, 0);
      std::vector<float> back(size + 40, 9.0f);
      cpu::widen(half, bits.data(), back.data(), count, 3, nullptr, 0);
      for (std::size_t i = 0; i < bits.size(); ++i) {
        ASSERT_EQ(bits[i], i < size ? rounded(half, wide[i]) : 0xabcd) << count;
        ASSERT_EQ(back[i], i < size ? wide[i] : 9.0f) << count;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, HalfConvert, testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace convlab
