// The vector functions against the library's in higher precision, on every instruction set.
#include <cstdint>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels_cpu/recurrent/tanh_test.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/simd/tanh-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

template <class T>
void Apply(const std::vector<T>& from, std::vector<T>& tanh, std::vector<T>& sigmoid) {
  ForEachVector<T>(std::int64_t(from.size()), [&](auto at, std::int64_t i) HWY_ATTR {
    at.Store(Tanh(at.Load(from.data() + i)), tanh.data() + i);
    at.Store(Sigmoid(at.Load(from.data() + i)), sigmoid.data() + i);
  });
}
void ApplyF32(const std::vector<float>& from, std::vector<float>& tanh,
              std::vector<float>& sigmoid) {
  Apply(from, tanh, sigmoid);
}
void ApplyF64(const std::vector<double>& from, std::vector<double>& tanh,
              std::vector<double>& sigmoid) {
  Apply(from, tanh, sigmoid);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels_cpu/cpu.h"

namespace convlab::cpu {
namespace {

HWY_EXPORT(ApplyF32);
HWY_EXPORT(ApplyF64);

void apply(const std::vector<float>& v, std::vector<float>& tanh, std::vector<float>& sigmoid) {
  HWY_DYNAMIC_DISPATCH(ApplyF32)(v, tanh, sigmoid);
}
void apply(const std::vector<double>& v, std::vector<double>& tanh, std::vector<double>& sigmoid) {
  HWY_DYNAMIC_DISPATCH(ApplyF64)(v, tanh, sigmoid);
}

// The distance in units of the expected value's last place; of the smallest normal number's, below
// that.
template <class T, class Wide>
double ulps(T value, Wide expected) {
  const Wide size = std::max(std::fabs(expected), Wide(std::numeric_limits<T>::min()));
  const Wide ulp = std::ldexp(Wide(1), std::ilogb(size) - (std::numeric_limits<T>::digits - 1));
  return double(std::fabs(Wide(value) - expected) / ulp);
}

// Both signs of every exponent, and what lies in between.
template <class T>
std::vector<T> samples() {
  std::vector<T> v{0, -T(0), std::numeric_limits<T>::infinity(),
                   -std::numeric_limits<T>::infinity()};
  for (T size = std::numeric_limits<T>::min(); size < T(1e6);
       size *= size < T(1e-5) || size > T(1000) ? T(1.37) : T(1.0001))
    v.insert(v.end(), {size, -size});
  return v;
}

template <class T, class Wide>
void expect_accurate() {
  for (const std::string& isa : supported_isas()) {
    const auto device = make_cpu_device({.threads = 1, .isa = isa});
    const std::vector<T> v = samples<T>();
    std::vector<T> tanh(v.size()), sigmoid(v.size());
    apply(v, tanh, sigmoid);
    double worst_tanh = 0, worst_sigmoid = 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      worst_tanh = std::max(worst_tanh, ulps(tanh[i], std::tanh(Wide(v[i]))));
      // Below the smallest normal number it stays near that.
      const Wide expected = 1 / (1 + std::exp(-Wide(v[i])));
      if (expected > 2 * Wide(std::numeric_limits<T>::min()))
        worst_sigmoid = std::max(worst_sigmoid, ulps(sigmoid[i], expected));
      else
        ASSERT_TRUE(sigmoid[i] >= 0 && sigmoid[i] < 64 * std::numeric_limits<T>::min()) << v[i];
    }
    EXPECT_LT(worst_tanh, 3) << isa;
    EXPECT_LT(worst_sigmoid, 3) << isa;
  }
}

TEST(VectorTanh, IsAccurateInF32) { expect_accurate<float, double>(); }
TEST(VectorTanh, IsAccurateInF64) { expect_accurate<double, long double>(); }

TEST(VectorTanh, LetsNaNsThrough) {
  for (const std::string& isa : supported_isas()) {
    const auto device = make_cpu_device({.threads = 1, .isa = isa});
    const std::vector<float> v(9, std::numeric_limits<float>::quiet_NaN());
    std::vector<float> tanh(9), sigmoid(9);
    apply(v, tanh, sigmoid);
    for (std::size_t i = 0; i < v.size(); ++i)
      EXPECT_TRUE(std::isnan(tanh[i]) && std::isnan(sigmoid[i])) << isa;
  }
}

}  // namespace
}  // namespace convlab::cpu
#endif
