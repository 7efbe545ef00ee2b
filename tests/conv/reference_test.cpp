#include "conv/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "conv/error.h"

namespace convlab {
namespace {

std::vector<double> ramp(std::int64_t count) {
  std::vector<double> v(static_cast<std::size_t>(count));
  std::iota(v.begin(), v.end(), 1.0);
  return v;
}

std::vector<double> normal(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw;
  std::vector<double> v(static_cast<std::size_t>(count));
  for (double& e : v) e = draw(random);
  return v;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

std::vector<double> whole(ConvProblem problem, Pass pass, const ReferenceInput& in) {
  problem.pass = pass;
  return reference_of(problem, in, all_outputs(problem));
}

// x = 1..9 on 3x3, w = 1..4 on 2x2, worked by hand.
TEST(Reference, ForwardByHand) {
  ConvProblem f;
  f.h = f.w = 3, f.r = f.s = 2, f.p = f.q = 2;
  const auto x = ramp(9), w = ramp(4);
  EXPECT_EQ(whole(f, Pass::forward, {.x = x, .w = w}), (std::vector<double>{37, 47, 67, 77}));
}

TEST(Reference, PaddingStrideAndDilationByHand) {
  ConvProblem f;
  f.h = f.w = 3, f.r = f.s = 2, f.p = f.q = 2;
  f.pad_h = f.pad_w = 1, f.stride_h = f.stride_w = 2, f.dilation_h = f.dilation_w = 2;
  // Output (0,0) reads rows {-1, 1}, columns {-1, 1}: only x[1][1] = 5 under w[1][1] = 4.
  const auto x = ramp(9), w = ramp(4);
  EXPECT_EQ(whole(f, Pass::forward, {.x = x, .w = w}), (std::vector<double>{20, 15, 10, 5}));
}

// x = 1..8 on 2x2x2, w = 1..4 on 2x1x2.
TEST(Reference, DepthByHand) {
  ConvProblem f;
  f.d = f.h = f.w = 2, f.t = f.s = 2;
  f.p = 2;
  const auto x = ramp(8), w = ramp(4);
  EXPECT_EQ(whole(f, Pass::forward, {.x = x, .w = w}),
            (std::vector<double>{1 + 4 + 15 + 24, 3 + 8 + 21 + 32}));
  // Every other slice of four, none behind the image, with a slice of padding in front.
  f.d = 4, f.h = f.w = 1, f.s = f.p = 1, f.z = 2, f.stride_d = 2, f.pad_d = 1;
  const auto line = ramp(4), taps = ramp(2);
  EXPECT_EQ(whole(f, Pass::forward, {.x = line, .w = taps}), (std::vector<double>{2, 2 + 6}));
  EXPECT_EQ(whole(f, Pass::backward_data, {.w = taps, .dy = taps}),
            (std::vector<double>{2, 2, 4, 0}));
  EXPECT_EQ(whole(f, Pass::backward_filter, {.x = line, .dy = taps}),
            (std::vector<double>{4, 1 + 6}));
}

TEST(Reference, EpilogueAndAccumulateByHand) {
  ConvProblem f;
  f.k = 2, f.w = 2, f.q = 2;
  f.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
  const std::vector<double> x{1, 2}, w{3, -3}, bias{10, 1}, residual{0, -20, 1, 2};
  EXPECT_EQ(whole(f, Pass::forward, {.x = x, .w = w, .bias = bias, .residual = residual}),
            (std::vector<double>{13, 0, 0, 0}));
  f.epilogue = {};
  f.accumulate = true;
  const std::vector<double> old{100, 200, 300, 400};
  EXPECT_EQ(whole(f, Pass::forward, {.x = x, .w = w, .out = old}),
            (std::vector<double>{103, 206, 297, 394}));
}

TEST(Reference, ActivationsByHand) {
  ConvProblem f;
  f.w = f.q = 5;
  const double inf = std::numeric_limits<double>::infinity(), e = std::exp(1);
  const std::vector<double> x{-inf, -1, 0, 1, 8}, w{1};
  const auto activated = [&](ActivationKind kind) {
    f.epilogue.activation = kind;
    return whole(f, Pass::forward, {.x = x, .w = w});
  };
  const auto expect = [&](ActivationKind kind, const std::vector<double>& values) {
    const std::vector<double> y = activated(kind);
    for (std::size_t i = 0; i < y.size(); ++i)
      EXPECT_NEAR(y[i], values[i], 1e-15 * (1 + std::abs(values[i])))
          << to_string(kind) << " of " << x[i];
  };
  const double s = 1 / (1 + 1 / e), phi = 0.84134474606854294859, one = 1 / (1 + std::exp(-8.0)),
               t = (e * e - 1) / (e * e + 1);
  expect(ActivationKind::relu, {0, 0, 0, 1, 8});
  expect(ActivationKind::relu6, {0, 0, 0, 1, 6});
  expect(ActivationKind::hardsigmoid, {0, 1. / 3, 0.5, 2. / 3, 1});
  expect(ActivationKind::hardswish, {0, -1. / 3, 0, 2. / 3, 8});
  expect(ActivationKind::tanh, {-1, -t, 0, t, std::tanh(8.0)});
  expect(ActivationKind::sigmoid, {0, 1 - s, 0.5, s, one});
  expect(ActivationKind::silu, {0, s - 1, 0, s, 8 * one});
  expect(ActivationKind::gelu, {0, phi - 1, 0, phi, 8});
}

// <conv(x, w), dy> = <x, backward_data(dy, w)> = <w, backward_filter(x, dy)> pins both backward
// passes to the forward one.
TEST(Reference, BackwardPassesAreAdjointToForward) {
  ConvProblem f;
  f.n = 2, f.c = 4, f.h = 9, f.w = 7, f.k = 6, f.r = 3, f.s = 2, f.groups = 2;
  f.stride_h = 2, f.stride_w = 1, f.pad_h = 2, f.pad_w = 1, f.dilation_h = 1, f.dilation_w = 3;
  f.p = 6, f.q = 6;  // asymmetric: the padding below and right follows
  f.d = 5, f.t = 3, f.z = 3, f.stride_d = 2, f.pad_d = 2, f.dilation_d = 2;
  const auto x = normal(f.n * f.c * f.d * f.h * f.w, 1), w = normal(f.filter_elements(), 2);
  const auto dy = normal(f.n * f.k * f.z * f.p * f.q, 3);
  const double expected = dot(whole(f, Pass::forward, {.x = x, .w = w}), dy);
  EXPECT_NEAR(dot(x, whole(f, Pass::backward_data, {.w = w, .dy = dy})), expected, 1e-10);
  EXPECT_NEAR(dot(w, whole(f, Pass::backward_filter, {.x = x, .dy = dy})), expected, 1e-10);
}

TEST(Reference, SampleIsUniqueInRangeAndHasTheCorners) {
  ConvProblem f;
  f.n = 4, f.k = 32, f.p = f.h = 57, f.q = f.w = 55;
  const auto sample = sample_outputs(f, 5000, 7);
  EXPECT_LE(sample.size(), 5000u);
  EXPECT_GT(sample.size(), 4000u);
  EXPECT_TRUE(std::is_sorted(sample.begin(), sample.end()));
  EXPECT_EQ(std::set<std::int64_t>(sample.begin(), sample.end()).size(), sample.size());
  EXPECT_GE(sample.front(), 0);
  EXPECT_LT(sample.back(), f.n * f.k * f.p * f.q);
  std::set<std::int64_t> corners;
  for (std::int64_t i : sample)
    if ((i % f.q == 0 || i % f.q == f.q - 1) && (i / f.q % f.p == 0 || i / f.q % f.p == f.p - 1))
      corners.insert(i % (f.p * f.q));
  EXPECT_EQ(corners.size(), 4u);
  EXPECT_EQ(sample_outputs(f, 5000, 7), sample);
  EXPECT_EQ(sample_outputs(f, 1 << 30, 7).size(), std::size_t(f.n * f.k * f.p * f.q));
}

TEST(RelError, IsRelativeAndFailsOnNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_DOUBLE_EQ(rel_error(std::vector<double>{3, 4}, std::vector<double>{3, 4}), 0);
  EXPECT_DOUBLE_EQ(rel_error(std::vector<double>{3, 9}, std::vector<double>{3, 4}), 1);
  EXPECT_DOUBLE_EQ(rel_error(std::vector<double>{3, 4}, std::vector<double>{0, 0}), 5);
  EXPECT_TRUE(std::isinf(rel_error(std::vector<double>{3, nan}, std::vector<double>{3, 4})));
  EXPECT_TRUE(std::isinf(rel_error(std::vector<double>{3, 4}, std::vector<double>{3, nan})));
}

TEST(Reference, RefusesDataThatIsNotTheProblems) {
  ConvProblem p = parse_problem("mb1ic2ih3oc4oh3kh3ph1").problem;
  const std::vector<double> x(2 * 9), w(4 * 2 * 9), bias(4), few(3);
  const std::vector<std::int64_t> outputs = all_outputs(p), beyond{4 * 9}, negative{-1};
  EXPECT_EQ(reference_of(p, {.x = x, .w = w}, outputs).size(), 36u);
  EXPECT_THROW(reference_of(p, {.x = few, .w = w}, outputs), InputError);
  EXPECT_THROW(reference_of(p, {.x = x}, outputs), InputError);
  EXPECT_THROW(reference_of(p, {.x = x, .w = w}, beyond), InputError);
  EXPECT_THROW((void)reference_at(p, {.x = x, .w = w}, -1), InputError);
  p.epilogue.bias = true;
  EXPECT_THROW(reference_of(p, {.x = x, .w = w, .bias = few}, outputs), InputError);
  EXPECT_NO_THROW(reference_of(p, {.x = x, .w = w, .bias = bias}, outputs));
  EXPECT_THROW((void)rel_error(few, bias), InputError);
}

TEST(Reference, LetsANaNThroughTheReLU) {
  ConvProblem p = parse_problem("mb1ic1ih1oc1oh1kh1ph0").problem;
  p.epilogue = {false, false, ActivationKind::relu};
  const std::vector<double> x{std::nan("")}, w{1};
  EXPECT_TRUE(std::isnan(reference_at(p, {.x = x, .w = w}, 0)));
}

}  // namespace
}  // namespace convlab
