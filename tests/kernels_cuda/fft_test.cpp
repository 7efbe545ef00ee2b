// Convolution by Fourier transforms on CUDA, beyond the test over the registry: grid sizes, wrapped
// padding, ragged chunks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <complex>
#include <numbers>
#include <random>

#include "conv/types/math_type.h"
#include "kernels_cuda/fft_tiled/codelets.h"
#include "kernels_cuda/on_cpu/access_counts.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/problems.h"

namespace convlab {
namespace {

// Rounding grows with the logarithm of the transform's length: close to plain summation.
double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-14 : 4e-6; }

struct Case {
  DType dtype = DType::f32;
  Layout x_layout = Layout::nchw, y_layout = Layout::nchw;
  std::vector<Config> configs = {};  // empty: the algorithm's own, without TF32
};

// Every pass of a problem against the reference.
void expect_right(const std::string& id, const std::string& text, const Case& how) {
  const ConvAlgo& algo = cuda_algo(id);
  const auto device = make_cuda_device();
  const auto stream = device->make_stream();
  for (const Pass pass : all_passes) {
    ConvProblem p = problem(text, pass, how.x_layout, how.dtype);
    p.y_layout = how.y_layout;
    if (pass == Pass::forward)
      p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
    p.accumulate = pass != Pass::forward;
    const auto refusal = algo.refuse(p, *device);
    ASSERT_FALSE(refusal) << text << ": " << refusal->reason();
    const ReferenceCase reference(p, 7);
    for (const Config& config : how.configs.empty() ? algo.configs(p, *device) : how.configs) {
      if (math_type(config) == MathType::tf32) continue;
      const auto verdict =
          check_candidate(algo, p, config, reference, *device, *stream, tolerance(how.dtype));
      EXPECT_EQ(verdict.status, Status::ok)
          << fmt::format("{} {} {} {} {}>{}: {}", id, config.text(), to_string(pass), text,
                         to_string(how.x_layout), to_string(how.y_layout), verdict.reason);
    }
  }
}

TEST(CudaFft, WrapsPaddingAroundTheGrid) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const char* text : {
             "mb3ic5ih27oc7kh5ph2",           // 29 rows on a grid of 30
             "mb1ic2ih1oc3kh3ph1",            // one pixel, filter larger than the image
             "mb1ic1ih1oc1kh1",               // nothing but a product
             "mb2ic3ih13iw9oc4kh3kw5ph0pw4",  // different in both directions
             "mb1ic3ih7oc2oh7kh4ph1",         // even filter: padding 1 above, 2 below
             "mb1ic3ih21oc2kh11ph10",         // fully padded
         })
      expect_right("fft", text, {.dtype = dtype});
}

TEST(CudaFft, CrossesBlocksOfChannelsAndPixelsInEveryLayout) {
  for (const Layout x : {Layout::nchw, Layout::nhwc})
    for (const Layout y : {Layout::nchw, Layout::nhwc})
      expect_right("fft", "mb2ic35ih9iw7oc37kh3ph1", {.x_layout = x, .y_layout = y});
}

TEST(CudaFft, FillsUpTheLastChunk) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    expect_right("fft", "mb5ic3ih6oc7kh3ph1",
                 {.x_layout = layout,
                  .y_layout = layout,
                  .configs = {{{"images", 2}, {"filters", 7}, {"math", "f32"}},
                              {{"images", 5}, {"filters", 3}, {"math", "f32"}},
                              {{"images", 3}, {"filters", 4}, {"math", "f32"}}}});
}

// Both tile sizes (or only the larger), both products, and both math types with f32's accuracy,
// with a few tiles at a time.
std::vector<Config> tiled(std::int64_t tiles, bool small = true) {
  std::vector<Config> configs;
  for (const std::int64_t tile : {16, 32})
    for (const char* product : {"gauss", "complex"})
      for (const char* math : {"f32", "tf32x3"})
        if (tile == 32 || small)
          configs.push_back(
              {{"tile", tile}, {"product", product}, {"tiles", tiles}, {"math", math}});
  return configs;
}

// Each output against its defining sum.
template <int n>
void expect_transforms() {
  std::mt19937 random(n);
  std::normal_distribution<float> normal;
  std::vector<std::complex<double>> in(n);
  cuda::Complex<float> forward[n], inverse[n];
  for (int j = 0; j < n; ++j) {
    forward[j] = inverse[j] = {normal(random), normal(random)};
    in[std::size_t(j)] = {forward[j].re, forward[j].im};
  }
  cuda::forward_transform(forward);
  cuda::inverse_transform(inverse);
  for (int k = 0; k < n; ++k) {
    std::complex<double> down, up;
    for (int j = 0; j < n; ++j) {
      const double angle = 2 * std::numbers::pi * j * k / n;
      down += in[std::size_t(j)] * std::polar(1.0, -angle);
      up += in[std::size_t(j)] * std::polar(1.0, angle);
    }
    EXPECT_LT(std::abs(down - std::complex<double>(forward[k].re, forward[k].im)), 4e-6) << k;
    EXPECT_LT(std::abs(up - std::complex<double>(inverse[k].re, inverse[k].im)), 4e-6) << k;
  }
}

