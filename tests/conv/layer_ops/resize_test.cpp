// Other sizes of images, and another order of channels.
#include <cmath>

#include "conv/error.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {
namespace {

class Resizing : public LayerTest {};
class Shuffling : public LayerTest {};

// Doubled, enlarged by no whole factor, shrunk, unchanged in one direction, from one pixel, wider
// than the columns that are handled at a time, and large enough for several threads.
struct Case {
  std::int64_t n, c, h, w, p, q;
};
const std::vector<Case> cases{{2, 3, 4, 5, 8, 10},    {1, 17, 5, 7, 13, 9}, {2, 5, 9, 11, 4, 3},
                              {1, 4, 6, 5, 6, 12},    {1, 20, 1, 1, 3, 4},  {1, 2, 3, 70, 4, 301},
                              {2, 33, 12, 10, 24, 21}};

ResizeDesc resize_of(const Case& t, ResizeKind kind, const LayerLab& lab) {
  return {kind, lab.desc(t.n, t.c, t.h, t.w), lab.desc(t.n, t.c, t.p, t.q)};
}
Values input(const Case& t) { return random_values(t.n * t.c * t.h * t.w, 1); }

Values forward(const LayerLab& lab, const ResizeDesc& resize, const Values& values) {
  auto x = lab.tensor(resize.x, values), y = lab.tensor(resize.y);
  lab.ops().resize_forward(lab.dtype(), resize, x.data(), y.data(), lab.stream());
  return y.values();
}
Values backward(const LayerLab& lab, const ResizeDesc& resize, const Values& values) {
  auto dy = lab.tensor(resize.y, values), dx = lab.tensor(resize.x);
  lab.ops().resize_backward(lab.dtype(), resize, dy.data(), dx.data(), lab.stream());
  return dx.values();
}

// The share of each of `size` elements in output i of `outputs`.
Values shares(ResizeKind kind, std::int64_t size, std::int64_t i, std::int64_t outputs) {
  Values share(std::size_t(size), 0.0);
  if (kind == ResizeKind::nearest) {
    share[std::size_t(i * size / outputs)] = 1;
    return share;
  }
  const double at =
      std::clamp((double(i) + 0.5) * double(size) / double(outputs) - 0.5, 0.0, double(size - 1));
  for (std::int64_t j = 0; j < size; ++j)
    share[std::size_t(j)] = std::max(0.0, 1 - std::abs(at - double(j)));
  return share;
}

Values expected_forward(const Case& t, ResizeKind kind, const Values& x) {
  Values y;
  for (std::int64_t plane = 0; plane < t.n * t.c; ++plane)
    for (std::int64_t p = 0; p < t.p; ++p) {
      const Values rows = shares(kind, t.h, p, t.p);
      for (std::int64_t q = 0; q < t.q; ++q) {
        const Values columns = shares(kind, t.w, q, t.q);
        double sum = 0;
        for (std::int64_t h = 0; h < t.h; ++h)
          for (std::int64_t w = 0; w < t.w; ++w)
            sum += rows[std::size_t(h)] * columns[std::size_t(w)] *
                   x[std::size_t((plane * t.h + h) * t.w + w)];
        y.push_back(sum);
      }
    }
  return y;
}

TEST_F(Resizing, ForwardInterpolatesWithinEachPlane) {
  for_each_setting([](const LayerLab& lab) {
    for (const Case& t : cases)
      for (const ResizeKind kind : {ResizeKind::nearest, ResizeKind::bilinear})
        expect_near(forward(lab, resize_of(t, kind, lab), input(t)),
                    expected_forward(t, kind, input(t)), lab.tolerance());
  });
}

TEST_F(Resizing, BackwardIsTheGradient) {
  for_each_setting([](const LayerLab& lab) {
    for (const Case& t : cases)
      for (const ResizeKind kind : {ResizeKind::nearest, ResizeKind::bilinear}) {
        const Values dy = random_values(t.n * t.c * t.p * t.q, 2);
        expect_backward(
            lab, input(t), dy,
            [&](const LayerLab& l, const Values& x) {
              return forward(l, resize_of(t, kind, l), x);
            },
            [&](const LayerLab& l, const Values&) {
              return backward(l, resize_of(t, kind, l), dy);
            });
      }
  });
}

// The widest rows of dx have more sums than are kept at a time.
TEST_F(Resizing, Of16BitsIsThatOfF32RoundedOnce) {
  std::vector<Case> all = cases;
  all.push_back({1, 2, 2, 1500, 3, 2900});
  all.push_back({1, 2100, 3, 3, 5, 4});
  for_each_16_bit_setting([&](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const Case& t : all)
      for (const ResizeKind kind : {ResizeKind::nearest, ResizeKind::bilinear}) {
        const ResizeDesc resize = resize_of(t, kind, half);
        const Values x = rounded(input(t), dtype),
                     dy = rounded(random_values(t.n * t.c * t.p * t.q, 2), dtype);
        EXPECT_EQ(forward(half, resize, x), rounded(forward(f32, resize, x), dtype));
        EXPECT_EQ(backward(half, resize, dy), rounded(backward(f32, resize, dy), dtype));
      }
  });
}

