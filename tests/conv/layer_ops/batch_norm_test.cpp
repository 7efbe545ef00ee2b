// Bias and batch normalisation.
#include <cmath>
#include <limits>

#include "tests/conv/layer_ops/layer_lab.h"
#include "tests/problems.h"

namespace convlab {
namespace {

class Bias : public LayerTest {};
class BatchNorm : public LayerTest {};

struct Shape4 {
  std::int64_t n, c, h, w;
};
// One pixel per image; one value per channel in all; large enough for several threads and several
// pieces per channel.
const std::vector<Shape4> shapes{{2, 3, 4, 5}, {1, 17, 3, 3},   {3, 8, 7, 2},   {5, 37, 1, 1},
                                 {1, 6, 1, 1}, {3, 20, 40, 33}, {11, 3, 33, 40}};

std::int64_t elements(const Shape4& s) { return s.n * s.c * s.h * s.w; }

// f(channel, element) over NCHW.
template <class F>
void for_each(const Shape4& s, F f) {
  std::size_t i = 0;
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t c = 0; c < s.c; ++c)
      for (std::int64_t p = 0; p < s.h * s.w; ++p) f(std::size_t(c), i++);
}

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

struct NormInput {
  Shape4 s;
  bool residual_used, relu;
  Values x, residual, scale, shift;

