// Products of packed panels on small integers, whose sums are exact: every width of panel, both
// orders of either factor, tails, parts, and shares of threads.
#include "kernels_cpu/gemm/panels.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels_cpu/cpu.h"
#include "kernels_cpu/gemm/tile_shape.h"

namespace convlab::cpu {
namespace {

template <class T>
constexpr DType dtype_of = sizeof(T) == 8 ? DType::f64 : DType::f32;

template <class T>
std::vector<T> integers(std::int64_t count, std::mt19937& random) {
  std::vector<T> v(static_cast<std::size_t>(count));
  for (T& e : v) e = T(int(random() % 7) - 3);
  return v;
}

struct Case {
  std::int64_t rows, depth, columns, parts, vectors;
  bool transposed_a, transposed_b, add;
};

template <class T>
void expect_product(const Case& c, const std::string& isa) {
  std::mt19937 random(3);
  PanelShape shape{dtype_of<T>, c.depth,   c.columns,
                   c.parts,     c.vectors, c.vectors * tile_shape(dtype_of<T>).lanes};
  const std::int64_t c_step = c.parts * c.columns + 3;
  const auto a = integers<T>(c.rows * c.depth, random);
  const auto b = integers<T>(c.parts * c.depth * c.columns, random);  // part by part
  const auto before = integers<T>(c.rows * c_step, random);
  PanelSource source{b.data(), c.transposed_b ? 1 : c.columns, c.transposed_b ? c.depth : 1,
                     c.depth * c.columns};
  // Packed in two halves of depth, without a line to spare.
  std::vector<T> packed(std::size_t(shape.elements()), T(99)), result = before;
  const std::int64_t half = c.depth / 2;
  pack_panels(shape, source, {0, shape.panels()}, {0, half}, packed.data());
  source.data = b.data() + half * source.depth_step;
  pack_panels(shape, source, {0, shape.panels()}, {half, c.depth}, packed.data());

  PanelProduct product{.a = a.data(),
                       .row_step = c.transposed_a ? 1 : c.depth,
                       .depth_step = c.transposed_a ? c.rows : 1,
                       .b = packed.data(),
                       .c = result.data(),
                       .c_step = c_step,
                       .part_step = c.columns,
                       .add = c.add};
  std::vector<T> copied(c.transposed_a ? std::size_t(copied_a_bytes(shape)) / sizeof(T) : 0);
  product.copied_a = copied.data();
  for (int thread = 0; thread < 3; ++thread) multiply_share(shape, product, c.rows, thread, 3);

  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t at = 0; at < c_step; ++at) {
      const std::int64_t part = at / c.columns, column = at % c.columns;
      T expected = before[std::size_t(i * c_step + at)];
      if (part < c.parts) {
        T sum = c.add ? expected : T(0);
        for (std::int64_t d = 0; d < c.depth; ++d)
          sum += a[std::size_t(c.transposed_a ? d * c.rows + i : i * c.depth + d)] *
                 b[std::size_t(part * c.depth * c.columns +
                               (c.transposed_b ? column * c.depth + d : d * c.columns + column))];
        expected = sum;
      }
      ASSERT_EQ(result[std::size_t(i * c_step + at)], expected)
          << isa << " row " << i << " column " << at << " of " << c.rows << 'x' << c.depth << 'x'
          << c.columns << 'x' << c.parts << " vectors " << c.vectors << " transposed "
          << c.transposed_a << c.transposed_b << " add " << c.add;
    }
}

TEST(Panels, MultiplyEveryShape) {
  for (const std::string& isa : supported_isas()) {
    const auto device = make_cpu_device({.threads = 1, .isa = isa});
    for (const std::int64_t vectors : {2, 4, 8})
      for (const auto& [rows, depth, columns, parts] : {std::tuple<int, int, int, int>{1, 1, 1, 1},
                                                        {2, 7, 33, 3},
                                                        {5, 40, 70, 1},
                                                        {13, 33, 16, 4},
                                                        {29, 5, 129, 2},
                                                        {3, 1000, 40, 1},
                                                        {200, 12, 9, 1}})
        for (int flags = 0; flags < 8; ++flags) {
          const Case c{rows,    depth,           columns,         parts,
                       vectors, bool(flags & 1), bool(flags & 2), bool(flags & 4)};
          expect_product<float>(c, isa);
          expect_product<double>(c, isa);
        }
  }
}

// The sums of two chunks of depth commute, so that threads may begin with either: to the bit.
TEST(Panels, SumTwoChunksInEitherOrder) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const std::string& isa : supported_isas()) {
    const auto device = make_cpu_device({.threads = 1, .isa = isa});
    constexpr std::int64_t rows = 3, depth = 41, columns = 70;
    PanelShape shape = panel_shape(DType::f32, rows, depth, columns, 1, 1);
    EXPECT_EQ(shape.chunks(), 1);
    shape.least_chunks = 2;
    ASSERT_EQ(shape.chunks(), 2);
    std::vector<float> a(rows * depth), b(depth * columns), packed(std::size_t(shape.elements()));
    for (std::vector<float>* v : {&a, &b})
      for (float& e : *v) e = normal(random);
    pack_panels(shape, {b.data(), columns, 1, 0}, {0, shape.panels()}, {0, depth}, packed.data());
    const Range all_rows{0, rows}, panels{0, shape.panels()};
    std::vector<float> at_once(rows * columns), in_turn(rows * columns, 99);
    PanelProduct product{.a = a.data(), .row_step = depth, .b = packed.data(), .c_step = columns};
    product.c = at_once.data();
    multiply_panels(shape, product, all_rows, panels);
    product.c = in_turn.data();
    multiply_panels(shape, product, all_rows, panels, {1, 2});
    product.add = true;
    multiply_panels(shape, product, all_rows, panels, {0, 1});
    EXPECT_TRUE(in_turn == at_once) << isa;
  }
}

TEST(Panels, WidenForFewRows) {
  const auto device = make_cpu_device({.threads = 1, .isa = supported_isas().back()});
  const std::int64_t lanes = tile_shape().lanes;
  EXPECT_EQ(panel_shape(DType::f32, 1, 64, 64 * lanes, 1, 2).vectors, 8);
  EXPECT_EQ(panel_shape(DType::f32, 100, 64, 64 * lanes, 1, 2).vectors, 2);
  // Eight threads share 32 vectors.
  EXPECT_EQ(panel_shape(DType::f32, 1, 64, 32 * lanes, 1, 8).vectors, 4);
  EXPECT_EQ(panel_shape(DType::f32, 1, 64, 64 * lanes, 1, 2, 4).vectors, 4);
}

}  // namespace
}  // namespace convlab::cpu
