// Losses and updates, and local response normalisation.
#include <cmath>

#include "conv/error.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {
namespace {

class CrossEntropy : public LayerTest {};
class SquaredError : public LayerTest {};
class Sgd : public LayerTest {};
class Adam : public LayerTest {};
class Lrn : public LayerTest {};

// ---- Softmax and cross-entropy ----

struct Classes {
  Values p, loss, dx;
};

Classes classify(const LayerLab& lab, std::int64_t classes, const Values& values,
                 const std::vector<std::int32_t>& labels, double factor) {
  const auto n = std::int64_t(labels.size());
  const TensorDesc desc = lab.desc(n, classes, 1, 1);
  auto x = lab.tensor(desc, values), p = lab.tensor(desc), dx = lab.tensor(desc),
       loss = lab.array(n);
  const GuardedBuffer label_buffer = lab.bytes(std::as_bytes(std::span(labels)));
  const auto* const label = reinterpret_cast<const std::int32_t*>(label_buffer.data());
  const LayerOps& ops = lab.ops();
  ops.cross_entropy_forward(lab.dtype(), desc, x.data(), label, p.data(), loss.data(),
                            lab.stream());
  ops.cross_entropy_backward(lab.dtype(), desc, p.data(), label, factor, dx.data(), lab.stream());
  ops.softmax(lab.dtype(), desc, x.data(), x.data(), lab.stream());
  EXPECT_EQ(x.values(), p.values());
  Classes result{p.values(), loss.values(), dx.values()};
  ops.cross_entropy_backward(lab.dtype(), desc, p.data(), label, factor, p.data(), lab.stream());
  EXPECT_EQ(p.values(), result.dx);
  return result;
}

TEST_F(CrossEntropy, IsMinusTheLogarithmOfTheLabelsSoftmax) {
  for_each_setting([](const LayerLab& lab) {
    for (const std::int64_t classes : {1, 2, 10, 37, 1000}) {
      const std::vector<std::int32_t> labels{0, std::int32_t(classes - 1),
                                             std::int32_t(classes / 2)};
      const Values x = random_values(3 * classes, 1);
      const Classes result = classify(lab, classes, x, labels, 1);
      Values p, loss;
      for (std::size_t n = 0; n < 3; ++n) {
        const double* const row = x.data() + n * std::size_t(classes);
        double sum = 0;
        for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(row[c]);
        for (std::int64_t c = 0; c < classes; ++c) p.push_back(std::exp(row[c]) / sum);
        loss.push_back(std::log(sum) - row[labels[n]]);
      }
      expect_near(result.p, p, lab.tolerance());
      expect_near(result.loss, loss, lab.tolerance());
    }
  });
}

TEST_F(CrossEntropy, BackwardIsTheGradientTimesTheFactor) {
  const std::vector<std::int32_t> labels{3, 10, 0, 5};
  for_each_setting([&](const LayerLab& lab) {
    expect_backward(
        lab, random_values(4 * 11, 1), Values(4, 0.25),
        [&](const LayerLab& l, const Values& x) { return classify(l, 11, x, labels, 1).loss; },
        [&](const LayerLab& l, const Values& x) { return classify(l, 11, x, labels, 0.25).dx; });
  });
}

// The probabilities and the losses are f32's.
TEST_F(CrossEntropy, Of16BitsIsThatOfF32WithItsGradientRoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    const TensorDesc desc = half.desc(4, 37, 1, 1);
    const Values scores = rounded(random_values(count(desc), 1), dtype);
    const std::vector<std::int32_t> labels{3, 36, -1, 0};
    const auto run = [&](const LayerLab& lab) {
      auto x = lab.tensor(desc, scores), dx = lab.tensor(desc);
      auto p = lab.computed(desc), softmax = lab.computed(desc), loss = lab.array(desc.n);
      const GuardedBuffer label_buffer = lab.bytes(std::as_bytes(std::span(labels)));
      const auto* const label = reinterpret_cast<const std::int32_t*>(label_buffer.data());
      lab.ops().cross_entropy_forward(lab.dtype(), desc, x.data(), label, p.data(), loss.data(),
                                      lab.stream());
      lab.ops().softmax(lab.dtype(), desc, x.data(), softmax.data(), lab.stream());
      EXPECT_EQ(softmax.values(), p.values());
      lab.ops().cross_entropy_backward(lab.dtype(), desc, p.data(), label, 0.25, dx.data(),
                                       lab.stream());
      return Classes{p.values(), loss.values(), dx.values()};
    };
    const Classes got = run(half), expected = run(f32);
    EXPECT_EQ(got.p, expected.p);
    EXPECT_EQ(got.loss, expected.loss);
    EXPECT_EQ(got.dx, rounded(expected.dx, dtype));
  });
}

