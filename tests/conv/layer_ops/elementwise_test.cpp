// Elementwise operations, dropout, and channels copied between tensors.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "conv/error.h"
#include "conv/optional/half_ops.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {
namespace {

class Elementwise : public LayerTest {};
class Dropout : public LayerTest {};
class Gate : public LayerTest {};
class CopyChannels : public LayerTest {};
class Zero : public LayerTest {};

// Small and ragged; large enough for several threads.
std::vector<TensorDesc> descs(const LayerLab& lab) {
  return {lab.desc(2, 3, 4, 5), lab.desc(1, 17, 3, 3), lab.desc(3, 8, 1, 1),
          lab.desc(2, 37, 31, 17)};
}

TEST_F(Elementwise, Adds) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : descs(lab)) {
      const Values u = random_values(count(desc), 1), v = random_values(count(desc), 2);
      Values sum = u;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += v[i];
      auto a = lab.tensor(desc, u), b = lab.tensor(desc, v), y = lab.tensor(desc);
      lab.ops().add(lab.dtype(), desc, a.data(), b.data(), y.data(), lab.stream());
      expect_near(y.values(), sum, lab.tolerance());
      lab.ops().add(lab.dtype(), desc, a.data(), b.data(), a.data(), lab.stream());
      EXPECT_EQ(a.values(), y.values());
    }
  });
}

struct Function {
  ActivationKind kind;
  double (*f)(double);
};
const Function functions[] = {
    {ActivationKind::relu, [](double x) { return x < 0 ? 0 : x; }},
    {ActivationKind::tanh, [](double x) { return std::tanh(x); }},
    {ActivationKind::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {ActivationKind::relu6, [](double x) { return x < 0   ? 0
                                                  : x > 6 ? 6
                                                          : x; }},
    {ActivationKind::hardsigmoid, [](double x) { return x < -3  ? 0
                                                        : x > 3 ? 1
                                                                : (x + 3) / 6; }},
    {ActivationKind::hardswish, [](double x) { return x < -3  ? 0
                                                      : x > 3 ? x
                                                              : x * (x + 3) / 6; }},
    {ActivationKind::silu, [](double x) { return x < -1e3 ? 0 : x / (1 + std::exp(-x)); }},
    {ActivationKind::gelu,
     [](double x) { return x < -1e3 ? 0 : x * std::erfc(-x * std::sqrt(0.5)) / 2; }}};

Values activate(const LayerLab& lab, ActivationKind kind, const TensorDesc& desc,
                const Values& values) {
  auto x = lab.tensor(desc, values), y = lab.tensor(desc);
  lab.ops().activation_forward(lab.dtype(), kind, desc, x.data(), y.data(), lab.stream());
  lab.ops().activation_forward(lab.dtype(), kind, desc, x.data(), x.data(), lab.stream());
  const Values result = y.values(), in_place = x.values();
  for (std::size_t i = 0; i < result.size(); ++i)
    EXPECT_TRUE(result[i] == in_place[i] || std::isnan(result[i])) << i;
  return result;
}

TEST_F(Elementwise, Activates) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : descs(lab))
      for (const Function& function : functions) {
        Values x = random_values(count(desc), 1);
        for (double& v : x) v *= 4;
        Values expected = x;
        for (double& v : expected) v = function.f(v);
        expect_near(activate(lab, function.kind, desc, x), expected, lab.tolerance());
      }
  });
}

// Extreme values saturate, small values keep their digits, and NaN propagates.
TEST_F(Elementwise, ActivatesWhatIsFarOut) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Values x{-infinity, -1e30, -800, -100, -12.5, -5,  -2,   -1e-7,    0,
                 1e-7,      2,     5,    12.5, 100,   800, 1e30, infinity, std::nan("")};
  for_each_setting([&](const LayerLab& lab) {
    for (const Function& function : functions) {
      const Values y = activate(lab, function.kind, lab.desc(1, std::int64_t(x.size()), 1, 1), x);
      EXPECT_TRUE(std::isnan(y.back()));
      for (std::size_t i = 0; i + 1 < x.size(); ++i) {
        const double expected = function.f(x[i]);
        if (std::isinf(expected))
          EXPECT_EQ(y[i], expected);
        else
          EXPECT_NEAR(y[i], expected, std::abs(expected) * 3e-6 + 1e-37) << x[i];
      }
    }
  });
}

