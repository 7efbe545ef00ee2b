// pack_block against its definition, on every instruction set: filters of every shape, groups,
// blocks and panels that end before their lanes do, and grids with some of the taps.
#include "kernels_cpu/gemm/filter_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels_cpu/implicit_gemm/implicit_gemm.h"
#include "tests/kernels_cpu/expect_exact.h"

namespace convlab::cpu {
namespace {

class FilterBlocks : public testing::TestWithParam<std::string> {};

TEST_P(FilterBlocks, HoldTheTapsOfTheirChannelsAndColumns) {
  const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  TileShape wide = tile_shape();
  wide.cols = 3 * wide.lanes;
  for (const TileShape& shape : {tile_shape(), wide})
    for (const char* text :
         {"mb1ic37ih9oc45oh9kh3ph1", "mb1ic37ih9oc45oh5kh3sh2ph1", "mb1ic40ih9oc70oh9kh1ph0",
          "mb1ic20ih15oc20oh15kh7ph3", "g2ic96ih9oc80oh5kh5sh2ph2", "mb1ic1ih9oc1oh9kh3ph1",
          "mb1ic20ih9oc20oh5kh1sh2ph0"})
      for (const Pass pass : {Pass::forward, Pass::backward_data}) {
        ConvProblem p = parse_problem(text).problem;
        p.pass = pass;
        const bool data = pass == Pass::backward_data;
        const std::int64_t taps = p.r * p.s, c = p.c / p.groups, k = p.k / p.groups;
        std::vector<float> w(std::size_t(p.k * c * taps));  // exact size: overruns show
        std::iota(w.begin(), w.end(), 1.f);
        for (const PixelGrid& grid : data ? backward_grids(p) : forward_grids(p)) {
          const std::vector<std::int64_t> tap_of = tap_of_element(grid, taps);
          const std::int64_t group = p.groups - 1, in = data ? k : c, out = data ? c : k;
          for (std::int64_t first_in = 0; first_in < in; first_in += shape.block)
            for (std::int64_t first_out = 0; first_out < out; first_out += shape.cols) {
              const FilterBlock block{.in = first_in,
                                      .out = first_out,
                                      .channels = std::min(shape.block, in - first_in),
                                      .columns = std::min(shape.cols, out - first_out),
                                      .packed_channels = shape.block,
                                      .packed_columns = shape.panel_cols(out - first_out)};
              const std::int64_t tap_step = shape.block * block.packed_columns + shape.lanes;
              std::vector<float> packed(grid.taps.size() * std::size_t(tap_step),
                                        std::numeric_limits<float>::quiet_NaN());
              pack_block(FilterView(p, w.data(), group), block, tap_of, tap_step, packed.data());
              for (std::size_t t = 0; t < grid.taps.size(); ++t) {
                const float* const at = packed.data() + std::int64_t(t) * tap_step;
                for (std::int64_t i = 0; i < shape.block * block.packed_columns; ++i) {
                  const std::int64_t channel = i / block.packed_columns,
                                     column = i % block.packed_columns;
                  const std::int64_t of_in = first_in + channel, of_out = first_out + column;
                  const std::int64_t of_k = group * k + (data ? of_in : of_out),
                                     of_c = data ? of_out : of_in;
                  const bool real = channel < block.channels && column < block.columns;
                  ASSERT_EQ(
                      at[i],
                      real ? w[std::size_t((of_k * c + of_c) * taps) + std::size_t(grid.taps[t].rs)]
                           : 0.f)
                      << text << ' ' << to_string(pass) << ' ' << GetParam() << ": tap " << t
                      << ", in " << of_in << ", out " << of_out;
                }
                for (std::int64_t i = shape.block * block.packed_columns; i < tap_step; ++i)
                  ASSERT_TRUE(std::isnan(at[i])) << text << ": wrote beyond a tap";
              }
            }
        }
      }
}

TEST_P(FilterBlocks, HoldColumnsInFours) {
  const auto device = make_cpu_device({.threads = 1, .isa = GetParam()});
  if (tile_shape().cols < 32) GTEST_SKIP() << "QuadTile is of AVX-512";
  for (const char* text : {"mb1ic19ih9oc19oh9kh1ph0", "mb1ic19ih9oc19oh9kh3ph1"})
    for (const Pass pass : {Pass::forward, Pass::backward_data}) {
      ConvProblem p = parse_problem(text).problem;
      p.pass = pass;
      const bool data = pass == Pass::backward_data;
      const std::int64_t taps = p.r * p.s, columns = 24, channels = 20;
      std::vector<float> w(std::size_t(p.k * p.c * taps));
      std::iota(w.begin(), w.end(), 1.f);
      const PixelGrid grid = (data ? backward_grids(p) : forward_grids(p)).front();
      const FilterBlock block{.channels = 19,
                              .columns = 19,
                              .packed_channels = channels,
                              .packed_columns = columns,
                              .in_fours = true};
      std::vector<float> packed(std::size_t(taps * channels * columns),
                                std::numeric_limits<float>::quiet_NaN());
      pack_block(FilterView(p, w.data()), block, tap_of_element(grid, taps), channels * columns,
                 packed.data());
      for (std::int64_t t = 0; t < taps; ++t)
        for (std::int64_t in = 0; in < channels; ++in)
          for (std::int64_t out = 0; out < columns; ++out) {
            const std::int64_t k = data ? in : out, c = data ? out : in;
            const std::int64_t at = t * channels * columns + quad_at(columns / 4, in, out);
            ASSERT_EQ(packed[std::size_t(at)], in < 19 && out < 19
                                                   ? w[std::size_t((k * p.c + c) * taps) +
                                                       std::size_t(grid.taps[std::size_t(t)].rs)]
                                                   : 0.f)
                << text << ' ' << to_string(pass) << ": tap " << t << ", in " << in << ", out "
                << out;
          }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, FilterBlocks, testing::ValuesIn(supported_isas()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace convlab::cpu
