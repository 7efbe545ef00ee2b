#include "conv/types/half.h"

#include <gtest/gtest.h>

#include <bit>

namespace convlab {
namespace {

template <class T>
class HalfTest : public testing::Test {};
using Types = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfTest, Types);

// The tests below are about neighbouring values, which increase with their bits.
template <class T>
double value(int bits) {
  return double(T::from_bits(std::uint16_t(bits)));
}

TYPED_TEST(HalfTest, EveryValueComesBack) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const double v = value<TypeParam>(bits);
    if (std::isnan(v))
      EXPECT_TRUE(std::isnan(double(TypeParam(v))));
    else
      EXPECT_EQ(TypeParam(v).bits(), bits) << v;
  }
}

TYPED_TEST(HalfTest, RoundsToTheNearestAndTiesToEven) {
  const int infinity = TypeParam(std::numeric_limits<double>::infinity()).bits();
  for (int low = 0; low + 1 < infinity; ++low) {
    const double a = value<TypeParam>(low), b = value<TypeParam>(low + 1), middle = (a + b) / 2;
    ASSERT_LT(a, b);
    const int even = low % 2 == 0 ? low : low + 1;
    EXPECT_EQ(TypeParam(middle).bits(), even) << middle;
    EXPECT_EQ(TypeParam(-middle).bits(), even | 1 << 15) << middle;
    EXPECT_EQ(TypeParam(std::nextafter(middle, 0.0)).bits(), low) << middle;
    EXPECT_EQ(TypeParam(std::nextafter(middle, 1e300)).bits(), low + 1) << middle;
  }
  const double most = value<TypeParam>(infinity - 1), step = most - value<TypeParam>(infinity - 2);
  EXPECT_EQ(TypeParam(std::nextafter(most + step / 2, 0.0)).bits(), infinity - 1);
  EXPECT_EQ(TypeParam(most + step / 2).bits(), infinity);
  EXPECT_EQ(TypeParam(1e300).bits(), infinity);
}

TEST(Half, KnownPatterns) {
  EXPECT_EQ(Float16(1.0).bits(), 0x3C00);
  EXPECT_EQ(Float16(-2.0).bits(), 0xC000);
  EXPECT_EQ(Float16(65504.0).bits(), 0x7BFF);
  EXPECT_EQ(Float16(5.960464477539063e-8).bits(), 0x0001);
  EXPECT_EQ(Float16(0.1).bits(), 0x2E66);
  for (const float v : {1.0f, -3.140625f, 1e-40f * 0, 256.0f})
    EXPECT_EQ(BFloat16(v).bits(), std::bit_cast<std::uint32_t>(v) >> 16) << v;
}

}  // namespace
}  // namespace convlab