TEST_F(Elementwise, ActivationsHaveTheirGradient) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : descs(lab))
      for (const Function& function : functions) {
        const Values dy = random_values(count(desc), 2);
        Values input = random_values(count(desc), 1);
        for (double& v : input) v *= 4;
        expect_backward(
            lab, input, dy,
            [&](const LayerLab& l, const Values& x) { return activate(l, function.kind, desc, x); },
            [&](const LayerLab& l, const Values& x) {
              auto value = l.tensor(desc, derivative_reads_x(function.kind)
                                              ? x
                                              : activate(l, function.kind, desc, x));
              auto incoming = l.tensor(desc, dy), dx = l.tensor(desc);
              l.ops().activation_backward(l.dtype(), function.kind, desc, value.data(),
                                          incoming.data(), dx.data(), l.stream());
              l.ops().activation_backward(l.dtype(), function.kind, desc, value.data(),
                                          incoming.data(), incoming.data(), l.stream());
              EXPECT_EQ(incoming.values(), dx.values());
              return dx.values();
            });
      }
  });
}

// Far out the slope is 0 or 1, and NaN propagates.
TEST_F(Elementwise, ActivationsHaveTheirGradientFarOut) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Values x{-infinity, -1e30, -800, 800, 1e30, infinity, std::nan("")};
  for_each_setting([&](const LayerLab& lab) {
    const TensorDesc desc = lab.desc(1, std::int64_t(x.size()), 1, 1);
    for (const Function& function : functions) {
      if (!derivative_reads_x(function.kind)) continue;
      auto value = lab.tensor(desc, x), dx = lab.tensor(desc);
      auto dy = lab.tensor(desc, Values(x.size(), 2));
      lab.ops().activation_backward(lab.dtype(), function.kind, desc, value.data(), dy.data(),
                                    dx.data(), lab.stream());
      const Values slope = dx.values();
      for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(slope[i], i < 3 ? 0 : 2, 1e-30) << x[i];
      EXPECT_TRUE(std::isnan(slope[6]));
    }
  });
}

struct NumberedFunction {
  LayerActivation activation;
  double (*f)(double);
  double slopes[2];  // far to the left and to the right
};
const NumberedFunction numbered[] = {
    {{LayerActivation::Kind::leaky_relu, 0.125},
     [](double x) { return x > 0 ? x : x / 8; },
     {0.125, 1}},
    {{LayerActivation::Kind::leaky_relu, -2}, [](double x) { return x > 0 ? x : -2 * x; }, {-2, 1}},
    {{LayerActivation::Kind::elu, 1.5},
     [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); },
     {0, 1}},
    {{LayerActivation::Kind::clip, -0.5, 2},
     [](double x) { return std::min(std::max(x, -0.5), 2.); },
     {0, 0}},
    {{LayerActivation::Kind::clip, 1, std::numeric_limits<double>::infinity()},
     [](double x) { return std::max(x, 1.); },
     {0, 1}},
    {{LayerActivation::Kind::softplus},
     [](double x) { return std::max(x, 0.) + std::log1p(std::exp(-std::abs(x))); },
     {0, 1}},
    {{LayerActivation::Kind::mish},
     [](double x) { return x < -1e3 ? 0 : x * std::tanh(std::log1p(std::exp(std::min(x, 40.)))); },
     {0, 1}}};

Values activate(const LayerLab& lab, const LayerActivation& activation, const TensorDesc& desc,
                const Values& values) {
  auto x = lab.tensor(desc, values), y = lab.tensor(desc);
  lab.ops().activation_forward(lab.dtype(), activation, desc, x.data(), y.data(), lab.stream());
  lab.ops().activation_forward(lab.dtype(), activation, desc, x.data(), x.data(), lab.stream());
  const Values result = y.values(), in_place = x.values();
  for (std::size_t i = 0; i < result.size(); ++i)
    EXPECT_TRUE(result[i] == in_place[i] || std::isnan(result[i])) << i;
  return result;
}

