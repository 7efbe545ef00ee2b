// The tile transforms against the definition, on every instruction set this CPU has.
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels_cpu/fft_codelets_test.cpp"
#include <hwy/aligned_allocator.h>
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/fft_codelets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Spectrum of lane 0 .. kLanes-1 of a tile [y][x][lane], rows at and after `rows` taken as zero:
// [point][re, im][lane], points a cache line apart.
template <int n>
std::vector<float> ForwardTile(const float* tile, int rows) {
  using Tile = fft::TileFft<n>;
  const auto scratch = hwy::AllocateAligned<float>(Tile::kScratch);
  constexpr int kStride = 3 * fft::kLanes;
  const auto spectrum = hwy::AllocateAligned<float>(Tile::kPoints * kStride);
  Tile::Forward([&](int y) { return y < rows ? tile + y * n * fft::kLanes : nullptr; }, fft::kLanes,
                scratch.get(), {spectrum.get(), kStride, fft::kLanes});
  std::vector<float> result;
  for (int p = 0; p < Tile::kPoints; ++p)
    result.insert(result.end(), spectrum.get() + p * kStride,
                  spectrum.get() + p * kStride + 2 * fft::kLanes);
  return result;
}

// The first rows of the inverse.
template <int n>
std::vector<float> InverseTile(const float* spectrum, int rows) {
  using Tile = fft::TileFft<n>;
  const auto scratch = hwy::AllocateAligned<float>(Tile::kScratch);
  std::vector<float> result;
  Tile::Inverse({spectrum, 2 * fft::kLanes, fft::kLanes}, scratch.get(), rows,
                [&](int, const float* pixels) {
                  result.insert(result.end(), pixels, pixels + n * fft::kLanes);
                });
  return result;
}

int Lanes() { return fft::kLanes; }
std::vector<float> Forward16(const float* tile, int rows) { return ForwardTile<16>(tile, rows); }
std::vector<float> Forward32(const float* tile, int rows) { return ForwardTile<32>(tile, rows); }
std::vector<float> Inverse16(const float* spectrum, int rows) {
  return InverseTile<16>(spectrum, rows);
}
std::vector<float> Inverse32(const float* spectrum, int rows) {
  return InverseTile<32>(spectrum, rows);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <random>

#include "kernels_cpu/cpu.h"

namespace convlab::cpu {
namespace {

HWY_EXPORT(Lanes);
HWY_EXPORT(Forward16);
HWY_EXPORT(Forward32);
HWY_EXPORT(Inverse16);
HWY_EXPORT(Inverse32);

class FftCodelets : public testing::TestWithParam<int> {
 protected:
  const int n = GetParam();
  // (u, v) of each point, in the order of TileFft.
  std::vector<std::pair<int, int>> points() const {
    std::vector<std::pair<int, int>> list;
    for (const int v : {0, n / 2})
      for (int u = 0; u <= n / 2; ++u) list.push_back({u, v});
    for (int v = 1; v < n / 2; ++v)
      for (int u = 0; u < n; ++u) list.push_back({u, v});
    return list;
  }
  hwy::AlignedFreeUniquePtr<float[]> random_tile(int lanes) const {
    auto tile = hwy::AllocateAligned<float>(static_cast<std::size_t>(n * n * lanes));
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::generate_n(tile.get(), n * n * lanes, [&] { return normal(random); });
    return tile;
  }
  std::vector<float> forward(const float* tile, int rows) const {
    return n == 16 ? HWY_DYNAMIC_DISPATCH(Forward16)(tile, rows)
                   : HWY_DYNAMIC_DISPATCH(Forward32)(tile, rows);
  }
  std::vector<float> inverse(const float* spectrum, int rows) const {
    return n == 16 ? HWY_DYNAMIC_DISPATCH(Inverse16)(spectrum, rows)
                   : HWY_DYNAMIC_DISPATCH(Inverse32)(spectrum, rows);
  }
};

TEST_P(FftCodelets, ForwardIsTheDefinition) {
  for (const std::string& isa : supported_isas())
    for (const int rows : {n, 5}) {
      make_cpu_device({1, isa});
      const int lanes = HWY_DYNAMIC_DISPATCH(Lanes)();
      const auto tile = random_tile(lanes);
      const std::vector<float> spectrum = forward(tile.get(), rows);
      const auto list = points();
      ASSERT_EQ(spectrum.size(), list.size() * 2 * static_cast<std::size_t>(lanes));
      double error = 0;
      for (std::size_t p = 0; p < list.size(); ++p)
        for (int lane = 0; lane < lanes; ++lane) {
          std::complex<double> expected = 0;
          for (int y = 0; y < rows; ++y)
            for (int x = 0; x < n; ++x)
              expected += double(tile[static_cast<std::size_t>((y * n + x) * lanes + lane)]) *
                          std::polar(1.0, -2 * M_PI * (list[p].first * y + list[p].second * x) / n);
          const float* const at = spectrum.data() + p * 2 * lanes + lane;
          error = std::max(error, std::abs(expected - std::complex<double>(at[0], at[lanes])));
        }
      // |F| is about n; single precision keeps some 1e-7 of it at each of log2(n^2) stages.
      EXPECT_LT(error, 1e-6 * n) << isa << ", " << rows << " rows";
    }
}

TEST_P(FftCodelets, InverseOfForwardIsTheTile) {
  for (const std::string& isa : supported_isas()) {
    make_cpu_device({1, isa});
    const int lanes = HWY_DYNAMIC_DISPATCH(Lanes)();
    const auto tile = random_tile(lanes);
    const std::vector<float> unaligned = forward(tile.get(), n);
    const auto spectrum = hwy::AllocateAligned<float>(unaligned.size());
    std::copy(unaligned.begin(), unaligned.end(), spectrum.get());
    const std::vector<float> back = inverse(spectrum.get(), n - 1);
    ASSERT_EQ(back.size(), static_cast<std::size_t>((n - 1) * n * lanes));
    double error = 0;
    for (std::size_t i = 0; i < back.size(); ++i)
      error = std::max(error, std::abs(double(back[i]) / (n * n) - double(tile[i])));
    EXPECT_LT(error, 2e-6) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiles, FftCodelets, testing::Values(16, 32));

}  // namespace
}  // namespace convlab::cpu
#endif  // HWY_ONCE
