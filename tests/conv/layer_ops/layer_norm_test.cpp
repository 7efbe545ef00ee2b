#include <array>
#include <cmath>

#include "conv/error.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {
namespace {

class LayerNorm : public LayerTest {};
class ScaledChannels : public LayerTest {};
class PReluOps : public LayerTest {};

// Fewer channels than a vector and more; runs of pixels that end within a vector; one pixel, one
// channel; more runs than pieces.
struct Case {
  std::int64_t n, c, h, w;
};
const std::vector<Case> cases{{2, 5, 3, 7}, {1, 17, 4, 9}, {3, 33, 1, 1},
                              {2, 1, 5, 5}, {1, 96, 5, 7}, {130, 2, 2, 1}};
const Case large{2, 40, 15, 14};  // enough for several threads

constexpr double epsilon = 0.05;  // large enough to tell

TensorDesc desc_of(const Case& t, const LayerLab& lab) { return lab.desc(t.n, t.c, t.h, t.w); }
Values input(const Case& t) {
  Values x = random_values(t.n * t.c * t.h * t.w, 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += 0.5;  // means are not 0
  return x;
}
Values scale_of(const Case& t) { return random_values(t.c, 2); }
Values shift_of(const Case& t) { return random_values(t.c, 3); }

// The factor that a channel has at each element, in NCHW order.
double of_channel(const Values& values, const Case& t, std::size_t i) {
  return values[i / std::size_t(t.h * t.w) % std::size_t(t.c)];
}

Values forward(const LayerLab& lab, const Case& t, const Values& values, const Values& scale) {
  const TensorDesc desc = desc_of(t, lab);
  auto x = lab.tensor(desc, values), y = lab.tensor(desc);
  auto factors = lab.array(scale), shift = lab.array(shift_of(t));
  lab.ops().layer_norm_forward(lab.dtype(), {desc, epsilon}, x.data(), factors.data(), shift.data(),
                               y.data(), lab.stream());
  return y.values();
}

struct Gradients {
  Values dx, dscale, dshift;
};

Gradients backward(const LayerLab& lab, const Case& t, const Values& values, const Values& dy,
                   bool in_place = false) {
  const TensorDesc desc = desc_of(t, lab);
  auto x = lab.tensor(desc, values), gradient = lab.tensor(desc, dy), dx = lab.tensor(desc);
  auto scale = lab.array(scale_of(t)), dscale = lab.array(t.c), dshift = lab.array(t.c);
  GuardedBuffer workspace = lab.workspace(desc);
  auto& out = in_place ? gradient : dx;
  lab.ops().layer_norm_backward(
      lab.dtype(), {desc, epsilon},
      {x.data(), gradient.data(), scale.data(), out.data(), dscale.data(), dshift.data()},
      workspace.span(), lab.stream());
  EXPECT_TRUE(lab.intact(workspace));
  return {out.values(), dscale.values(), dshift.values()};
}

// By the definition, each pixel by itself.
Values expected_forward(const Case& t, const Values& x) {
  const std::int64_t plane = t.h * t.w;
  const Values scale = scale_of(t), shift = shift_of(t);
  Values y(x.size());
  for (std::int64_t n = 0; n < t.n; ++n)
    for (std::int64_t p = 0; p < plane; ++p) {
      const auto at = [&](std::int64_t c) { return std::size_t((n * t.c + c) * plane + p); };
      double mean = 0, variance = 0;
      for (std::int64_t c = 0; c < t.c; ++c) mean += x[at(c)] / double(t.c);
      for (std::int64_t c = 0; c < t.c; ++c)
        variance += (x[at(c)] - mean) * (x[at(c)] - mean) / double(t.c);
      for (std::int64_t c = 0; c < t.c; ++c)
        y[at(c)] = (x[at(c)] - mean) / std::sqrt(variance + epsilon) * scale[std::size_t(c)] +
                   shift[std::size_t(c)];
    }
  return y;
}

TEST_F(LayerNorm, ForwardFollowsTheDefinition) {
  for_each_setting([](const LayerLab& lab) {
    for (const Case& t : cases)
      expect_near(forward(lab, t, input(t), scale_of(t)), expected_forward(t, input(t)),
                  4 * lab.tolerance());
  });
}

TEST_F(LayerNorm, BackwardIsTheGradient) {
  for_each_setting([](const LayerLab& lab) {
    for (const Case& t : cases) {
      const Values dy = random_values(t.n * t.c * t.h * t.w, 4);
      expect_backward(
          lab, input(t), dy,
          [&](const LayerLab& l, const Values& x) { return forward(l, t, x, scale_of(t)); },
          [&](const LayerLab& l, const Values& x) { return backward(l, t, x, dy).dx; });
      EXPECT_EQ(backward(lab, t, input(t), dy, true).dx, backward(lab, t, input(t), dy).dx);
    }
  });
}

TEST_F(LayerNorm, Of16BitsIsThatOfF32RoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const Case& t : cases) {
      const Values x = rounded(input(t), dtype),
                   dy = rounded(random_values(t.n * t.c * t.h * t.w, 4), dtype);
      EXPECT_EQ(forward(half, t, x, scale_of(t)), rounded(forward(f32, t, x, scale_of(t)), dtype));
      const Gradients got = backward(half, t, x, dy), expected = backward(f32, t, x, dy);
      // Of two channels all of dx is what a compiler's choice of multiply-adds leaves.
      if (t.c > 2) {
        EXPECT_EQ(got.dx, rounded(expected.dx, dtype));
      }
      EXPECT_EQ(got.dscale, expected.dscale);
      EXPECT_EQ(got.dshift, expected.dshift);
    }
  });
}

