// Convolution by Fourier transforms, beyond the test over the registry: grid sizes, wrapped
// padding, tile seams.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "autotune/testbed/verify.h"
#include "conv/refusals.h"
#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

// Rounding grows with the logarithm of the transform's length: close to plain summation.
double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-14 : 4e-6; }

// Every pass of a problem, with every config, against the reference.
void expect_right(const std::string& id, const std::string& text, DType dtype, Layout x_layout,
                  Layout y_layout, const std::string& isa = "") {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, id);
  const auto device = make_cpu_device({0, isa});
  const auto stream = device->make_stream();
  for (const Pass pass : all_passes) {
    ConvProblem p = parse_problem(text).problem;
    p.pass = pass;
    p.dtype = dtype;
    p.x_layout = x_layout;
    p.y_layout = y_layout;
    const auto refusal = algo.refuse(p, *device);
    ASSERT_FALSE(refusal) << text << ": " << refusal->reason();
    const ReferenceCase reference(p, 7);
    for (const Config& config : algo.configs(p, *device)) {
      const auto verdict =
          check_candidate(algo, p, config, reference, *device, *stream, tolerance(dtype));
      EXPECT_EQ(verdict.status, Status::ok)
          << fmt::format("{} {} {} {} {}: {}", id, config.text(), to_string(pass), text,
                         device->info().isa, verdict.reason);
    }
  }
}

class Fft : public testing::Test {
 protected:
  void SetUp() override {
    AlgoRegistry registry;
    append_cpu_algos(registry);
    const auto device = make_cpu_device();
    const auto refusal =
        registry.get(DeviceKind::cpu, "fft").refuse(parse_problem("ic1ih4oc1kh1").problem, *device);
    if (refusal) GTEST_SKIP() << refusal->reason();
  }
};

TEST_F(Fft, WrapsPaddingAroundTheGrid) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const char* text : {
             "mb3ic5ih27oc7kh5ph2",           // 29 rows on a grid of 30
             "mb1ic2ih1oc3kh3ph1",            // one pixel, filter larger than the image
             "mb1ic1ih1oc1kh1",               // nothing but a product
             "mb2ic3ih13iw9oc4kh3kw5ph0pw4",  // different in both directions
             "mb1ic3ih7oc2oh7kh4ph1",         // even filter: padding 1 above, 2 below
             "mb1ic3ih31oc2kh11ph10",         // fully padded
         })
      expect_right("fft", text, dtype, Layout::nchw, Layout::nchw);
}

TEST_F(Fft, CoversEveryRowsAndDepthOfTheProduct) {
  expect_right("fft", "mb7ic67ih6oc50kh3ph1", DType::f32, Layout::nchw, Layout::nchw);
}

TEST_F(Fft, RunsOnEveryIsaAndLayout) {
  for (const std::string& isa : supported_isas())
    for (const DType dtype : {DType::f32, DType::f64})
      expect_right("fft", "mb3ic6ih9oc5kh3ph1", dtype, Layout::nchw, Layout::nhwc, isa);
}

// The channel-blocked layout of an instruction set.
Layout blocked(const std::string& isa) {
  return isa == "avx512" ? Layout::nchw16c : Layout::nchw8c;
}