Values activation_gradient(const LayerLab& lab, const LayerActivation& activation,
                           const TensorDesc& desc, const Values& x, const Values& dy) {
  auto value = lab.tensor(desc, x), incoming = lab.tensor(desc, dy), dx = lab.tensor(desc);
  lab.ops().activation_backward(lab.dtype(), activation, desc, value.data(), incoming.data(),
                                dx.data(), lab.stream());
  lab.ops().activation_backward(lab.dtype(), activation, desc, value.data(), incoming.data(),
                                incoming.data(), lab.stream());
  const Values result = dx.values(), in_place = incoming.values();
  for (std::size_t i = 0; i < result.size(); ++i)
    EXPECT_TRUE(result[i] == in_place[i] || std::isnan(result[i])) << i;
  return result;
}

TEST_F(Elementwise, ActivatesByNumbers) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : descs(lab))
      for (const auto& [activation, f, slopes] : numbered) {
        Values x = random_values(count(desc), 1);
        for (double& v : x) v *= 4;
        Values expected = x;
        for (double& v : expected) v = f(v);
        expect_near(activate(lab, activation, desc, x), expected, lab.tolerance());
      }
  });
}

TEST_F(Elementwise, ActivatesByNumbersWhatIsFarOut) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Values x{-infinity, -1e30, -800, -100, -12.5, -5,  -2,   -1e-7,    0,
                 1e-7,      2,     5,    12.5, 100,   800, 1e30, infinity, std::nan("")};
  for_each_setting([&](const LayerLab& lab) {
    const TensorDesc desc = lab.desc(1, std::int64_t(x.size()), 1, 1);
    for (const auto& [activation, f, slopes] : numbered) {
      const Values y = activate(lab, activation, desc, x);
      const Values slope = activation_gradient(lab, activation, desc, x, Values(x.size(), 2.));
      EXPECT_TRUE(std::isnan(y.back()));
      for (std::size_t i = 0; i + 1 < x.size(); ++i) {
        const double expected = f(x[i]);
        if (std::isinf(expected))
          EXPECT_EQ(y[i], expected);
        else
          EXPECT_NEAR(y[i], expected, std::abs(expected) * 3e-6 + 1e-37) << x[i];
        if (std::abs(x[i]) < 800) continue;
        EXPECT_NEAR(slope[i], 2 * slopes[x[i] > 0], 1e-30)
            << to_string(activation.kind) << " at " << x[i];
      }
    }
  });
}

TEST_F(Elementwise, Of16BitsIsThatOfF32RoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const TensorDesc& desc : descs(half)) {
      Values u = random_values(count(desc), 1);
      for (double& value : u) value *= 4;
      u = rounded(u, dtype);
      const Values v = rounded(random_values(count(desc), 2), dtype);
      const auto sum = [&](const LayerLab& lab) {
        auto a = lab.tensor(desc, u), b = lab.tensor(desc, v), y = lab.tensor(desc);
        lab.ops().add(lab.dtype(), desc, a.data(), b.data(), y.data(), lab.stream());
        return y.values();
      };
      EXPECT_EQ(sum(half), rounded(sum(f32), dtype));
      for (const Function& function : functions) {
        const Values y = activate(half, function.kind, desc, u);
        EXPECT_EQ(y, rounded(activate(f32, function.kind, desc, u), dtype));
        const auto backward = [&](const LayerLab& lab) {
          auto value = lab.tensor(desc, derivative_reads_x(function.kind) ? u : y);
          auto dy = lab.tensor(desc, v), dx = lab.tensor(desc);
          lab.ops().activation_backward(lab.dtype(), function.kind, desc, value.data(), dy.data(),
                                        dx.data(), lab.stream());
          return dx.values();
        };
        EXPECT_EQ(backward(half), rounded(backward(f32), dtype));
      }
      for (const auto& [activation, f, slopes] : numbered) {
        EXPECT_EQ(activate(half, activation, desc, u),
                  rounded(activate(f32, activation, desc, u), dtype));
        EXPECT_EQ(activation_gradient(half, activation, desc, u, v),
                  rounded(activation_gradient(f32, activation, desc, u, v), dtype));
      }
    }
  });
}

