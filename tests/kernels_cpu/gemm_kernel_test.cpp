// The microkernel alone, on every instruction set this CPU has. Small integers make every sum
// exact, so results are compared with ==. Buffers have exactly the size the kernel may read.
#include <array>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels_cpu/gemm_kernel_test.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Computes a rows x kTileCols product and returns C, row by row.
template <int kGroup>
std::vector<float> TiledProduct(const std::vector<float>& a, std::int64_t rows,
                                std::int64_t row_stride, std::int64_t group_stride,
                                std::int64_t groups, const std::vector<float>& b, PanelB panel_b) {
  std::vector<float> c(static_cast<std::size_t>(rows * kTileCols), -1.f);
  panel_b.data = b.data();
  ForEachTile(rows, [&](auto n, std::int64_t first) HWY_ATTR {
    Tile<n.value> tile;
    tile.SetZero();
    tile.template MultiplyAdd<kGroup>({a.data() + first * row_stride, row_stride, group_stride},
                                      panel_b, groups);
    tile.ForEach([&](int i, int j, Vec& v) HWY_ATTR {
      hn::StoreU(v, F32(), c.data() + (first + i) * kTileCols + j * kLanes);
    });
  });
  return c;
}

std::vector<float> PixelRows(const std::vector<float>& a, std::int64_t rows, std::int64_t groups,
                             const std::vector<float>& b) {
  return TiledProduct<kBlock>(a, rows, kBlock, rows * kBlock, groups, b, {});
}

// Rows are channels, depth runs over pixels. B is two blocks of another tensor, read in place.
std::vector<float> ChannelRows(const std::vector<float>& a, std::int64_t rows, std::int64_t pixels,
                               const std::vector<float>& b) {
  return TiledProduct<1>(a, rows, 1, kBlock, pixels, b, {nullptr, kLanes, pixels * kLanes});
}

// Lanes, channel block, rows and columns of the full tile.
std::array<int, 4> TileShape() { return {kLanes, kBlock, kTileRows, kTileCols}; }

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <random>
#include <tuple>

namespace convlab::cpu {
namespace {

HWY_EXPORT(PixelRows);
HWY_EXPORT(ChannelRows);
HWY_EXPORT(TileShape);

std::vector<float> SmallIntegers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> v(static_cast<std::size_t>(count));
  for (float& x : v) x = static_cast<float>(static_cast<int>(random() % 15) - 7);
  return v;
}

class GemmKernel : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    std::tie(lanes, block, tile_rows, cols) = std::tuple_cat(HWY_DYNAMIC_DISPATCH(TileShape)());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  int lanes, block, tile_rows, cols;
};

TEST_P(GemmKernel, RunsOnTheTargetAskedFor) {
  EXPECT_EQ(lanes, GetParam() == HWY_AVX3 ? 16 : GetParam() == HWY_AVX2 ? 8 : 4);
}

TEST_P(GemmKernel, PixelsTimesFilters) {
  for (const int groups : {0, 1, 3})
    for (int rows = 1; rows <= 2 * tile_rows + 1; ++rows) {
      const auto a = SmallIntegers(groups * rows * block, 1);
      const auto b = SmallIntegers(groups * block * cols, 2);
      const auto c = HWY_DYNAMIC_DISPATCH(PixelRows)(a, rows, groups, b);
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < cols; ++j) {
          float sum = 0;
          for (int d = 0; d < groups * block; ++d)
            sum += a[(d / block * rows + i) * block + d % block] * b[d * cols + j];
          ASSERT_EQ(c[i * cols + j], sum) << "rows " << rows << " at " << i << "," << j;
        }
    }
}

TEST_P(GemmKernel, ChannelsTimesGradients) {
  const int pixels = 5;
  for (int rows = 1; rows <= block; ++rows) {
    const auto a = SmallIntegers(pixels * block, 3);
    const auto b = SmallIntegers(pixels * cols, 4);
    const auto c = HWY_DYNAMIC_DISPATCH(ChannelRows)(a, rows, pixels, b);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) {
        float sum = 0;
        for (int d = 0; d < pixels; ++d)
          sum += a[d * block + i] * b[(j / lanes * pixels + d) * lanes + j % lanes];
        ASSERT_EQ(c[i * cols + j], sum) << "rows " << rows << " at " << i << "," << j;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, GemmKernel,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace convlab::cpu
#endif  // HWY_ONCE