TEST(FftTiled, JoinsTilesAtTheirSeams) {
  const std::string isa = supported_isas().back();
  for (const char* text : {
           "mb2ic16ih27oc32kh5ph2",        // tiles of 12 and 28 outputs over 27
           "mb1ic5ih40oc9kh3ph1",          // ragged channels; 3x3 and 2x2 tiles
           "mb1ic3ih45iw33oc20kh11ph0",    // only 32x32 tiles fit
           "mb1ic20ih9iw50oc16kh3kw7ph1",  // different in both directions
           "mb5ic1ih1oc1kh1",              // one pixel
           "mb1ic2ih1oc3kh3ph1",           // filter larger than the image
           "mb2ic17ih20oc33oh21kh4ph2",    // even filter, asymmetric padding
           "mb1ic16ih20oc16kh17ph16",      // the largest filter of 32x32 tiles, fully padded
           "mb1ic3ih47oc16kh21ph20",       // the largest of all
           "mb1ic16ih14oc16kh3ph4",        // more padding than the filter needs
           "mb2ic16ih16oc17oh10kh7ph0",    // one tile: backwards all 16 x 16, some around the edge
           "mb2ic16ih17oc17oh11kh7ph0",    // one row and column more
           "mb2ic3ih10iw40oc16kh7ph3",     // one tile across the rows, several the columns
       })
    expect_right("fft_tiled", text, DType::f32, blocked(isa), blocked(isa), isa);
}

TEST(FftTiled, RunsOnEveryIsa) {
  for (const std::string& isa : supported_isas())
    for (const char* text :
         {"mb3ic19ih14oc21kh3ph1", "mb1ic130ih6oc40kh5ph2", "mb3ic3ih30oc21kh5ph2",
          // Few outputs: their products run along the inputs' channels.
          "mb2ic40ih30oc1kh5ph2", "mb3ic33ih14oc4kh3ph1"})
      expect_right("fft_tiled", text, DType::f32, blocked(isa), blocked(isa), isa);
}

// One tile and several, tiles across the whole image by filters as large as the tile, filters that
// are larger than the image, parts of the tiles in backward_filter, the epilogue and accumulation.
TEST(FftTiled, TakesDepthwiseFilters) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, "fft_tiled_depthwise");
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      const auto stream = device->make_stream();
      for (const char* text :
           {"g16mb2ic16ih27iw30oc16oh27ow30kh13ph6", "g40mb1ic40ih14oc40oh14kh31ph15",
            "g7mb3ic7ih5oc7oh5kh5ph2", "g20mb1ic20ih50iw21oc20oh46ow30kh5kw12ph0pw10",
            "g33mb2ic33ih9oc33oh13kh6ph5", "g3mb1ic3ih40iw6oc3oh40ow6kh31kw1ph15pw0",
            "g18mb1ic18ih36oc18oh16kh21ph0"})
        for (const Pass pass : all_passes) {
          ConvProblem p = parse_problem(text).problem;
          p.pass = pass;
          p.x_layout = p.y_layout = blocked_layout(device->info());
          if (pass == Pass::forward) p.epilogue = {.bias = true, .residual = true, .relu = true};
          p.accumulate = pass != Pass::forward;
          const ReferenceCase reference(p, 5);
          const auto refusal = algo.refuse(p, *device);
          ASSERT_FALSE(refusal) << text << ' ' << refusal->reason();
          for (Config config : algo.configs(p, *device))
            for (const bool streams : {false, true}) {
              if (streams && (p.accumulate || pass == Pass::backward_filter)) continue;
              if (streams) config.set("stores", "nontemporal");
              const auto verdict =
                  check_candidate(algo, p, config, reference, *device, *stream, 4e-6);
              EXPECT_EQ(verdict.status, Status::ok)
                  << text << ' ' << to_string(pass) << ' ' << isa << ' ' << config.text() << ": "
                  << verdict.reason;
            }
        }
    }
}