TEST_F(Elementwise, ActivationsByNumbersHaveTheirGradient) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : descs(lab))
      for (const NumberedFunction& function : numbered) {
        const LayerActivation& activation = function.activation;
        const Values dy = random_values(count(desc), 2);
        Values input = random_values(count(desc), 1);
        for (double& v : input) v *= 4;
        expect_backward(
            lab, input, dy,
            [&](const LayerLab& l, const Values& x) { return activate(l, activation, desc, x); },
            [&](const LayerLab& l, const Values& x) {
              return activation_gradient(l, activation, desc, x, dy);
            });
      }
  });
}

TEST_F(Elementwise, RefusesNumbersThatMakeNoSense) {
  using Kind = LayerActivation::Kind;
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const LayerActivation& wrong :
       std::initializer_list<LayerActivation>{{Kind::leaky_relu, nan},
                                              {Kind::elu, infinity},
                                              {Kind::clip, 1, 0},
                                              {Kind::clip, nan, 1}})
    EXPECT_THROW(validate(wrong), InputError) << to_string(wrong.kind);
  EXPECT_NO_THROW(validate(LayerActivation{Kind::clip, -infinity, 1}));
}

TEST_F(Elementwise, TypesAreConvertedToTheNearest) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    if (half.desc(1, 1, 1, 1).layout != Layout::nchw) return;
    const auto& ops = dynamic_cast<const HalfOps&>(half.ops());
    for (const std::int64_t count : {1, 15, 16, 40011}) {
      const Values x = random_values(count, 1);
      auto from = f32.array(x);
      auto stored = half.tensor({1, count, 1, 1}), back = f32.array(count);
      ops.convert_type(DType::f32, from.data(), dtype, stored.data(), count, half.stream());
      EXPECT_EQ(stored.values(), rounded(x, dtype));
      ops.convert_type(dtype, stored.data(), DType::f32, back.data(), count, half.stream());
      EXPECT_EQ(back.values(), rounded(x, dtype));
    }
    for (const DType other : {DType::f64, dtype})
      EXPECT_THROW(ops.convert_type(dtype, nullptr, other, nullptr, 1, half.stream()), InputError);
    EXPECT_THROW(ops.convert_type(DType::f64, nullptr, DType::f32, nullptr, 1, half.stream()),
                 InputError);
  });
}

// A channel of a plane; blocks of lanes, and planes of several pieces.
std::vector<TensorDesc> gated(const LayerLab& lab) {
  return {lab.desc(2, 3, 4, 5), lab.desc(3, 8, 1, 1), lab.desc(2, 21, 31, 17),
          lab.desc(1, 70, 3, 3), lab.desc(1, 4, 70, 61)};
}

Values gate(const LayerLab& lab, const TensorDesc& desc, const Values& values, const Values& by) {
  const GateDesc d{desc};
  auto x = lab.tensor(desc, values), factors = lab.tensor(d.gate(), by), y = lab.tensor(desc);
  lab.ops().gate_forward(lab.dtype(), d, x.data(), factors.data(), y.data(), lab.stream());
  lab.ops().gate_forward(lab.dtype(), d, x.data(), factors.data(), x.data(), lab.stream());
  EXPECT_EQ(x.values(), y.values());
  return y.values();
}

TEST_F(Gate, MultipliesEachChannelOfAnImage) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : gated(lab)) {
      const Values x = random_values(count(desc), 1), by = random_values(desc.n * desc.c, 2);
      Values expected = x;
      const std::size_t pixels = std::size_t(desc.h * desc.w);
      for (std::size_t i = 0; i < x.size(); ++i) expected[i] *= by[i / pixels];
      expect_near(gate(lab, desc, x, by), expected, lab.tolerance());
    }
  });
}

struct GateGradients {
  Values dx, dgate;
};
GateGradients gate_backward(const LayerLab& lab, const TensorDesc& desc, const Values& values,
                            const Values& by, const Values& gradient) {
  const GateDesc d{desc};
  auto x = lab.tensor(desc, values), factors = lab.tensor(d.gate(), by),
       dy = lab.tensor(desc, gradient), dx = lab.tensor(desc), dgate = lab.tensor(d.gate());
  const auto run = [&](void* to_dx, void* to_dgate) {
    lab.ops().gate_backward(lab.dtype(), d, x.data(), factors.data(), dy.data(), to_dx, to_dgate,
                            lab.stream());
  };
  run(dx.data(), dgate.data());
  auto only_dgate = lab.tensor(d.gate());
  run(nullptr, only_dgate.data());
  EXPECT_EQ(only_dgate.values(), dgate.values());
  run(dy.data(), nullptr);
  EXPECT_EQ(dy.values(), dx.values());
  return {dx.values(), dgate.values()};
}

