#include <cmath>
#include <limits>

#include "conv/error.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {
namespace {

class Pooling : public LayerTest {};

struct Case {
  std::int64_t n, c, h, w, window_h, window_w, stride_h, stride_w, pad_h, pad_w, p, q;
  std::int64_t d = 1, window_d = 1, stride_d = 1, pad_d = 0, z = 1;
};

// Four in two dimensions: rounded up beyond the padding; windows wider than the image; every output
// touching the padding; large enough for several threads. Then those with depth: a window of 64
// elements; windows deeper than x; slices that are pooled alone.
const std::vector<Case> cases{
    {2, 3, 6, 8, 2, 2, 2, 2, 0, 0, 3, 4},
    {1, 17, 7, 9, 3, 3, 2, 2, 1, 1, 4, 5},
    {2, 20, 5, 7, 3, 2, 1, 3, 1, 0, 5, 2},
    {1, 9, 9, 6, 1, 1, 2, 2, 0, 0, 5, 3},
    {2, 33, 4, 4, 4, 4, 1, 1, 0, 0, 1, 1},
    {1, 5, 1, 40, 1, 5, 1, 1, 0, 2, 1, 40},
    {2, 3, 8, 8, 3, 3, 2, 2, 0, 0, 4, 4},
    {1, 6, 2, 3, 5, 5, 1, 2, 3, 2, 4, 2},
    {1, 3, 2, 2, 5, 5, 1, 1, 4, 4, 2, 2},
    {3, 40, 23, 21, 3, 3, 2, 2, 1, 1, 12, 11},
    {2, 3, 6, 8, 2, 2, 2, 2, 0, 0, 3, 4, 4, 2, 2, 0, 2},
    {1, 17, 7, 9, 3, 3, 2, 2, 1, 1, 4, 5, 5, 3, 2, 1, 3},
    {1, 9, 4, 5, 2, 3, 1, 2, 1, 1, 5, 3, 3, 3, 1, 1, 3},
    {2, 33, 5, 6, 4, 4, 1, 1, 1, 1, 4, 5, 6, 4, 2, 1, 3},
    {1, 3, 4, 3, 2, 2, 2, 1, 0, 0, 2, 2, 2, 3, 1, 2, 4},
    {1, 5, 4, 5, 2, 2, 2, 1, 0, 0, 2, 4, 3, 1, 1, 0, 3},
};

PoolDesc pool_of(const Case& t, PoolKind kind, bool count_padding, const LayerLab& lab) {
  PoolDesc pool;
  pool.kind = kind;
  pool.x = lab.desc(t.n, t.c, t.d * t.h, t.w);
  pool.y = lab.desc(t.n, t.c, t.z * t.p, t.q);
  pool.x_depth = t.d, pool.y_depth = t.z;
  pool.window_d = t.window_d, pool.stride_d = t.stride_d, pool.pad_d = t.pad_d;
  pool.window_h = t.window_h, pool.window_w = t.window_w;
  pool.stride_h = t.stride_h, pool.stride_w = t.stride_w;
  pool.pad_h = t.pad_h, pool.pad_w = t.pad_w;
  pool.count_padding = count_padding;
  return pool;
}

struct Pooled {
  Values y;
  GuardedBuffer index;
};

Pooled forward(const LayerLab& lab, const PoolDesc& pool, const Values& values) {
  auto x = lab.tensor(pool.x, values);
  auto y = lab.tensor(pool.y);
  GuardedBuffer index = lab.bytes(std::size_t(pool.index_bytes()));
  lab.ops().pool_forward(lab.dtype(), pool, x.data(), y.data(), index.data(), lab.stream());
  EXPECT_TRUE(lab.intact(index));
  return {y.values(), std::move(index)};
}

Values backward(const LayerLab& lab, const PoolDesc& pool, const Values& x, const Values& dy) {
  const Pooled pooled = forward(lab, pool, x);
  auto gradient = lab.tensor(pool.y, dy);
  auto dx = lab.tensor(pool.x);
  lab.ops().pool_backward(lab.dtype(), pool, gradient.data(), pooled.index.data(), dx.data(),
                          lab.stream());
  return dx.values();
}

Values expected_forward(const PoolDesc& pool, const Values& x) {
  const std::int64_t depth = pool.x_depth, height = pool.x.h / depth, width = pool.x.w;
  const std::int64_t rows = pool.y.h / pool.y_depth;
  const auto output = [&](const double* plane, std::int64_t z, std::int64_t p, std::int64_t q) {
    double greatest = -std::numeric_limits<double>::infinity(), sum = 0;
    int inside = 0, all = 0;
    for (std::int64_t t = 0; t < pool.window_d; ++t)
      for (std::int64_t r = 0; r < pool.window_h; ++r)
        for (std::int64_t s = 0; s < pool.window_w; ++s, ++all) {
          const std::int64_t d = z * pool.stride_d - pool.pad_d + t;
          const std::int64_t h = p * pool.stride_h - pool.pad_h + r;
          const std::int64_t w = q * pool.stride_w - pool.pad_w + s;
          if (d < 0 || d >= depth || h < 0 || h >= height || w < 0 || w >= width) continue;
          const double value = plane[(d * height + h) * width + w];
          greatest = std::max(greatest, value);
          sum += value;
          ++inside;
        }
    const int count = pool.count_padding ? all : inside;
    return pool.kind == PoolKind::max ? greatest : sum / double(count);
  };
  Values y;
  for (std::int64_t plane = 0; plane < pool.x.n * pool.x.c; ++plane)
    for (std::int64_t z = 0; z < pool.y_depth; ++z)
      for (std::int64_t p = 0; p < rows; ++p)
        for (std::int64_t q = 0; q < pool.y.w; ++q)
          y.push_back(output(x.data() + plane * depth * height * width, z, p, q));
  return y;
}

Values input(const PoolDesc& pool) {
  return random_values(pool.x.n * pool.x.c * pool.x.h * pool.x.w, 1);
}

TEST_F(Pooling, ForwardEqualsTheNaiveLoops) {
  for_each_setting([](const LayerLab& lab) {
    for (const Case& t : cases) {
      const PoolDesc max = pool_of(t, PoolKind::max, true, lab);
      EXPECT_EQ(forward(lab, max, input(max)).y, expected_forward(max, input(max)));
      for (const bool count_padding : {true, false}) {
        const PoolDesc mean = pool_of(t, PoolKind::average, count_padding, lab);
        expect_near(forward(lab, mean, input(mean)).y, expected_forward(mean, input(mean)),
                    lab.tolerance());
      }
    }
  });
}

TEST_F(Pooling, MaximumWithoutAnIndexIsTheSame) {
  for_each_setting([](const LayerLab& lab) {
    const PoolDesc pool = pool_of(cases[1], PoolKind::max, true, lab);
    auto x = lab.tensor(pool.x, input(pool));
    auto y = lab.tensor(pool.y);
    lab.ops().pool_forward(lab.dtype(), pool, x.data(), y.data(), nullptr, lab.stream());
    EXPECT_EQ(y.values(), expected_forward(pool, input(pool)));
  });
}

TEST_F(Pooling, BackwardIsTheGradient) {
  for_each_setting([](const LayerLab& lab) {
    for (const Case& t : cases)
      for (const int kind : {0, 1, 2}) {
        const PoolDesc pool =
            pool_of(t, kind == 0 ? PoolKind::max : PoolKind::average, kind == 1, lab);
        const Values dy = random_values(t.n * t.c * t.z * t.p * t.q, 2);
        expect_backward(
            lab, input(pool), dy,
            [&](const LayerLab& l, const Values& x) { return forward(l, pool, x).y; },
            [&](const LayerLab& l, const Values& x) { return backward(l, pool, x, dy); });
      }
  });
}

// As PyTorch's with ceil_mode: what a window has beyond the padding does not count.
TEST_F(Pooling, MeansCountPaddingAndNoMore) {
  for_each_setting([](const LayerLab& lab) {
    PoolDesc pool =
        pool_of({2, 5, 5, 7, 3, 3, 2, 2, 0, 1, 2, 4, 5, 3, 2, 1, 3}, PoolKind::average, true, lab);
    pool.pad_end_d = 1, pool.pad_end_h = 0, pool.pad_end_w = 1;
    Values expected = expected_forward(pool, input(pool));
    expect_near(forward(lab, pool, input(pool)).y, expected, lab.tolerance());
    // The last window of 3 columns begins one before the end; none of its padding is counted now.
    pool.pad_end_w = 0;
    for (std::size_t i = 3; i < expected.size(); i += 4) expected[i] *= 3. / 2;
    expect_near(forward(lab, pool, input(pool)).y, expected, lab.tolerance());
    const Values dy = random_values(std::ssize(expected), 2);
    expect_backward(
        lab, input(pool), dy,
        [&](const LayerLab& l, const Values& x) { return forward(l, pool, x).y; },
        [&](const LayerLab& l, const Values& x) { return backward(l, pool, x, dy); });
  });
}

// The widest row of dx has more sums than are kept at a time.
TEST_F(Pooling, Of16BitsIsThatOfF32RoundedOnce) {
  std::vector<Case> all = cases;
  all.push_back({1, 3, 3, 1700, 3, 3, 1, 1, 1, 1, 3, 1700});
  all.push_back({1, 2100, 3, 4, 3, 3, 1, 1, 1, 1, 3, 4});
  for_each_16_bit_setting([&](DType dtype, const LayerLab& half, const LayerLab& f32) {
    for (const Case& t : all)
      for (const int kind : {0, 1, 2}) {
        const PoolDesc pool =
            pool_of(t, kind == 0 ? PoolKind::max : PoolKind::average, kind == 1, half);
        const Values x = rounded(input(pool), dtype),
                     dy = rounded(random_values(t.n * t.c * t.z * t.p * t.q, 2), dtype);
        EXPECT_EQ(forward(half, pool, x).y, rounded(forward(f32, pool, x).y, dtype));
        EXPECT_EQ(backward(half, pool, x, dy), rounded(backward(f32, pool, x, dy), dtype));
      }
  });
}

TEST_F(Pooling, OfEqualsTheFirstTakesTheGradient) {
  for_each_setting([](const LayerLab& lab) {
    const PoolDesc pool = pool_of({1, 3, 4, 4, 3, 3, 1, 1, 1, 1, 4, 4}, PoolKind::max, true, lab);
    const Values dx = backward(lab, pool, Values(3 * 16, 0.0), Values(3 * 16, 1.0));
    // The first element of a window that starts outside is on the border; that of others is one up
    // and one left of the window's middle.
    const Values first{4, 2, 2, 0, 2, 1, 1, 0, 2, 1, 1, 0, 0, 0, 0, 0};
    for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], first[i % 16]) << i;
  });
}

