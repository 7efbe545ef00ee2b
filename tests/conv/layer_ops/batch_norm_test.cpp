// Bias and batch normalisation.
#include "tests/conv/layer_ops/batch_norm_lab.h"

namespace convlab {
namespace {

using namespace batch_norm_lab;

class Bias : public LayerTest {};
class BatchNorm : public LayerTest {};

TEST_F(Bias, AddsToEachChannelAlsoInPlace) {
  for_each_setting([](const LayerLab& lab) {
    for (const Shape4& s : shapes) {
      const TensorDesc desc = lab.desc(s.n, s.c, s.h, s.w);
      const Values x = random_values(elements(s), 1), bias = random_values(s.c, 2);
      Values expected = x;
      for_each(s, [&](std::size_t c, std::size_t i) { expected[i] += bias[c]; });
      auto from = lab.tensor(desc, x), to = lab.tensor(desc), b = lab.array(bias);
      const GuardedBuffer workspace = lab.workspace(desc);
      lab.ops().bias_forward(lab.dtype(), desc, from.data(), b.data(), to.data(), workspace.span(),
                             lab.stream());
      expect_near(to.values(), expected, lab.tolerance());
      lab.ops().bias_forward(lab.dtype(), desc, from.data(), b.data(), from.data(),
                             workspace.span(), lab.stream());
      EXPECT_EQ(from.values(), to.values());
      EXPECT_TRUE(lab.intact(workspace));
    }
  });
}

TEST_F(Bias, GradientIsTheSumOverEachChannel) {
  for_each_setting([](const LayerLab& lab) {
    for (const Shape4& s : shapes) {
      const TensorDesc desc = lab.desc(s.n, s.c, s.h, s.w);
      const Values dy = random_values(elements(s), 1);
      Values expected(std::size_t(s.c), 0.0);
      for_each(s, [&](std::size_t c, std::size_t i) { expected[c] += dy[i]; });
      auto gradient = lab.tensor(desc, dy), dbias = lab.array(s.c);
      const GuardedBuffer workspace = lab.workspace(desc);
      lab.ops().bias_backward(lab.dtype(), desc, gradient.data(), dbias.data(), workspace.span(),
                              lab.stream());
      expect_near(dbias.values(), expected, 20 * lab.tolerance());
      EXPECT_TRUE(lab.intact(workspace));
    }
  });
}

TEST_F(BatchNorm, TrainingNormalisesAndAverages) {
  for_each_setting([](const LayerLab& lab) {
    for (const Shape4& s : shapes)
      for (const bool residual : flags)
        for (const bool relu : flags) {
          const NormInput in(s, residual, relu);
          const Statistics statistics = statistics_of(in);
          const NormResult result = train(lab, in);
          expect_near(result.y, normalised(in, statistics), 10 * lab.tolerance());
          expect_near(result.mean, statistics.mean, 2 * lab.tolerance());
          const double count = double(s.n * s.h * s.w);
          for (std::size_t c = 0; c < std::size_t(s.c); ++c) {
            const double variance = statistics.variance[c];
            EXPECT_NEAR(result.inverse_deviation[c], 1 / std::sqrt(variance + 1e-3),
                        10 * lab.tolerance() * result.inverse_deviation[c]);
            EXPECT_NEAR(result.running_mean[c], 0.75 + 0.25 * statistics.mean[c], lab.tolerance());
            const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
            EXPECT_NEAR(result.running_variance[c], 1.5 + 0.25 * unbiased, 10 * lab.tolerance());
          }
        }
  });
}

// A single pass over the values must not cancel a small variance beside a large mean.
TEST_F(BatchNorm, VarianceSurvivesALargeMean) {
  for_each_setting([](const LayerLab& lab) {
    NormInput in({2, 5, 30, 31}, false, false);
    for (double& v : in.x) v = double(float(3000 + v));
    const Values inverse = train(lab, in).inverse_deviation;
    const Statistics statistics = statistics_of(in);
    for (std::size_t c = 0; c < inverse.size(); ++c)
      EXPECT_NEAR(inverse[c] * std::sqrt(statistics.variance[c] + 1e-3), 1, 1e-5);
  });
}

TEST_F(BatchNorm, InferenceUsesTheRunningStatistics) {
  for_each_setting([](const LayerLab& lab) {
    for (const Shape4& s : shapes)
      for (const bool residual : flags)
        for (const bool relu : flags) {
          const NormInput in(s, residual, relu);
          Statistics running{random_values(s.c, 5), random_values(s.c, 6)};
          for (double& v : running.variance) v = 0.5 + v * v;
          if (lab.dtype() == DType::f32)
            for (double& v : running.variance) v = double(float(v));
          const BatchNormDesc desc = in.desc(lab);
          auto x = lab.tensor(desc.x, in.x), y = lab.tensor(desc.x);
          auto residual_or_y = lab.tensor(desc.x, in.residual);
          auto scale = lab.array(in.scale), shift = lab.array(in.shift);
          auto mean = lab.array(running.mean), variance = lab.array(running.variance);
          const GuardedBuffer workspace = lab.workspace(desc.x);
          const auto run = [&](void* to) {
            lab.ops().batch_norm_inference(
                lab.dtype(), desc, {x.data(), residual_or_y.data(), scale.data(), shift.data(), to},
                mean.data(), variance.data(), workspace.span(), lab.stream());
          };
          run(y.data());
          expect_near(y.values(), normalised(in, running), 10 * lab.tolerance());
          run(residual_or_y.data());
          EXPECT_EQ(residual_or_y.values(), y.values());
          EXPECT_TRUE(lab.intact(workspace));
        }
  });
}

TEST_F(BatchNorm, BackwardIsTheGradientOfEveryInput) {
  for_each_setting([](const LayerLab& lab) {
    for (const Shape4& s : shapes) {
      if (s.n * s.h * s.w == 1) continue;  // y does not depend on x, and the variance is 0
      if (!tried(s)) continue;
      for (const bool residual : flags)
        for (const bool relu : flags) {
          if (relu && &s == &shapes.back()) continue;  // so many that some cross zero within a step
          expect_gradients(
              lab, {s, residual, relu},
              [](const LayerLab& l, const NormInput& in) { return train(l, in).y; }, gradients);
        }
    }
  });
}

// Per-channel arrays are f32's.
TEST_F(BatchNorm, Of16BitsIsThatOfF32RoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const Shape4& s : shapes) {
      if (!tried(s)) continue;
      for (const bool residual : flags)
        for (const bool relu : flags) {
          NormInput in(s, residual, relu);
          in.x = rounded(in.x, dtype);
          in.residual = rounded(in.residual, dtype);
          const NormResult got = train(half, in), expected = train(f32, in);
          EXPECT_EQ(got.y, rounded(expected.y, dtype));
          EXPECT_EQ(got.mean, expected.mean);
          EXPECT_EQ(got.inverse_deviation, expected.inverse_deviation);
          EXPECT_EQ(got.running_mean, expected.running_mean);
          EXPECT_EQ(got.running_variance, expected.running_variance);
          const Values dy = rounded(random_values(elements(s), 7), dtype);
          const NormGradients backward = gradients(half, in, dy), of_f32 = gradients(f32, in, dy);
          EXPECT_EQ(backward.dx, rounded(of_f32.dx, dtype));
          EXPECT_EQ(backward.dresidual, rounded(of_f32.dresidual, dtype));
          EXPECT_EQ(backward.dscale, of_f32.dscale);
          EXPECT_EQ(backward.dshift, of_f32.dshift);
        }
    }
  });
}