TEST_F(Gate, HasItsGradients) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : gated(lab)) {
      const Values x = random_values(count(desc), 1), by = random_values(desc.n * desc.c, 2),
                   dy = random_values(count(desc), 3);
      expect_backward(
          lab, x, dy, [&](const LayerLab& l, const Values& v) { return gate(l, desc, v, by); },
          [&](const LayerLab& l, const Values& v) { return gate_backward(l, desc, v, by, dy).dx; });
      expect_backward(
          lab, by, dy, [&](const LayerLab& l, const Values& v) { return gate(l, desc, x, v); },
          [&](const LayerLab& l, const Values& v) {
            return gate_backward(l, desc, x, v, dy).dgate;
          });
    }
  });
}

TEST_F(Gate, Of16BitsIsThatOfF32RoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const TensorDesc& desc : gated(half)) {
      const Values x = rounded(random_values(count(desc), 1), dtype),
                   by = rounded(random_values(desc.n * desc.c, 2), dtype),
                   dy = rounded(random_values(count(desc), 3), dtype);
      EXPECT_EQ(gate(half, desc, x, by), rounded(gate(f32, desc, x, by), dtype));
      const GateGradients got = gate_backward(half, desc, x, by, dy),
                          expected = gate_backward(f32, desc, x, by, dy);
      EXPECT_EQ(got.dx, rounded(expected.dx, dtype));
      EXPECT_EQ(got.dgate, rounded(expected.dgate, dtype));
    }
  });
}

TEST_F(Gate, IsTheSameForAnyNumberOfThreads) {
  const LayerLab one(1, DType::f32, layer_backend().layouts.back());
  const TensorDesc desc = one.desc(3, 37, 31, 17);
  const Values x = random_values(count(desc), 1), by = random_values(desc.n * desc.c, 2),
               dy = random_values(count(desc), 3);
  const Values dgate = gate_backward(one, desc, x, by, dy).dgate;
  for (const int threads : {2, 3, 5})
    EXPECT_EQ(gate_backward(one.with_threads(threads), desc, x, by, dy).dgate, dgate);
  EXPECT_THROW(gate(one, one.desc(0, 3, 2, 2), {}, {}), InputError);
}

Values drop(const LayerLab& lab, const DropoutDesc& dropout, const Values& values) {
  auto x = lab.tensor(dropout.x, values), y = lab.tensor(dropout.x);
  lab.ops().dropout(lab.dtype(), dropout, x.data(), y.data(), lab.stream());
  lab.ops().dropout(lab.dtype(), dropout, x.data(), x.data(), lab.stream());
  EXPECT_EQ(x.values(), y.values());
  return y.values();
}

// Image by image, as workers with a share of the batch do it, and the batch as a whole.
TEST_F(Dropout, OfAShareIsThatOfItsPlaceInTheBatch) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : descs(lab)) {
      const Values x = random_values(count(desc), 1);
      const DropoutDesc whole{desc, 0.5, 3, 4, 7};
      const Values expected = drop(lab, whole, x);
      DropoutDesc share = whole;
      share.x.n = 1;
      const auto size = std::ptrdiff_t(count(share.x));
      for (auto from = x.begin(); from != x.end(); from += size, ++share.first_image) {
        const Values y = drop(lab, share, Values(from, from + size));
        EXPECT_TRUE(std::equal(y.begin(), y.end(), expected.begin() + (from - x.begin())));
      }
      DropoutDesc first = whole;
      first.first_image = 0;
      if (count(desc) > 50) {
        EXPECT_NE(drop(lab, first, x), expected);
      }
      first.first_image = -1;
      EXPECT_THROW(drop(lab, first, x), InputError);
    }
  });
}

