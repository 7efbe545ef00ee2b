// Inputs of batch norm, what must come out, and what an operation gives for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/conv/layer_ops/layer_lab.h"
#include "tests/problems.h"

namespace convlab::batch_norm_lab {

struct Shape4 {
  std::int64_t n, c, h, w;
};
// One pixel per image; one value per channel in all; large enough for several threads and several
// pieces per channel.
inline const std::vector<Shape4> shapes{{2, 3, 4, 5},   {1, 17, 3, 3}, {3, 8, 7, 2},
                                        {5, 37, 1, 1},  {1, 6, 1, 1},  {3, 20, 40, 33},
                                        {11, 3, 33, 40}};

inline std::int64_t elements(const Shape4& s) { return s.n * s.c * s.h * s.w; }
inline bool tried(const Shape4& s) { return !reduced() || elements(s) <= 200; }

// f(channel, element) over NCHW.
template <class F>
void for_each(const Shape4& s, F f) {
  std::size_t i = 0;
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t c = 0; c < s.c; ++c)
      for (std::int64_t p = 0; p < s.h * s.w; ++p) f(std::size_t(c), i++);
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

inline NormResult train(const LayerLab& lab, const NormInput& in) {
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

inline Statistics statistics_of(const NormInput& in) {
  const double count = double(in.s.n * in.s.h * in.s.w);
  Statistics result{Values(std::size_t(in.s.c), 0.0), Values(std::size_t(in.s.c), 0.0)};
  for_each(in.s, [&](std::size_t c, std::size_t i) { result.mean[c] += in.x[i] / count; });
  for_each(in.s, [&](std::size_t c, std::size_t i) {
    result.variance[c] += (in.x[i] - result.mean[c]) * (in.x[i] - result.mean[c]) / count;
  });
  return result;
}

inline Values normalised(const NormInput& in, const Statistics& statistics) {
  Values y = in.x;
  for_each(in.s, [&](std::size_t c, std::size_t i) {
    y[i] = in.scale[c] * (in.x[i] - statistics.mean[c]) / std::sqrt(statistics.variance[c] + 1e-3) +
           in.shift[c];
    if (in.residual_used) y[i] += in.residual[i];
    if (in.relu) y[i] = std::max(y[i], 0.0);
  });
  return y;
}

inline const bool flags[] = {false, true};

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct NormGradients {
  Values dx, dresidual, dscale, dshift;
};

inline NormGradients gradients(const LayerLab& lab, const NormInput& in, const Values& dy) {
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
  const NormGradients result{dx.values(), in.residual_used ? dresidual.values() : Values{},
                             dscale.values(), dshift.values()};
  run(incoming.data());  // overwrites dy
  const Values in_place = incoming.values();
  for (std::size_t i = 0; i < in_place.size(); ++i)
    EXPECT_TRUE(in_place[i] == result.dx[i] ||
                (std::isnan(in_place[i]) && std::isnan(result.dx[i])))
        << i;
  return result;
}

// Compares the gradients of every input with differences of the output. `forward(lab, input)` gives
// y, `backward(lab, input, dy)` gives NormGradients.
template <class Forward, class Backward>
void expect_gradients(const LayerLab& lab, const NormInput& in, const Forward& forward,
                      const Backward& backward) {
  const Values dy = random_values(elements(in.s), 7);
  const auto check = [&](Values NormInput::*member, Values NormGradients::*of) {
    const auto changed = [&](const Values& values) {
      NormInput other = in;
      other.*member = values;
      return other;
    };
    expect_backward(
        lab, in.*member, dy,
        [&](const LayerLab& l, const Values& v) { return forward(l, changed(v)); },
        [&](const LayerLab& l, const Values& v) { return backward(l, changed(v), dy).*of; });
  };
  check(&NormInput::x, &NormGradients::dx);
  check(&NormInput::scale, &NormGradients::dscale);
  check(&NormInput::shift, &NormGradients::dshift);
  if (in.residual_used) check(&NormInput::residual, &NormGradients::dresidual);
}

// To the last bit.
inline void expect_equal(const NormGradients& got, const NormGradients& expected) {
  EXPECT_EQ(got.dx, expected.dx);
  EXPECT_EQ(got.dresidual, expected.dresidual);
  EXPECT_EQ(got.dscale, expected.dscale);
  EXPECT_EQ(got.dshift, expected.dshift);
}

}  // namespace convlab::batch_norm_lab