TEST(CudaFftCodelets, AreTheDefinition) {
  expect_transforms<16>();
  expect_transforms<32>();
}

// Spectra must also be read and written in whole sectors; images need not be sector-aligned.
void expect_no_conflicts(const std::string& id, const Config& config, Layout layout) {
  const auto device = make_cuda_device();
  const auto stream = device->make_stream();
  const ConvProblem p = problem("mb1ic32ih14oc32kh3ph1", Pass::forward, layout);
  const ReferenceCase reference(p, 3);
  const auto counts = on_cpu::count_accesses([&] {
    check_candidate(cuda_algo(id), p, config, reference, *device, *stream, tolerance(p.dtype));
  });
  int shared = 0, spectra = 0;
  for (const on_cpu::AccessCount& count : counts) {
    const bool is_shared = count.kind == on_cpu::AccessKind::shared_load ||
                           count.kind == on_cpu::AccessKind::shared_store;
    const bool is_spectrum = !is_shared && count.bytes == sizeof(cuda::Complex<float>);
    shared += is_shared, spectra += is_spectrum;
    if (!is_shared && !is_spectrum) continue;
    EXPECT_EQ(count.transactions, count.least)
        << id << ' ' << to_string(layout) << ' ' << config.text() << ' ' << count.site.file << ':'
        << count.site.line;
  }
  EXPECT_GE(shared, 2);
  EXPECT_TRUE(spectra > 0 || config.choice("product") == "gauss");
}

TEST(CudaFft, HasNoBankConflicts) {
  if (reduced()) GTEST_SKIP() << "sanitizers see nothing in counts, and slow them down";
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    expect_no_conflicts("fft", {{"images", 1}, {"filters", 32}, {"math", "f32"}}, layout);
}

// At most five areas of 256 MB, and packed filters of no more, although all spectra would take 4
// GB.
TEST(CudaFft, KeepsSpectraWithinBounds) {
  const auto device = make_cuda_device();
  for (const Pass pass : all_passes) {
    const ConvProblem p = problem("mb128ic128ih224oc128kh3ph1", pass);
    const Config config = cuda_algo("fft").configs(p, *device).front();
    EXPECT_LT(config.get("filters"), 128);
    const auto plan = cuda_algo("fft").plan(p, config, *device);
    EXPECT_LE(plan->workspace_bytes() + plan->packed_filter_bytes(), 6 * 256e6);
    EXPECT_GE(plan->workspace_bytes(), 256e6);
  }
}

TEST(CudaFftTiled, HasNoBankConflicts) {
  if (reduced()) GTEST_SKIP() << "sanitizers see nothing in counts, and slow them down";
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    for (const Config& config : tiled(4))
      if (config.choice("math") == "f32") expect_no_conflicts("fft_tiled", config, layout);
}

TEST(CudaFftTiled, TakesEveryFilterSize) {
  for (const int size : {1, 2, 3, 5, 6, 9, 11, 17})
    expect_right("fft_tiled", fmt::format("mb1ic2ih19oc3kh{}ph{}", size, size / 2),
                 {.configs = tiled(3, size <= 9)});
}

TEST(CudaFftTiled, PlacesTilesWithinAndBeyondTheImage) {
  for (const char* text : {
           "mb2ic3ih28iw15oc2kh3ph1",        // two tiles of 16 down, two across with one column
           "mb1ic2ih1oc3kh3ph1",             // one pixel, filter larger than the image
           "mb2ic3ih13iw37oc4kh3kw5ph0pw4",  // different in both directions
           "mb1ic3ih7oc2oh7kh4ph1",          // even filter: padding 1 above, 2 below
           "mb1ic3ih17oc2kh7ph6",            // fully padded
       })
    expect_right("fft_tiled", text, {.configs = tiled(3)});
}

TEST(CudaFftTiled, CrossesBlocksOfItemsInEveryLayout) {
  for (const Layout x : {Layout::nchw, Layout::nhwc})
    for (const Layout y : {Layout::nchw, Layout::nhwc})
      expect_right("fft_tiled", "mb2ic21ih17iw9oc37kh3ph1",
                   {.x_layout = x, .y_layout = y, .configs = tiled(3)});
}

TEST(CudaFftTiled, RejectsAConfigItDoesNotKnow) {
  const auto device = make_cuda_device();
  const ConvProblem p = problem("mb1ic2ih19oc3kh3ph1", Pass::forward);
  const auto plan = [&](const char* config) {
    return cuda_algo("fft_tiled").plan(p, Config::parse(config), *device);
  };
  EXPECT_NE(plan("tile=16,product=gauss,tiles=3,math=tf32x3"), nullptr);
  for (const char* config :
       {"tile=16,product=3,tiles=3,math=f32", "tile=16,product=real,tiles=3,math=f32",
        "tile=8,product=gauss,tiles=3,math=f32", "tile=16,product=gauss,tiles=0,math=f32",
        "tile=16,product=gauss,tiles=3,math=f64", "tile=16,product=gauss,tiles=3"})
    EXPECT_THROW(plan(config), InputError) << config;
}

TEST(CudaFftTiled, OffersConfigsThatWork) { expect_right("fft_tiled", "mb2ic3ih17oc4kh5ph2", {}); }

}  // namespace
}  // namespace convlab