// The definition, independent of the implementation: one element at a time.
bool is_dropped(std::uint64_t seed, std::uint64_t draw, std::uint64_t index, double p) {
  std::uint32_t c[4] = {std::uint32_t(index), std::uint32_t(index >> 32), std::uint32_t(draw),
                        std::uint32_t(draw >> 32)};
  std::uint32_t key[2] = {std::uint32_t(seed), std::uint32_t(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    const std::uint32_t next[4] = {std::uint32_t(b >> 32) ^ c[1] ^ key[0], std::uint32_t(b),
                                   std::uint32_t(a >> 32) ^ c[3] ^ key[1], std::uint32_t(a)};
    std::copy(next, next + 4, c);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  if (seed == 0 && draw == 0 && index == 0) {
    EXPECT_EQ(c[0], 0x6627e8d5u);  // the authors' known answer for Philox4x32-10 of zeros
  }
  return c[0] < p * 4294967296.0;
}

TEST_F(Dropout, DropsByPlaceSeedAndDrawAlone) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : descs(lab))
      for (const double p : {0.0, 0.3, 0.5})
        for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{0x123456789abcdef0}}) {
          const std::uint64_t draw = seed == 0 ? 0 : 77 + (std::uint64_t{5} << 32);
          const Values x = random_values(count(desc), 1);
          Values expected = x;
          for (std::size_t i = 0; i < x.size(); ++i)
            expected[i] = is_dropped(seed, draw, i, p) ? 0 : x[i] / (1 - p);
          const Values y = drop(lab, {desc, p, seed, draw}, x);
          for (std::size_t i = 0; i < x.size(); ++i)
            ASSERT_NEAR(y[i], expected[i], std::abs(expected[i]) * 1e-6) << i;
        }
  });
}

TEST_F(Dropout, DropsWholeImagesByTheirNumber) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc : {lab.desc(40, 3, 2, 2), lab.desc(5, 37, 31, 17)})
      for (const std::int64_t first : {0, 7}) {
        const DropoutDesc whole{desc, 0.4, 3, 4, first, true};
        const Values x = random_values(count(desc), 1);
        Values expected = x;
        const std::size_t size = x.size() / std::size_t(desc.n);
        for (std::size_t i = 0; i < x.size(); ++i)
          expected[i] = is_dropped(3, 4, std::uint64_t(first) + i / size, 0.4) ? 0 : x[i] / 0.6;
        expect_near(drop(lab, whole, x), expected, lab.tolerance());
      }
  });
}

TEST_F(Dropout, Of16BitsIsThatOfF32RoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const TensorDesc& desc : descs(half))
      for (const bool whole_images : {false, true}) {
        const DropoutDesc dropout{desc, 0.3, 3, 4, 0, whole_images};
        const Values x = rounded(random_values(count(desc), 1), dtype);
        EXPECT_EQ(drop(half, dropout, x), rounded(drop(f32, dropout, x), dtype));
      }
  });
}

TEST_F(Dropout, IsTheSameForAnyNumberOfThreadsAndDropsTheShareAskedFor) {
  const LayerLab one(1, DType::f32, layer_backend().layouts.back());
  const DropoutDesc dropout{one.desc(4, 50, 30, 20), 0.2, 3, 4};
  const Values x(std::size_t(count(dropout.x)), 1.0);
  const Values y = drop(one, dropout, x);
  for (const int threads : {2, 3, 5}) EXPECT_EQ(drop(one.with_threads(threads), dropout, x), y);
  // 120000 elements: one standard deviation is 0.00115.
  EXPECT_NEAR(double(std::count(y.begin(), y.end(), 0.0)) / double(y.size()), 0.2, 0.005);
  DropoutDesc other = dropout;
  other.draw = 5;
  EXPECT_NE(drop(one, other, x), y);
  other.p = 1;
  EXPECT_THROW(drop(one, other, x), InputError);
}