TEST_F(CrossEntropy, LabelsOutsideCountForNothing) {
  for_each_setting([](const LayerLab& lab) {
    const Classes result = classify(lab, 5, random_values(15, 1), {-1, 2, 5}, 1);
    EXPECT_EQ(result.loss[0], 0);
    EXPECT_GT(result.loss[1], 0);
    EXPECT_EQ(result.loss[2], 0);
    for (std::size_t c = 0; c < 5; ++c) EXPECT_EQ(result.dx[c], 0);
    for (std::size_t c = 0; c < 5; ++c) EXPECT_NE(result.dx[5 + c], 0);
    for (std::size_t c = 0; c < 5; ++c) EXPECT_EQ(result.dx[10 + c], 0);
  });
}

TEST_F(CrossEntropy, LargeLogitsNeitherOverflowNorHideANaN) {
  for_each_setting([](const LayerLab& lab) {
    const double nan = std::nan("");
    const Classes result =
        classify(lab, 3, {1000, 0, -1000, -5000, -5000, -5000, 0, 1, 2}, {1, 1, 2}, 1);
    expect_near({result.p.begin(), result.p.begin() + 3}, {1, 0, 0}, 1e-30);
    EXPECT_NEAR(result.loss[0], 1000, 1e-3);
    EXPECT_NEAR(result.loss[1], std::log(3.0), 1e-6);
    const TensorDesc desc = lab.desc(1, 3, 1, 1);
    auto x = lab.tensor(desc, {0, nan, 1});
    lab.ops().softmax(lab.dtype(), desc, x.data(), x.data(), lab.stream());
    for (const double p : x.values()) EXPECT_TRUE(std::isnan(p));
  });
}

TEST_F(CrossEntropy, RefusesSeveralPixels) {
  const LayerLab lab;
  EXPECT_THROW(lab.ops().softmax(DType::f32, lab.desc(1, 3, 1, 2), nullptr, nullptr, lab.stream()),
               InputError);
}

// ---- Mean squared error ----

TEST_F(SquaredError, IsTheMeanOverEachImageWithItsGradient) {
  for_each_setting([](const LayerLab& lab) {
    for (const TensorDesc& desc :
         {lab.desc(3, 5, 2, 3), lab.desc(2, 1, 1, 1), lab.desc(3, 21, 20, 19)}) {
      const std::int64_t image = desc.c * desc.h * desc.w;
      const Values target_values = random_values(desc.n * image, 2);
      const auto loss_of = [&](const LayerLab& l, const Values& values) {
        auto x = l.tensor(desc, values), target = l.tensor(desc, target_values),
             loss = l.array(desc.n);
        l.ops().squared_error_forward(l.dtype(), desc, x.data(), target.data(), loss.data(),
                                      l.stream());
        return loss.values();
      };
      const Values x = random_values(desc.n * image, 1);
      Values expected(std::size_t(desc.n), 0.0);
      for (std::size_t i = 0; i < x.size(); ++i)
        expected[i / std::size_t(image)] +=
            (x[i] - target_values[i]) * (x[i] - target_values[i]) / double(image);
      expect_near(loss_of(lab, x), expected, 2 * lab.tolerance());
      expect_backward(lab, x, Values(std::size_t(desc.n), 0.5), loss_of,
                      [&](const LayerLab& l, const Values& values) {
                        auto from = l.tensor(desc, values), target = l.tensor(desc, target_values),
                             dx = l.tensor(desc);
                        l.ops().squared_error_backward(l.dtype(), desc, from.data(), target.data(),
                                                       0.5, dx.data(), l.stream());
                        return dx.values();
                      });
    }
  });
}

// The targets and the losses are f32's.
TEST_F(SquaredError, Of16BitsIsThatOfF32WithItsGradientRoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const TensorDesc& desc : {half.desc(3, 5, 2, 3), half.desc(3, 21, 20, 19)}) {
      const Values values = rounded(random_values(count(desc), 1), dtype),
                   targets = random_values(count(desc), 2);
      const auto run = [&](const LayerLab& lab) {
        auto x = lab.tensor(desc, values), dx = lab.tensor(desc);
        auto target = lab.computed(desc, targets), loss = lab.array(desc.n);
        lab.ops().squared_error_forward(lab.dtype(), desc, x.data(), target.data(), loss.data(),
                                        lab.stream());
        lab.ops().squared_error_backward(lab.dtype(), desc, x.data(), target.data(), 0.5, dx.data(),
                                         lab.stream());
        return Classes{{}, loss.values(), dx.values()};
      };
      const Classes got = run(half), expected = run(f32);
      EXPECT_EQ(got.loss, expected.loss);
      EXPECT_EQ(got.dx, rounded(expected.dx, dtype));
    }
  });
}