  NormInput(const Shape4& shape, bool with_residual, bool with_relu)
      : s(shape),
        residual_used(with_residual),
        relu(with_relu),
        x(random_values(elements(s), 1)),
        residual(random_values(elements(s), 2)),
        scale(random_values(s.c, 3)),
        shift(random_values(s.c, 4)) {
    for (double& v : x) v = 3 + 2 * v;
  }
  BatchNormDesc desc(const LayerLab& lab) const {
    return {lab.desc(s.n, s.c, s.h, s.w), 1e-3, residual_used, relu};
  }
};

struct NormResult {
  Values y, running_mean, running_variance, mean, inverse_deviation;
};

NormResult train(const LayerLab& lab, const NormInput& in) {
  const BatchNormDesc desc = in.desc(lab);
  auto x = lab.tensor(desc.x, in.x), residual = lab.tensor(desc.x, in.residual),
       y = lab.tensor(desc.x);
  auto scale = lab.array(in.scale), shift = lab.array(in.shift);
  auto running_mean = lab.array(Values(std::size_t(in.s.c), 1.0));
  auto running_variance = lab.array(Values(std::size_t(in.s.c), 2.0));
  auto mean = lab.array(in.s.c), inverse = lab.array(in.s.c);
  const GuardedBuffer workspace = lab.workspace(desc.x);
  lab.ops().batch_norm_training(
      lab.dtype(), desc, {x.data(), residual.data(), scale.data(), shift.data(), y.data()},
      {0.25, running_mean.data(), running_variance.data(), mean.data(), inverse.data()},
      workspace.span(), lab.stream());
  EXPECT_TRUE(lab.intact(workspace));
  return {y.values(), running_mean.values(), running_variance.values(), mean.values(),
          inverse.values()};
}

struct Statistics {
  Values mean, variance;  // biased
};

Statistics statistics_of(const NormInput& in) {
  const double count = double(in.s.n * in.s.h * in.s.w);
  Statistics result{Values(std::size_t(in.s.c), 0.0), Values(std::size_t(in.s.c), 0.0)};
  for_each(in.s, [&](std::size_t c, std::size_t i) { result.mean[c] += in.x[i] / count; });
  for_each(in.s, [&](std::size_t c, std::size_t i) {
    result.variance[c] += (in.x[i] - result.mean[c]) * (in.x[i] - result.mean[c]) / count;
  });
  return result;
}

Values normalised(const NormInput& in, const Statistics& statistics) {
  Values y = in.x;
  for_each(in.s, [&](std::size_t c, std::size_t i) {
    y[i] = in.scale[c] * (in.x[i] - statistics.mean[c]) / std::sqrt(statistics.variance[c] + 1e-3) +
           in.shift[c];
    if (in.residual_used) y[i] += in.residual[i];
    if (in.relu) y[i] = std::max(y[i], 0.0);
  });
  return y;
}

const bool flags[] = {false, true};

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

enum class Of { x, residual, scale, shift };

Values gradient(const LayerLab& lab, const NormInput& in, const Values& dy, Of of) {
  const NormResult forward = train(lab, in);
  const BatchNormDesc desc = in.desc(lab);
  auto x = lab.tensor(desc.x, in.x), y = lab.tensor(desc.x, forward.y);
  auto incoming = lab.tensor(desc.x, dy), dx = lab.tensor(desc.x), dresidual = lab.tensor(desc.x);
  auto scale = lab.array(in.scale), shift = lab.array(in.shift);
  auto mean = lab.array(forward.mean), inverse = lab.array(forward.inverse_deviation);
  auto dscale = lab.array(in.s.c), dshift = lab.array(in.s.c);
  const GuardedBuffer workspace = lab.workspace(desc.x);
  const auto run = [&](void* to) {
    lab.ops().batch_norm_backward(
        lab.dtype(), desc,
        {x.data(), in.residual_used && in.relu ? y.data() : nullptr, incoming.data(), scale.data(),
         shift.data(), mean.data(), inverse.data(), to,
         in.residual_used ? dresidual.data() : nullptr, dscale.data(), dshift.data()},
        workspace.span(), lab.stream());
  };
  run(dx.data());
  EXPECT_TRUE(lab.intact(workspace));
  switch (of) {
    case Of::residual:
      return dresidual.values();
    case Of::scale:
      return dscale.values();
    case Of::shift:
      return dshift.values();
    case Of::x:
      break;
  }
  run(incoming.data());  // overwrites dy
  const Values in_place = incoming.values(), apart = dx.values();
  for (std::size_t i = 0; i < apart.size(); ++i)
    EXPECT_TRUE(in_place[i] == apart[i] || (std::isnan(in_place[i]) && std::isnan(apart[i]))) << i;
  return dx.values();
}

TEST_F(BatchNorm, BackwardIsTheGradientOfEveryInput) {
  for_each_setting([](const LayerLab& lab) {
    for (const Shape4& s : shapes) {
      if (s.n * s.h * s.w == 1) continue;  // y does not depend on x, and the variance is 0
      if (reduced() && elements(s) > 200) continue;
      for (const bool residual : flags)
        for (const bool relu : flags) {
          if (relu && &s == &shapes.back()) continue;  // so many that some cross zero within a step
          const NormInput in(s, residual, relu);
          const Values dy = random_values(elements(s), 7);
          const auto check = [&](Of of, Values NormInput::*member) {
            const auto changed = [&](const Values& values) {
              NormInput other = in;
              other.*member = values;
              return other;
            };
            expect_backward(
                lab, in.*member, dy,
                [&](const LayerLab& l, const Values& v) { return train(l, changed(v)).y; },
                [&](const LayerLab& l, const Values& v) {
                  return gradient(l, changed(v), dy, of);
                });
          };
          check(Of::x, &NormInput::x);
          check(Of::scale, &NormInput::scale);
          check(Of::shift, &NormInput::shift);
          if (residual) check(Of::residual, &NormInput::residual);
        }
    }
  });
}

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// In training a NaN reaches all of its channel, and no other.
TEST_F(BatchNorm, TrainingHidesNoNaN) {
  for_each_setting([](const LayerLab& lab) {
    for (const bool residual : flags)
      for (const bool relu : flags) {
        NormInput in({2, 5, 3, 7}, residual, relu);
        const Values dy = random_values(elements(in.s), 7);
        in.x[std::size_t(2 * in.s.h * in.s.w + 4)] = nan;  // channel 2 of the first image
        const NormResult result = train(lab, in);
        const Values dx = gradient(lab, in, dy, Of::x), dscale = gradient(lab, in, dy, Of::scale);
        for_each(in.s, [&](std::size_t c, std::size_t i) {
          EXPECT_EQ(std::isnan(result.y[i]), c == 2) << c << ' ' << i;
          EXPECT_EQ(std::isnan(dx[i]), c == 2) << c << ' ' << i;
        });
        for (std::size_t c = 0; c < std::size_t(in.s.c); ++c)
          for (const Values* values : {&result.mean, &result.inverse_deviation,
                                       &result.running_mean, &result.running_variance, &dscale})
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
        const Values dx = gradient(lab, in, dy, Of::x), dscale = gradient(lab, in, dy, Of::scale),
                     dshift = gradient(lab, in, dy, Of::shift);
        for_each(in.s, [&](std::size_t c, std::size_t i) {
          EXPECT_EQ(std::isnan(dx[i]), c == 2) << c << ' ' << i;
        });
        for (std::size_t c = 0; c < std::size_t(in.s.c); ++c)
          for (const Values* values : {&dscale, &dshift})
            EXPECT_EQ(std::isnan((*values)[c]), c == 2) << c;
        if (residual) {
          EXPECT_TRUE(std::isnan(gradient(lab, in, dy, Of::residual)[at]));
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
    for (const int threads : {2, 3, 5}) {
      const LayerLab lab = one.with_threads(threads);
      const NormResult result = train(lab, in);
      EXPECT_EQ(result.y, expected.y);
      EXPECT_EQ(result.running_variance, expected.running_variance);
      for (const Of of : {Of::x, Of::residual, Of::scale, Of::shift})
        EXPECT_EQ(gradient(lab, in, dy, of), gradient(one, in, dy, of));
    }
  }
}

}  // namespace
}  // namespace convlab