TEST_F(CopyChannels, MovesAnyChannelsBetweenAnyLayouts) {
  struct Case {
    std::int64_t from_c, to_c, from_channel, to_channel, channels;
  };
  const Case cases[] = {{32, 48, 0, 16, 32}, {24, 40, 8, 24, 16}, {5, 21, 1, 17, 4},
                        {37, 40, 3, 0, 34},  {16, 16, 0, 0, 16},  {7, 9, 6, 8, 1},
                        {70, 64, 2, 5, 40}};
  const auto moves = [&](const LayerLab& lab) {
    for (const Case& t : cases)
      for (const Layout to_layout : layer_backend().layouts)
        for (const auto& [h, w] : {std::pair{3, 5}, {1, 1}, {25, 20}}) {
          ChannelCopy copy{lab.desc(2, t.from_c, h, w),
                           {2, t.to_c, h, w, to_layout},
                           t.from_channel,
                           t.to_channel,
                           t.channels};
          Values source = random_values(count(copy.from), 1);
          for (double& v : source) v = std::round(16 * v);  // so that bf16 holds it exactly
          Values expected(std::size_t(count(copy.to)), 7.0);
          auto from = lab.tensor(copy.from, source), to = lab.tensor(copy.to, expected);
          const std::int64_t image = h * w;
          for (std::int64_t n = 0; n < 2; ++n)
            std::copy_n(source.begin() + (n * t.from_c + t.from_channel) * image,
                        t.channels * image, expected.begin() + (n * t.to_c + t.to_channel) * image);
          lab.ops().copy_channels(lab.dtype(), copy, from.data(), to.data(), lab.stream());
          EXPECT_EQ(to.values(), expected) << to_string(to_layout);
        }
  };
  for_each_setting([&](const LayerLab& lab) {
    moves(lab);
    if (lab.dtype() == DType::f64) return;
    for (const DType dtype : {DType::f16, DType::bf16}) moves(lab.in(dtype));
  });
}

TEST_F(CopyChannels, BringsPaddingLanesAlongWithTheLastChannel) {
  for_each_setting([](const LayerLab& lab) {
    const Values parts[] = {random_values(2 * 5 * 6, 1), random_values(2 * 6 * 6, 2)};
    auto to = lab.tensor(lab.desc(2, 11, 2, 3));
    std::int64_t first = 0;
    for (const Values& part : parts) {
      const auto channels = std::int64_t(part.size() / 12);
      const TensorDesc desc = lab.desc(2, channels, 2, 3);
      auto from = lab.tensor(desc, part);
      lab.ops().copy_channels(lab.dtype(), {desc, lab.desc(2, 11, 2, 3), 0, first, channels},
                              from.data(), to.data(), lab.stream());
      first += channels;
    }
    const Values y = to.values();  // checks the padding lanes, which were NaN
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t n = i / 66, at = i % 66;
      EXPECT_EQ(y[i], at < 30 ? parts[0][n * 30 + at] : parts[1][n * 36 + at - 30]);
    }
  });
}

TEST_F(CopyChannels, RefusesChannelsThatAreNotThere) {
  const LayerLab lab;
  const auto refused = [&](const ChannelCopy& copy) {
    EXPECT_THROW(lab.ops().copy_channels(DType::f32, copy, nullptr, nullptr, lab.stream()),
                 InputError);
  };
  refused({lab.desc(1, 4, 2, 2), lab.desc(1, 8, 2, 2), 2, 0, 3});
  refused({lab.desc(1, 4, 2, 2), lab.desc(1, 8, 2, 2), 0, 5, 4});
  refused({lab.desc(1, 4, 2, 2), lab.desc(1, 8, 2, 3), 0, 0, 4});
}

TEST_F(Zero, WritesZeroAndNothingElse) {
  const LayerLab lab(2);
  auto x = lab.tensor({1, 100003, 1, 1});
  lab.ops().zero(Span(x.data(), 100003 * sizeof(float)), lab.stream());
  EXPECT_EQ(x.values(), Values(100003, 0.0));
}

// Byte ranges with any start and end.
TEST_F(Zero, TakesAnySpan) {
  const LayerLab lab;
  const auto filled = std::bit_cast<float>(0x3f3f3f3f);
  for (const std::size_t begin : {0, 1, 18, 63})
    for (const std::size_t count : {1, 3, 14, 15, 16, 2001}) {
      std::vector<float> expected(600, filled);
      std::ranges::fill(std::as_writable_bytes(std::span(expected)).subspan(begin, count),
                        std::byte{0});
      auto x = lab.array(Values(600, double(filled)));
      lab.ops().zero(Span(x.data() + begin, count), lab.stream());
      EXPECT_EQ(x.values(), Values(expected.begin(), expected.end())) << begin << " " << count;
    }
}

}  // namespace
}  // namespace convlab