// ---- Updates: three steps against the textbook's loop ----

const std::int64_t weights = 20011;  // ragged, and enough for several threads

TEST_F(Sgd, FollowsItsDefinition) {
  for_each_setting([](const LayerLab& lab) {
    for (const SgdDesc& sgd : {SgdDesc{0.1, 0, 0, false}, SgdDesc{0.1, 0, 0.01, false},
                               SgdDesc{0.1, 0.9, 0.01, false}, SgdDesc{0.1, 0.9, 0.01, true}}) {
      Values w = random_values(weights, 1), v(std::size_t(weights), 0.0);
      auto weight = lab.array(w), velocity = lab.array(v);
      for (unsigned step = 2; step < 5; ++step) {
        const Values dw = random_values(weights, step);
        auto gradient = lab.array(dw);
        lab.ops().sgd_update(lab.dtype(), sgd, weights, gradient.data(), weight.data(),
                             sgd.momentum == 0 ? nullptr : velocity.data(), lab.stream());
        for (std::size_t i = 0; i < w.size(); ++i) {
          const double g = dw[i] + sgd.weight_decay * w[i];
          v[i] = sgd.momentum * v[i] + g;
          w[i] -= sgd.rate * (sgd.nesterov ? g + sgd.momentum * v[i] : v[i]);
        }
      }
      expect_near(weight.values(), w, 2 * lab.tolerance());
      if (sgd.momentum != 0) expect_near(velocity.values(), v, 2 * lab.tolerance());
    }
    EXPECT_THROW(
        lab.ops().sgd_update(lab.dtype(), {0.1, 0.9}, 1, nullptr, nullptr, nullptr, lab.stream()),
        InputError);
  });
}

TEST_F(Adam, FollowsItsDefinition) {
  for_each_setting([](const LayerLab& lab) {
    for (AdamDesc adam : {AdamDesc{}, AdamDesc{.weight_decay = 0.1},
                          AdamDesc{.rate = 0.01, .weight_decay = 0.1, .decoupled = true}}) {
      Values w = random_values(weights, 1);
      Values m(std::size_t(weights), 0.0), v = m;
      auto weight = lab.array(w), mean = lab.array(m), square = lab.array(v);
      for (adam.step = 1; adam.step <= 3; ++adam.step) {
        const Values dw = random_values(weights, unsigned(adam.step) + 1);
        auto gradient = lab.array(dw);
        lab.ops().adam_update(lab.dtype(), adam, weights, gradient.data(), weight.data(),
                              mean.data(), square.data(), lab.stream());
        for (std::size_t i = 0; i < w.size(); ++i) {
          const double g = dw[i] + (adam.decoupled ? 0 : adam.weight_decay * w[i]);
          m[i] = adam.beta1 * m[i] + (1 - adam.beta1) * g;
          v[i] = adam.beta2 * v[i] + (1 - adam.beta2) * g * g;
          const double mhat = m[i] / (1 - std::pow(adam.beta1, double(adam.step)));
          const double vhat = v[i] / (1 - std::pow(adam.beta2, double(adam.step)));
          if (adam.decoupled) w[i] -= adam.rate * adam.weight_decay * w[i];
          w[i] -= adam.rate * mhat / (std::sqrt(vhat) + adam.epsilon);
        }
      }
      expect_near(weight.values(), w, 2 * lab.tolerance());
      expect_near(mean.values(), m, lab.tolerance());
      expect_near(square.values(), v, lab.tolerance());
    }
  });
}

// ---- Local response normalisation ----

// The usual one; another exponent and an even size; wider than the channels; many pixels; many
// channels.
std::vector<LrnDesc> norms(const LayerLab& lab) {
  return {{lab.desc(2, 7, 5, 9), 5, 0.1, 0.75, 2},
          {lab.desc(1, 21, 3, 2), 4, 0.5, 0.6, 1},
          {lab.desc(2, 3, 1, 1), 9, 1, 0.75, 1},
          {lab.desc(2, 35, 17, 16), 5, 1e-2, 0.75, 1},
          {lab.desc(1, 139, 2, 3), 4, 0.1, 0.75, 2}};
}

Values normalise(const LayerLab& lab, const LrnDesc& lrn, const Values& values) {
  auto x = lab.tensor(lrn.x, values), y = lab.tensor(lrn.x);
  const GuardedBuffer workspace = lab.workspace(lrn.x);
  lab.ops().lrn_forward(lab.dtype(), lrn, x.data(), y.data(), workspace.span(), lab.stream());
  EXPECT_TRUE(lab.intact(workspace));
  return y.values();
}