TEST(FftTiled, SaysWhyItRefusesADepthwiseFilter) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, "fft_tiled_depthwise");
  const auto device = make_cpu_device();
  const auto reason = [&](const char* text) {
    ConvProblem p = parse_problem(text).problem;
    p.x_layout = p.y_layout = blocked_layout(device->info());
    const auto refusal = algo.refuse(p, *device);
    return refusal ? refusal->reason() : "";
  };
  const std::string filter =
      "needs a filter of at least 5 taps a side, and at most 31 unless a tile of 40x40 holds the "
      "padded image, has ";
  EXPECT_EQ(reason("g16ic16ih28oc16oh28kh31ph15"), "");
  EXPECT_EQ(reason("g16ic16ih8oc16oh8kh3ph1"), filter + "3x3");
  EXPECT_EQ(reason("g16ic16ih40oc16oh40kh33ph16"), filter + "33x33");
  EXPECT_EQ(reason("g16ic16ih9oc16oh9kh33ph16"), "");
  EXPECT_EQ(reason("g16ic16ih28oc16oh14kh7sh2ph3"), "needs stride 1, has 2x2");
  EXPECT_EQ(reason("g8ic16ih8oc16oh8kh7ph3"),
            "needs several groups of 1 channel and 1 filter, has 8 of 2 channels and 2 filters");
}

// Blocks that do not divide the tiles, and output channels in several chunks. Input channels that
// threads split, that they do not split (three blocks), and so few that tiles share a vector.
TEST(FftTiled, TakesAnyBlockSize) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, "fft_tiled");
  const auto device = make_cpu_device({.threads = 2, .isa = {}});
  const auto stream = device->make_stream();
  for (const char* text :
       {"mb2ic20ih30oc100kh3ph1", "mb2ic40ih30oc20kh3ph1", "mb2ic3ih30oc20kh3ph1"})
    for (const Pass pass : all_passes) {
      ConvProblem p = parse_problem(text).problem;
      p.pass = pass;
      p.x_layout = p.y_layout = blocked(device->info().isa);
      p.accumulate = true;
      const ReferenceCase reference(p, 5);
      for (const std::int64_t tile : {16, 32, 40})
        for (const std::int64_t block : {1, 4, 5, 100})
          for (const char* spectra : {"private", "shared"}) {
            const Config config{{"tile", tile}, {"spectra", spectra}, {"block", block}};
            const auto verdict =
                check_candidate(algo, p, config, reference, *device, *stream, 4e-6);
            EXPECT_EQ(verdict.status, Status::ok)
                << text << ' ' << to_string(pass) << " " << config.text() << ": " << verdict.reason;
          }
    }
}

// The product's rows: with fewer tiles, all filters would be read for fewer rows. Threads get equal
// shares: with twelve tiles, each of two threads has six, in two blocks of three. With few outputs
// two tiles suffice.
TEST(FftTiled, OwnBlocksFillTheProductsRows) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, "fft_tiled");
  const auto device = make_cpu_device({2, ""});
  const auto own_block = [&](const char* text, std::int64_t tile) {
    ConvProblem p = parse_problem(text).problem;
    p.x_layout = p.y_layout = blocked(device->info().isa);
    for (const Config& config : algo.configs(p, *device))
      if (config.get("tile") == tile && config.choice("spectra") == "private")
        return config.get("block");
    return std::int64_t{0};
  };
  EXPECT_EQ(own_block("mb8ic4096ih20oc16oh20kh7ph3", 32), 4);
  EXPECT_EQ(own_block("mb12ic4096ih20oc16oh20kh7ph3", 32), 3);
  EXPECT_EQ(own_block("mb8ic4096ih20oc3oh20kh7ph3", 32), 2);  // few filters
}

TEST(FftTiled, FusesTheEpilogue) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, "fft_tiled");
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  ConvProblem p = parse_problem("mb2ic20ih30oc21kh3ph1").problem;
  p.x_layout = p.y_layout = blocked(device->info().isa);
  p.epilogue = {.bias = true, .residual = true, .relu = true};
  const ReferenceCase reference(p, 5);
  for (Config config : algo.configs(p, *device))
    for (const char* stores : {"ordinary", "nontemporal"}) {
      config.set("stores", stores);
      const auto verdict = check_candidate(algo, p, config, reference, *device, *stream, 4e-6);
      EXPECT_EQ(verdict.status, Status::ok) << config.text() << ": " << verdict.reason;
    }
}

}  // namespace
}  // namespace convlab