// y is linear in the scale and the shift: the sums of dy times what they multiply.
TEST_F(LayerNorm, GradientsOfScaleAndShiftAreSumsOverPixels) {
  for_each_setting([](const LayerLab& lab) {
    for (const Case& t : cases) {
      const Values dy = random_values(t.n * t.c * t.h * t.w, 4);
      const Values y = expected_forward(t, input(t)), scale = scale_of(t), shift = shift_of(t);
      Values dscale(std::size_t(t.c), 0.0), dshift(std::size_t(t.c), 0.0);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t c = i / std::size_t(t.h * t.w) % std::size_t(t.c);
        dscale[c] += dy[i] * (y[i] - shift[c]) / scale[c];
        dshift[c] += dy[i];
      }
      const Gradients got = backward(lab, t, input(t), dy);
      const double tolerance = lab.tolerance() * 10 * std::sqrt(double(t.n * t.h * t.w));
      expect_near(got.dscale, dscale, tolerance);
      expect_near(got.dshift, dshift, tolerance);
    }
  });
}

TEST_F(LayerNorm, IsTheSameForAnyNumberOfThreads) {
  const Case t = large;
  const Values dy = random_values(t.n * t.c * t.h * t.w, 4);
  for_each_setting([&](const LayerLab& lab) {
    const LayerLab one = lab.with_threads(1), three = lab.with_threads(3);
    EXPECT_EQ(forward(one, t, input(t), scale_of(t)), forward(three, t, input(t), scale_of(t)));
    const Gradients a = backward(one, t, input(t), dy), b = backward(three, t, input(t), dy);
    EXPECT_EQ(a.dx, b.dx);
    EXPECT_EQ(a.dscale, b.dscale);
    EXPECT_EQ(a.dshift, b.dshift);
  });
}

TEST_F(LayerNorm, RefusesWhatMakesNoSense) {
  const LayerLab lab;
  const TensorDesc desc = lab.desc(1, 4, 2, 2);
  EXPECT_THROW(validate(LayerNormDesc{desc, -1}), InputError);
  if (layer_backend().has_16_bits) return;
  EXPECT_THROW(lab.ops().layer_norm_forward(DType::bf16, {desc}, nullptr, nullptr, nullptr, nullptr,
                                            lab.stream()),
               InputError);
  EXPECT_THROW(lab.ops().layer_norm_backward(DType::f16, {desc}, {}, {}, lab.stream()), InputError);
}