TEST_F(BatchNorm, InferenceAndBiasOf16BitsAreThoseOfF32RoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const Shape4& s : shapes) {
      NormInput in(s, true, true);
      in.x = rounded(in.x, dtype);
      in.residual = rounded(in.residual, dtype);
      const auto run = [&](const LayerLab& lab) {
        const BatchNormDesc desc = in.desc(lab);
        auto x = lab.tensor(desc.x, in.x), residual = lab.tensor(desc.x, in.residual),
             y = lab.tensor(desc.x), biased = lab.tensor(desc.x);
        auto scale = lab.array(in.scale), shift = lab.array(in.shift);
        auto mean = lab.array(in.shift), variance = lab.array(Values(std::size_t(s.c), 1.7));
        auto sum = lab.array(s.c);
        const GuardedBuffer workspace = lab.workspace(desc.x);
        lab.ops().batch_norm_inference(
            lab.dtype(), desc, {x.data(), residual.data(), scale.data(), shift.data(), y.data()},
            mean.data(), variance.data(), workspace.span(), lab.stream());
        lab.ops().bias_forward(lab.dtype(), desc.x, x.data(), shift.data(), biased.data(),
                               workspace.span(), lab.stream());
        lab.ops().bias_backward(lab.dtype(), desc.x, x.data(), sum.data(), workspace.span(),
                                lab.stream());
        return NormGradients{y.values(), biased.values(), sum.values(), {}};
      };
      const NormGradients got = run(half), expected = run(f32);
      EXPECT_EQ(got.dx, rounded(expected.dx, dtype));
      EXPECT_EQ(got.dresidual, rounded(expected.dresidual, dtype));
      EXPECT_EQ(got.dscale, expected.dscale);
    }
  });
}

