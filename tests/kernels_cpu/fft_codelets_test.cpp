// The tile transforms against the definition, on every instruction set this CPU has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels_cpu/cpu.h"
#include "kernels_cpu/fft_tiled/depthwise.h"
#include "kernels_cpu/fft_tiled/tiles.h"

namespace convlab::cpu {
namespace {

constexpr std::int64_t cache_line = 64;

// Floats on a cache line, NaN until written.
class Floats {
 public:
  explicit Floats(std::int64_t count)
      : storage_(std::size_t(count) + cache_line / sizeof(float),
                 std::numeric_limits<float>::quiet_NaN()) {
    void* at = storage_.data();
    std::size_t space = storage_.size() * sizeof(float);
    data_ =
        static_cast<float*>(std::align(cache_line, std::size_t(count) * sizeof(float), at, space));
    count_ = std::size_t(count);
  }
  float* data() { return data_; }
  std::span<float> span() { return {data_, count_}; }
  float operator[](std::int64_t i) const { return data_[i]; }

 private:
  std::vector<float> storage_;
  float* data_;
  std::size_t count_;
};

class FftCodelets : public testing::TestWithParam<int> {
 protected:
  const int n = GetParam();

  // The kernels of the selected instruction set, and their channel block.
  struct Kernels {
    const TileKernels& tile;
    std::int64_t block;
    std::int64_t stride() const { return 3 * block; }  // of a point: re, im, and a gap
  };
  Kernels kernels(const std::string& isa) const {
    const auto device = make_cpu_device({1, isa});
    return {n > fft_tile_sides.back() ? large_fft_tile_kernels(n) : fft_tile_kernels(n),
            std::max<std::int64_t>(8, device->info().vector_bytes / 4)};
  }

  // (u, v) of each point, in the order of TileFft.
  std::vector<std::pair<int, int>> points() const {
    std::vector<std::pair<int, int>> list;
    for (const int v : {0, n / 2})
      for (int u = 0; u <= n / 2; ++u) list.push_back({u, v});
    for (int v = 1; v < n / 2; ++v)
      for (int u = 0; u < n; ++u) list.push_back({u, v});
    return list;
  }
  std::complex<double> root(int k) const { return roots_[std::size_t(k % n)]; }
  // A plane of one tile, [y][x][lane].
  Floats random_tile(std::int64_t block) const {
    Floats tile(n * n * block);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::generate(tile.span().begin(), tile.span().end(), [&] { return normal(random); });
    return tile;
  }
  Floats forward(const Kernels& k, Floats& tile, int rows) const {
    Floats spectrum(k.tile.points * k.stride()), scratch(k.tile.scratch);
    k.tile.forward({tile.data(), {n, n, 0, 0, rows, n}}, nullptr, scratch.data(),
                   {spectrum.data(), k.stride()});
    return spectrum;
  }
  // The first `rows` rows of the inverse.
  Floats inverse(const Kernels& k, Floats& spectrum, int rows) const {
    Floats tile(rows * n * k.block), scratch(k.tile.scratch);
    k.tile.inverse({spectrum.data(), k.stride()}, scratch.data(), {.out = tile.data()},
                   {rows, n, 0, 0, rows, n});
    return tile;
  }

 private:
  std::vector<std::complex<double>> roots_ = [this] {  // exp(-2 pi i k / n)
    std::vector<std::complex<double>> roots;
    for (int k = 0; k < n; ++k) roots.push_back(std::polar(1.0, -2 * M_PI * k / n));
    return roots;
  }();
};

TEST_P(FftCodelets, ForwardIsTheDefinition) {
  const auto list = points();
  for (const std::string& isa : supported_isas())
    for (const int rows : {n, 5}) {
      const Kernels k = kernels(isa);
      Floats tile = random_tile(k.block);
      const Floats spectrum = forward(k, tile, rows);
      ASSERT_EQ(k.tile.points, std::int64_t(list.size()));
      for (std::int64_t lane = 0; lane < k.block; ++lane) {
        std::vector<std::complex<double>> by_row(std::size_t(rows * n));  // the sum over x, [y][v]
        for (int y = 0; y < rows; ++y)
          for (int v = 0; v <= n / 2; ++v)
            for (int x = 0; x < n; ++x)
              by_row[std::size_t(y * n + v)] +=
                  double(tile[(y * n + x) * k.block + lane]) * root(v * x);
        for (std::size_t p = 0; p < list.size(); ++p) {
          const auto [u, v] = list[p];
          std::complex<double> expected = 0;
          for (int y = 0; y < rows; ++y) expected += by_row[std::size_t(y * n + v)] * root(u * y);
          const std::int64_t at = std::int64_t(p) * k.stride() + lane;
          const std::complex<double> actual(spectrum[at], spectrum[at + k.block]);
          // F| is about n; single precision loses about 1e-7 of it at each of log2(n^2) stages.
          ASSERT_LT(std::abs(expected - actual), 1e-6 * n) << isa << ", " << rows << " rows";
        }
      }
    }
}

TEST_P(FftCodelets, InverseOfForwardIsTheTile) {
  for (const std::string& isa : supported_isas()) {
    const Kernels k = kernels(isa);
    Floats tile = random_tile(k.block);
    Floats spectrum = forward(k, tile, n);
    const int rows = n - 1;
    const Floats back = inverse(k, spectrum, rows);
    for (std::int64_t i = 0; i < rows * n * k.block; ++i)
      ASSERT_LT(std::abs(double(back[i]) / (n * n) - double(tile[i])), 2e-6) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiles, FftCodelets, testing::Values(16, 32, 40, 48, 64, 80));

}  // namespace
}  // namespace convlab::cpu
