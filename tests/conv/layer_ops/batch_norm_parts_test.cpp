// Batch normalisation of a batch in parts, as several devices have it: what each finds in its part,
// combined, and the rest of the pass from that.
#include <algorithm>
#include <functional>

#include "conv/error.h"
#include "tests/conv/layer_ops/batch_norm_lab.h"

namespace convlab {
namespace {

using namespace batch_norm_lab;

class BatchNormInParts : public LayerTest {};

// The images of each part: of two or more images, two parts or three.
std::vector<std::int64_t> uneven(std::int64_t images) {
  return images < 4 ? std::vector<std::int64_t>{1, images - 1}
                    : std::vector<std::int64_t>{images / 4, images - images / 4 - 1, 1};
}

std::vector<Values> split(const Shape4& s, const Values& all,
                          const std::vector<std::int64_t>& images) {
  std::vector<Values> parts;
  auto begin = all.begin();
  for (const std::int64_t n : images) {
    const auto end = begin + n * s.c * s.h * s.w;
    parts.emplace_back(begin, end);
    begin = end;
  }
  return parts;
}

// dx and dresidual are those of all images; dscale and dshift are the parts' sums.
struct PartsRun {
  std::vector<NormResult> forward;
  Values y;  // of all images
  NormGradients backward;
};

// Both passes over the parts of a batch. The moments of the parts are combined by Chan's formula,
// which leaves those of a single part as they are.
PartsRun run_parts(const LayerLab& lab, const NormInput& in, const Values& dy,
                   const std::vector<std::int64_t>& images) {
  using Tensor = LayerLab::Tensor;
  const LayerLab doubles = lab.in_f64();
  const auto channels = std::size_t(in.s.c);
  struct Part {
    double count;
    BatchNormDesc desc;
    Tensor x, residual, y, dy, dx, dresidual, mean, inverse, running_mean, running_variance, dscale,
        dshift;
  };
  auto scale = lab.array(in.scale), shift = lab.array(in.shift);
  const auto x = split(in.s, in.x, images), residual = split(in.s, in.residual, images),
             incoming = split(in.s, dy, images);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < images.size(); ++i) {
    BatchNormDesc desc = in.desc(lab);
    desc.x.n = images[i];
    const auto channel_array = [&] { return lab.array(in.s.c); };
    parts.push_back({double(images[i] * in.s.h * in.s.w), desc, lab.tensor(desc.x, x[i]),
                     lab.tensor(desc.x, residual[i]), lab.tensor(desc.x),
                     lab.tensor(desc.x, incoming[i]), lab.tensor(desc.x), lab.tensor(desc.x),
                     channel_array(), channel_array(), lab.array(Values(channels, 1.0)),
                     lab.array(Values(channels, 2.0)), channel_array(), channel_array()});
  }
  // f(part, pairs on the device)
  const auto pairs_of = [&](Part& part, auto f) {
    auto pairs = doubles.array(std::int64_t(2 * channels));
    const GuardedBuffer workspace = lab.workspace(part.desc.x);
    f(reinterpret_cast<double*>(pairs.data()), workspace.span());
    lab.stream().synchronize();
    EXPECT_TRUE(lab.intact(workspace));
    return pairs.values();
  };