TEST_F(Pooling, NotANumberAndInfinityAreValuesLikeOthers) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for_each_setting([&](const LayerLab& lab) {
    const PoolDesc pool = pool_of({1, 1, 1, 6, 1, 2, 1, 2, 0, 0, 1, 3}, PoolKind::max, true, lab);
    const Values y = forward(lab, pool, {nan, 1, 1, nan, -infinity, -infinity}).y;
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], -infinity);
    EXPECT_EQ(backward(lab, pool, {nan, 1, 1, nan, -infinity, -infinity}, {1, 2, 3}),
              (Values{1, 0, 0, 2, 3, 0}));
  });
}

TEST_F(Pooling, GlobalAverageIsTheMeanOfEachChannel) {
  for_each_setting([](const LayerLab& lab) {
    const PoolDesc pool = global_average_pool(lab.desc(2, 19, 7, 7));
    expect_near(forward(lab, pool, input(pool)).y, expected_forward(pool, input(pool)),
                lab.tolerance());
  });
}

TEST_F(Pooling, RefusesWhatMakesNoSense) {
  const LayerLab lab;
  const auto refused = [&](Case t, PoolKind kind = PoolKind::max) {
    EXPECT_THROW(validate(pool_of(t, kind, true, lab)), InputError);
  };
  refused({1, 1, 4, 4, 2, 2, 0, 1, 0, 0, 2, 2});                 // stride 0
  refused({1, 1, 4, 4, 2, 2, 2, 2, 2, 0, 3, 2});                 // a window entirely above
  refused({1, 1, 4, 4, 2, 2, 2, 2, 0, 0, 3, 2});                 // a window entirely below
  refused({1, 1, 40, 40, 17, 16, 1, 1, 0, 0, 24, 25});           // 272 elements
  refused({1, 1, 9, 9, 7, 7, 1, 1, 0, 0, 3, 3, 6, 6, 1, 0, 1});  // 294 elements
  refused({1, 1, 4, 4, 2, 2, 2, 2, 0, 0, 2, 2, 4, 2, 2, 0, 3});  // a window entirely behind
  refused({1, 1, 4, 4, 2, 2, 2, 2, 0, 0, 2, 2, 4, 2, 0, 0, 1});  // stride 0 along the depth
  EXPECT_NO_THROW(
      validate(pool_of({1, 1, 40, 40, 17, 16, 1, 1, 0, 0, 24, 25}, PoolKind::average, true, lab)));
  PoolDesc pool = pool_of(cases[0], PoolKind::max, true, lab);
  pool.y.layout = Layout::nhwc;
  EXPECT_THROW(validate(pool), InputError);
  pool = pool_of(cases[0], PoolKind::max, true, lab);
  pool.x_depth = 4;  // of 6 rows
  EXPECT_THROW(validate(pool), InputError);
  if (layer_backend().has_16_bits) return;
  EXPECT_THROW(lab.ops().pool_forward(DType::bf16, pool_of(cases[0], PoolKind::max, true, lab),
                                      nullptr, nullptr, nullptr, lab.stream()),
               InputError);
}

}  // namespace
}  // namespace convlab