Values lrn_gradient(const LayerLab& lab, const LrnDesc& lrn, const Values& values,
                    const Values& dy) {
  auto x = lab.tensor(lrn.x, values), incoming = lab.tensor(lrn.x, dy), dx = lab.tensor(lrn.x);
  const GuardedBuffer workspace = lab.workspace(lrn.x);
  lab.ops().lrn_backward(lab.dtype(), lrn, x.data(), incoming.data(), dx.data(), workspace.span(),
                         lab.stream());
  EXPECT_TRUE(lab.intact(workspace));
  return dx.values();
}

TEST_F(Lrn, FollowsItsDefinition) {
  for_each_setting([](const LayerLab& lab) {
    for (const LrnDesc& lrn : norms(lab)) {
      const Values x = random_values(count(lrn.x), 1);
      const std::int64_t pixels = lrn.x.h * lrn.x.w;
      Values expected;
      for (std::int64_t i = 0; i < std::int64_t(x.size()); ++i) {
        const std::int64_t c = i / pixels % lrn.x.c;
        double sum = 0;
        for (std::int64_t j = c - lrn.size / 2; j < c - lrn.size / 2 + lrn.size; ++j) {
          const double v = j < 0 || j >= lrn.x.c ? 0 : x[std::size_t(i + (j - c) * pixels)];
          sum += v * v;
        }
        expected.push_back(x[std::size_t(i)] / std::pow(lrn.k + lrn.alpha * sum, lrn.beta));
      }
      expect_near(normalise(lab, lrn, x), expected, lab.tolerance());
    }
  });
}

TEST_F(Lrn, BackwardIsTheGradient) {
  for_each_setting([](const LayerLab& lab) {
    for (const LrnDesc& lrn : norms(lab)) {
      const Values dy = random_values(count(lrn.x), 2);
      expect_backward(
          lab, random_values(count(lrn.x), 1), dy,
          [&](const LayerLab& l, const Values& x) { return normalise(l, lrn, x); },
          [&](const LayerLab& l, const Values& x) { return lrn_gradient(l, lrn, x, dy); });
    }
  });
}

TEST_F(Lrn, Of16BitsIsThatOfF32RoundedOnce) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const LrnDesc& lrn : norms(half)) {
      const Values x = rounded(random_values(count(lrn.x), 1), dtype),
                   dy = rounded(random_values(count(lrn.x), 2), dtype);
      EXPECT_EQ(normalise(half, lrn, x), rounded(normalise(f32, lrn, x), dtype));
      EXPECT_EQ(lrn_gradient(half, lrn, x, dy), rounded(lrn_gradient(f32, lrn, x, dy), dtype));
    }
  });
}

// Weights and their state are f32's whatever the tensors' type.
TEST_F(Sgd, UpdatesRefuse16Bits) {
  const LayerLab lab;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    EXPECT_THROW(lab.ops().sgd_update(dtype, {}, 1, nullptr, nullptr, nullptr, lab.stream()),
                 InputError);
    EXPECT_THROW(
        lab.ops().adam_update(dtype, {}, 1, nullptr, nullptr, nullptr, nullptr, lab.stream()),
        InputError);
  }
}

// A NaN reaches the channels whose windows contain it, at its pixel.
TEST_F(Lrn, HidesNoNaN) {
  for_each_setting([](const LayerLab& lab) {
    for (const LrnDesc& lrn : norms(lab)) {
      const std::int64_t pixels = lrn.x.h * lrn.x.w, channel = lrn.x.c / 2;
      const auto at = std::size_t(channel * pixels + pixels / 2);  // of the first image
      const Values sound = random_values(count(lrn.x), 1);
      Values broken = sound;
      broken[at] = std::nan("");
      const Values y = normalise(lab, lrn, broken);
      const Values of_x = lrn_gradient(lab, lrn, broken, sound);
      const Values of_dy = lrn_gradient(lab, lrn, sound, broken);
      EXPECT_TRUE(std::isnan(of_x[at]) && std::isnan(of_dy[at]));
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::int64_t c = std::int64_t(i) / pixels - channel;  // from the NaN's
        const bool is_beside = (std::int64_t(i) - std::int64_t(at)) % pixels == 0 &&
                               std::int64_t(i) < lrn.x.c * pixels;
        const std::int64_t first = -(lrn.size / 2);
        EXPECT_EQ(std::isnan(y[i]), is_beside && -c >= first && -c < first + lrn.size) << i;
        EXPECT_FALSE(!is_beside && (std::isnan(of_x[i]) || std::isnan(of_dy[i]))) << i;
      }
    }
  });
}

}  // namespace
}  // namespace convlab