  double count = 0;
  Values moments;
  for (Part& part : parts) {
    const Values own = pairs_of(part, [&](double* pairs, Workspace workspace) {
      lab.ops().batch_norm_moments(lab.dtype(), part.desc.x, part.x.data(), pairs, workspace,
                                   lab.stream());
    });
    if (count == 0) moments = own;
    const double both = count + part.count, share = part.count / both;
    for (std::size_t c = 0; c < channels && count > 0; ++c) {
      const double distance = own[c] - moments[c];
      double& variance = moments[channels + c];
      variance += share * (own[channels + c] - variance + (1 - share) * distance * distance);
      moments[c] += share * distance;
    }
    count = both;
  }
  const auto whole_of = [&](Tensor& pairs) {
    return WholeBatch{reinterpret_cast<double*>(pairs.data()), std::int64_t(count)};
  };
  auto all_moments = doubles.array(moments);
  const auto gradient_of = [&](Part& p) {
    return BatchNormBackward{.x = p.x.data(),
                             .y = in.residual_used && in.relu ? p.y.data() : nullptr,
                             .dy = p.dy.data(),
                             .scale = scale.data(),
                             .shift = shift.data(),
                             .mean = p.mean.data(),
                             .inverse_deviation = p.inverse.data(),
                             .dscale = p.dscale.data(),
                             .dshift = p.dshift.data()};
  };
  Values sums(2 * channels, 0.0);
  for (Part& part : parts) {
    const GuardedBuffer workspace = lab.workspace(part.desc.x);
    lab.ops().batch_norm_training(
        lab.dtype(), part.desc,
        {part.x.data(), part.residual.data(), scale.data(), shift.data(), part.y.data()},
        {0.25, part.running_mean.data(), part.running_variance.data(), part.mean.data(),
         part.inverse.data(), whole_of(all_moments)},
        workspace.span(), lab.stream());
    EXPECT_TRUE(lab.intact(workspace));
    const Values own = pairs_of(part, [&](double* pairs, Workspace scratch) {
      lab.ops().batch_norm_gradient_sums(lab.dtype(), part.desc, gradient_of(part), pairs, scratch,
                                         lab.stream());
    });
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += own[i];
  }
  auto all_sums = doubles.array(sums);
  PartsRun run;
  const auto append = [](Values& to, const Tensor& from) {
    const Values values = from.values();
    to.insert(to.end(), values.begin(), values.end());
  };
  const auto add = [](Values& to, const Tensor& from) {
    const Values values = from.values();
    to.resize(values.size());
    std::transform(to.begin(), to.end(), values.begin(), to.begin(), std::plus());
  };
  for (Part& part : parts) {
    add(run.backward.dscale, part.dscale);
    add(run.backward.dshift, part.dshift);
    BatchNormBackward io = gradient_of(part);
    io.dx = part.dx.data();
    io.dresidual = in.residual_used ? part.dresidual.data() : nullptr;
    io.dscale = io.dshift = nullptr;
    io.whole = whole_of(all_sums);
    const GuardedBuffer workspace = lab.workspace(part.desc.x);
    lab.ops().batch_norm_backward(lab.dtype(), part.desc, io, workspace.span(), lab.stream());
    EXPECT_TRUE(lab.intact(workspace));
    run.forward.push_back({part.y.values(), part.running_mean.values(),
                           part.running_variance.values(), part.mean.values(),
                           part.inverse.values()});
    append(run.y, part.y);
    append(run.backward.dx, part.dx);
    if (in.residual_used) append(run.backward.dresidual, part.dresidual);
  }
  return run;
}

TEST_F(BatchNormInParts, OnePartIsTheWholeToTheLastBit) {
  for_each_setting([](const LayerLab& lab) {
    for (const Shape4& s : shapes)
      for (const bool residual : flags)
        for (const bool relu : flags) {
          if (!tried(s)) continue;
          const NormInput in(s, residual, relu);
          const Values dy = random_values(elements(s), 7);
          const NormResult whole = train(lab, in);
          const PartsRun run = run_parts(lab, in, dy, {s.n});
          const NormResult& forward = run.forward[0];
          EXPECT_EQ(forward.y, whole.y);
          EXPECT_EQ(forward.mean, whole.mean);
          EXPECT_EQ(forward.inverse_deviation, whole.inverse_deviation);
          EXPECT_EQ(forward.running_mean, whole.running_mean);
          EXPECT_EQ(forward.running_variance, whole.running_variance);
          expect_equal(run.backward, gradients(lab, in, dy));
        }
  });
}

TEST_F(BatchNormInParts, AreNormalisedByTheWholeBatch) {
  for_each_setting([](const LayerLab& lab) {
    for (const Shape4& s : shapes)
      for (const bool residual : flags)
        for (const bool relu : flags) {
          if (s.n == 1 || !tried(s)) continue;
          const NormInput in(s, residual, relu);
          const Values dy = random_values(elements(s), 7);
          const Statistics statistics = statistics_of(in);
          const double count = double(s.n * s.h * s.w);
          const PartsRun run = run_parts(lab, in, dy, uneven(s.n));
          expect_near(run.y, normalised(in, statistics), 10 * lab.tolerance());
          for (const NormResult& part : run.forward)
            for (std::size_t c = 0; c < std::size_t(s.c); ++c) {
              EXPECT_EQ(part.mean[c], run.forward[0].mean[c]);
              EXPECT_NEAR(part.running_mean[c], 0.75 + 0.25 * statistics.mean[c], lab.tolerance());
              EXPECT_NEAR(part.running_variance[c],
                          1.5 + 0.25 * statistics.variance[c] * count / (count - 1),
                          10 * lab.tolerance());
            }
        }
  });
}

TEST_F(BatchNormInParts, BackwardIsTheGradientOfEveryInput) {
  for_each_setting([](const LayerLab& lab) {
    for (const Shape4& s : {Shape4{2, 3, 4, 5}, Shape4{3, 8, 7, 2}, Shape4{5, 37, 1, 1}}) {
      if (!tried(s)) continue;
      const auto images = uneven(s.n);
      for (const bool residual : flags)
        for (const bool relu : flags) {
          const Values none(std::size_t(elements(s)), 0.0);
          expect_gradients(
              lab, {s, residual, relu},
              [&](const LayerLab& l, const NormInput& in) {
                return run_parts(l, in, none, images).y;
              },
              [&](const LayerLab& l, const NormInput& in, const Values& dy) {
                return run_parts(l, in, dy, images).backward;
              });
        }
    }
  });
}

TEST_F(BatchNormInParts, NaNReachesItsChannelInAll) {
  for_each_setting([](const LayerLab& lab) {
    NormInput in({2, 5, 3, 7}, false, true);
    in.x[std::size_t(2 * in.s.h * in.s.w + 4)] = nan;  // channel 2 of the first image
    const PartsRun run = run_parts(lab, in, random_values(elements(in.s), 7), {1, 1});
    for_each(in.s, [&](std::size_t c, std::size_t i) {
      EXPECT_EQ(std::isnan(run.y[i]), c == 2) << c << ' ' << i;
      EXPECT_EQ(std::isnan(run.backward.dx[i]), c == 2) << c << ' ' << i;
    });
  });
}

TEST_F(BatchNormInParts, RefusesAWholeBatchSmallerThanItsPart) {
  const LayerLab lab;
  const BatchNormDesc desc{lab.desc(2, 3, 4, 5)};
  auto pairs = lab.in_f64().array(6);
  const WholeBatch whole{reinterpret_cast<double*>(pairs.data()), 39};
  EXPECT_THROW(
      lab.ops().batch_norm_training(lab.dtype(), desc, {}, {.whole = whole}, {}, lab.stream()),
      InputError);
  EXPECT_THROW(lab.ops().batch_norm_backward(lab.dtype(), desc, {.whole = whole}, {}, lab.stream()),
               InputError);
}

TEST_F(BatchNormInParts, AreTheSameForAnyNumberOfThreads) {
  for (const Layout layout : layer_backend().layouts) {
    const NormInput in(reduced() ? shapes.front() : shapes.back(), true, true);
    const Values dy = random_values(elements(in.s), 7);
    const LayerLab one(1, DType::f32, layout);
    const PartsRun expected = run_parts(one, in, dy, uneven(in.s.n));
    for (const int threads : {2, 3, 5}) {
      const PartsRun run = run_parts(one.with_threads(threads), in, dy, uneven(in.s.n));
      EXPECT_EQ(run.y, expected.y);
      expect_equal(run.backward, expected.backward);
    }
  }
}

}  // namespace
}  // namespace convlab