// In training a NaN reaches all of its channel, and no other.
TEST_F(BatchNorm, TrainingHidesNoNaN) {
  for_each_setting([](const LayerLab& lab) {
    for (const bool residual : flags)
      for (const bool relu : flags) {
        NormInput in({2, 5, 3, 7}, residual, relu);
        const Values dy = random_values(elements(in.s), 7);
        in.x[std::size_t(2 * in.s.h * in.s.w + 4)] = nan;  // channel 2 of the first image
        const NormResult result = train(lab, in);
        const NormGradients backward = gradients(lab, in, dy);
        for_each(in.s, [&](std::size_t c, std::size_t i) {
          EXPECT_EQ(std::isnan(result.y[i]), c == 2) << c << ' ' << i;
          EXPECT_EQ(std::isnan(backward.dx[i]), c == 2) << c << ' ' << i;
        });
        for (std::size_t c = 0; c < std::size_t(in.s.c); ++c)
          for (const Values* values :
               {&result.mean, &result.inverse_deviation, &result.running_mean,
                &result.running_variance, &backward.dscale})
            EXPECT_EQ(std::isnan((*values)[c]), c == 2) << c;
      }
  });
}

TEST_F(BatchNorm, BackwardHidesNoNaNOfTheGradient) {
  for_each_setting([](const LayerLab& lab) {
    for (const bool residual : flags)
      for (const bool relu : flags) {
        const NormInput in({2, 5, 3, 7}, residual, relu);
        const Values y = train(lab, in).y;
        Values dy = random_values(elements(in.s), 7);
        std::size_t at = std::size_t(2 * in.s.h * in.s.w);
        while (y[at] <= 0) ++at;  // ReLU lets it through there
        dy[at] = nan;
        const NormGradients backward = gradients(lab, in, dy);
        for_each(in.s, [&](std::size_t c, std::size_t i) {
          EXPECT_EQ(std::isnan(backward.dx[i]), c == 2) << c << ' ' << i;
        });
        for (std::size_t c = 0; c < std::size_t(in.s.c); ++c)
          for (const Values* values : {&backward.dscale, &backward.dshift})
            EXPECT_EQ(std::isnan((*values)[c]), c == 2) << c;
        if (residual) {
          EXPECT_TRUE(std::isnan(backward.dresidual[at]));
        }
      }
  });
}

TEST_F(BatchNorm, InferenceHidesNoNaN) {
  for_each_setting([](const LayerLab& lab) {
    for (const bool of_residual : flags)
      for (const bool relu : flags) {
        NormInput in({2, 5, 3, 7}, of_residual, relu);
        const std::size_t at = 50;
        (of_residual ? in.residual : in.x)[at] = nan;
        const BatchNormDesc desc = in.desc(lab);
        auto x = lab.tensor(desc.x, in.x), residual = lab.tensor(desc.x, in.residual),
             y = lab.tensor(desc.x);
        auto scale = lab.array(in.scale), shift = lab.array(in.shift);
        auto mean = lab.array(Values(5, 3.0)), variance = lab.array(Values(5, 4.0));
        const GuardedBuffer workspace = lab.workspace(desc.x);
        lab.ops().batch_norm_inference(
            lab.dtype(), desc, {x.data(), residual.data(), scale.data(), shift.data(), y.data()},
            mean.data(), variance.data(), workspace.span(), lab.stream());
        const Values result = y.values();
        for (std::size_t i = 0; i < result.size(); ++i)
          EXPECT_EQ(std::isnan(result[i]), i == at) << i;
      }
  });
}

TEST_F(BatchNorm, IsTheSameForAnyNumberOfThreads) {
  for (const Layout layout : layer_backend().layouts) {
    const NormInput in(reduced() ? shapes.front() : shapes.back(), true, true);
    const Values dy = random_values(elements(in.s), 7);
    const LayerLab one(1, DType::f32, layout);
    const NormResult expected = train(one, in);
    const NormGradients expected_backward = gradients(one, in, dy);
    for (const int threads : {2, 3, 5}) {
      const LayerLab lab = one.with_threads(threads);
      const NormResult result = train(lab, in);
      EXPECT_EQ(result.y, expected.y);
      EXPECT_EQ(result.running_variance, expected.running_variance);
      expect_equal(gradients(lab, in, dy), expected_backward);
    }
  }
}

}  // namespace
}  // namespace convlab