TEST_F(ScaledChannels, AreMultipliedAndSoAreTheirGradients) {
  for_each_setting([](const LayerLab& lab) {
    for (const Case& t : cases)
      for (const bool in_place : {false, true}) {
        const TensorDesc desc = desc_of(t, lab);
        const Values x = input(t), dy = random_values(std::ssize(x), 4), scale = scale_of(t);
        auto from = lab.tensor(desc, x), to = lab.tensor(desc), factors = lab.array(scale);
        auto& y = in_place ? from : to;
        lab.ops().scale_channels_forward(lab.dtype(), desc, from.data(), factors.data(), y.data(),
                                         lab.stream());
        auto values = lab.tensor(desc, x), gradient = lab.tensor(desc, dy),
             other = lab.tensor(desc);
        auto& dx = in_place ? gradient : other;
        auto dscale = lab.array(t.c);
        GuardedBuffer workspace = lab.workspace(desc);
        lab.ops().scale_channels_backward(lab.dtype(), desc, values.data(), gradient.data(),
                                          factors.data(), dx.data(), dscale.data(),
                                          workspace.span(), lab.stream());
        EXPECT_TRUE(lab.intact(workspace));
        Values expected_y, expected_dx, expected_dscale(std::size_t(t.c), 0.0);
        for (std::size_t i = 0; i < x.size(); ++i) {
          expected_y.push_back(x[i] * of_channel(scale, t, i));
          expected_dx.push_back(dy[i] * of_channel(scale, t, i));
          expected_dscale[i / std::size_t(t.h * t.w) % std::size_t(t.c)] += x[i] * dy[i];
        }
        expect_near(y.values(), expected_y, lab.tolerance());
        expect_near(dx.values(), expected_dx, lab.tolerance());
        expect_near(dscale.values(), expected_dscale,
                    lab.tolerance() * 10 * std::sqrt(double(t.n * t.h * t.w)));
      }
  });
}

TEST_F(PReluOps, ScaleWhatIsNotPositive) {
  for_each_setting([](const LayerLab& lab) {
    for (const Case& t : cases)
      for (const bool in_place : {false, true}) {
        const TensorDesc desc = desc_of(t, lab);
        Values x = input(t);
        x.front() = 0;  // has the slope of what lies left of it
        const Values dy = random_values(std::ssize(x), 4), slope = scale_of(t);
        auto from = lab.tensor(desc, x), to = lab.tensor(desc), factors = lab.array(slope);
        auto& y = in_place ? from : to;
        lab.ops().prelu_forward(lab.dtype(), desc, from.data(), factors.data(), y.data(),
                                lab.stream());
        auto values = lab.tensor(desc, x), gradient = lab.tensor(desc, dy),
             other = lab.tensor(desc);
        auto& dx = in_place ? gradient : other;
        auto dslope = lab.array(t.c);
        GuardedBuffer workspace = lab.workspace(desc);
        lab.ops().prelu_backward(lab.dtype(), desc, values.data(), gradient.data(), factors.data(),
                                 dx.data(), dslope.data(), workspace.span(), lab.stream());
        EXPECT_TRUE(lab.intact(workspace));
        Values expected_y, expected_dx, expected_dslope(std::size_t(t.c), 0.0);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double factor = x[i] > 0 ? 1 : of_channel(slope, t, i);
          expected_y.push_back(x[i] * factor);
          expected_dx.push_back(dy[i] * factor);
          if (x[i] <= 0)
            expected_dslope[i / std::size_t(t.h * t.w) % std::size_t(t.c)] += x[i] * dy[i];
        }
        expect_near(y.values(), expected_y, lab.tolerance());
        expect_near(dx.values(), expected_dx, lab.tolerance());
        expect_near(dslope.values(), expected_dslope,
                    lab.tolerance() * 10 * std::sqrt(double(t.n * t.h * t.w)));
      }
  });
}

TEST_F(ScaledChannels, Of16BitsAreThoseOfF32RoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const Case& t : cases) {
      const TensorDesc desc = desc_of(t, half);
      const Values values = rounded(input(t), dtype),
                   gradient = rounded(random_values(std::ssize(values), 4), dtype);
      const auto run = [&](const LayerLab& lab) {
        auto x = lab.tensor(desc, values), y = lab.tensor(desc), dy = lab.tensor(desc, gradient),
             dx = lab.tensor(desc);
        auto scale = lab.array(scale_of(t)), dscale = lab.array(t.c);
        lab.ops().scale_channels_forward(lab.dtype(), desc, x.data(), scale.data(), y.data(),
                                         lab.stream());
        lab.ops().scale_channels_backward(lab.dtype(), desc, x.data(), dy.data(), scale.data(),
                                          dx.data(), dscale.data(), lab.workspace(desc).span(),
                                          lab.stream());
        return std::array{y.values(), dx.values(), dscale.values()};
      };
      const auto got = run(half), expected = run(f32);
      EXPECT_EQ(got[0], rounded(expected[0], dtype));
      EXPECT_EQ(got[1], rounded(expected[1], dtype));
      EXPECT_EQ(got[2], expected[2]);
    }
  });
}

}  // namespace
}  // namespace convlab