// Nearest copies: an infinity beside an element does not touch it.
TEST_F(Resizing, NearestTakesNothingFromNeighbours) {
  const double infinity = std::numeric_limits<double>::infinity();
  for_each_setting([&](const LayerLab& lab) {
    const ResizeDesc resize = resize_of({1, 1, 1, 2, 1, 4}, ResizeKind::nearest, lab);
    EXPECT_EQ(forward(lab, resize, {1, infinity}), (Values{1, 1, infinity, infinity}));
    EXPECT_EQ(backward(lab, resize, {1, 2, infinity, 4}), (Values{3, infinity}));
  });
}

TEST_F(Resizing, RefusesWhatMakesNoSense) {
  const LayerLab lab;
  ResizeDesc resize = resize_of(cases[0], ResizeKind::bilinear, lab);
  EXPECT_NO_THROW(validate(resize));
  resize.y.c = 4;
  EXPECT_THROW(validate(resize), InputError);
  resize.y.c = 3, resize.y.h = 0;
  EXPECT_THROW(validate(resize), InputError);
  resize.y.h = 8, resize.y.layout = Layout::nhwc;
  EXPECT_THROW(validate(resize), InputError);
}

TEST_F(Shuffling, Moves16Bits) {
  for_each_16_bit_setting([](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const auto& [c, groups] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {116, 2}, {116, 58}, {40, 8}, {35, 5}}) {
      const TensorDesc desc = half.desc(2, c, 3, 3);
      const Values x = rounded(random_values(2 * c * 9, 1), dtype);
      const auto run = [&, by = groups](const LayerLab& lab) {
        auto from = lab.tensor(desc, x), to = lab.tensor(desc);
        lab.ops().shuffle_channels(lab.dtype(), desc, by, from.data(), to.data(), lab.stream());
        return to.values();
      };
      EXPECT_EQ(run(half), run(f32));
    }
  });
}

TEST_F(Shuffling, TransposesGroupsAndTheirChannels) {
  for_each_setting([](const LayerLab& lab) {
    for (const auto& [c, groups] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {6, 2}, {6, 3}, {116, 2}, {116, 58}, {40, 8}, {35, 5}, {7, 1}, {7, 7}})
      for (const std::int64_t pixels : {1, 9}) {
        const TensorDesc desc = lab.desc(2, c, pixels, 1);
        const Values x = random_values(2 * c * pixels, 1);
        auto from = lab.tensor(desc, x), to = lab.tensor(desc), back = lab.tensor(desc);
        lab.ops().shuffle_channels(lab.dtype(), desc, groups, from.data(), to.data(), lab.stream());
        lab.ops().shuffle_channels(lab.dtype(), desc, c / groups, to.data(), back.data(),
                                   lab.stream());
        EXPECT_EQ(back.values(), x) << c << " in " << groups;
        Values expected(x.size());
        const std::int64_t each = c / groups;
        for (std::int64_t n = 0; n < 2; ++n)
          for (std::int64_t g = 0; g < groups; ++g)
            for (std::int64_t i = 0; i < each; ++i)
              for (std::int64_t p = 0; p < pixels; ++p)
                expected[std::size_t((n * c + i * groups + g) * pixels + p)] =
                    x[std::size_t((n * c + g * each + i) * pixels + p)];
        EXPECT_EQ(to.values(), expected) << c << " in " << groups;
      }
  });
  const LayerLab lab;
  EXPECT_THROW(lab.ops().shuffle_channels(lab.dtype(), lab.desc(1, 6, 1, 1), 4, nullptr, nullptr,
                                          lab.stream()),
               InputError);
}

}  // namespace
}  // namespace convlab
