// Convolution by Fourier transforms, beyond the test over the registry: grid sizes, wrapped
// padding, tile seams.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "autotune/testbed/verify.h"
#include "conv/refusals.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/fft_tiled/fft_tiled.h"

namespace convlab {
namespace {

using cpu::FftTilingSide;

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

TEST(FftTiled, TakesDilationAndGroups) {
  for (const std::string& isa : supported_isas())
    for (const char* text : {
             "mb2ic19ih37oc21oh37kh5dh1ph4",             // long and short phases, ragged channels
             "mb1ic16ih30iw47oc24oh27ow40kh3kw5dh1dw2",  // unlike in height and width
             "mb2ic5ih25iw26oc3oh23ow29kh3dh2ph2pw5",    // padding that is no multiple
             "mb1ic3ih40oc17oh37kh4dh3ph3",              // tiles side by side in a vector
             "mb1ic40ih29oc2oh22kh3dh4ph1pw0ow21",       // few outputs
             "mb1ic16ih5oc16oh5kh3dh7ph7",               // dilation larger than the image
             "mb1ic16ih4iw9oc16oh2ow13kh2kw3dh3dw10ph1pw13",  // phases of x without pixels
             "mb1ic20iw90oc18ow90kw11pw25dw4",                // one row
             "mb1ic16ih9iw30oc16oh9ow20kh1kw7dh3dw1ph0pw1",   // dilation of a single tap
         })
      expect_right("fft_tiled", text, DType::f32, blocked(isa), blocked(isa), isa);
  const std::string isa = supported_isas().back();
  for (const char* text : {
           "g2mb2ic32ih15oc64oh15kh5ph2",
           "g3mb1ic48ih6oc96oh8kh3ph2",
           "g2mb2ic64ih23iw20oc32oh21ow18kh3dh2dw1ph2pw1",
       })
    expect_right("fft_tiled", text, DType::f32, blocked(isa), blocked(isa), isa);
}

// With dilation 1 a tile is what it was before there were phases; with more, tiles of all phases
// cover each output once.
TEST(FftTiled, TilingsCoverTheOutputs) {
  const auto check = [](const FftTilingSide& side) {
    std::vector<int> covered(std::size_t(side.to), 0);
    for (std::int64_t tile = 0; tile < side.tiles; ++tile) {
      const FftTilingSide::Part to = side.place(tile).to;
      ASSERT_LT(to.first, to.size);
      for (std::int64_t i = to.first; i < std::min(to.first + side.step, to.size); ++i)
        ++covered.at(std::size_t(i * side.dilation + to.phase));
    }
    EXPECT_EQ(covered, std::vector<int>(covered.size(), 1)) << side.dilation << ' ' << side.to;
  };
  for (const std::int64_t dilation : {1, 2, 3, 7, 40})
    for (std::int64_t to = 1; to < 50; ++to)
      for (const bool flipped : {false, true})
        check({16, 5, dilation, 2, to + 4 * (dilation - 1), to, flipped});

  for (const bool flipped : {false, true}) {
    const FftTilingSide dense(16, 5, 1, 3, 27, 29, flipped);
    EXPECT_EQ(dense.step, 12);
    EXPECT_EQ(dense.tiles, 3);
    const FftTilingSide::Place last = dense.place(2);
    EXPECT_EQ(last.to.first, 24);
    EXPECT_EQ(last.from.first, 24 - (flipped ? 1 : 3));
    EXPECT_EQ(last.from.phase + last.to.phase, 0);
    EXPECT_EQ(last.from.size, 27);
    EXPECT_EQ(last.to.size, 29);
  }
  // One tile for all outputs, whose padding wraps around; without padding there are two.
  EXPECT_EQ(FftTilingSide(16, 7, 1, 6, 10, 16, false).step, 16);
  EXPECT_EQ(FftTilingSide(16, 7, 1, 0, 22, 16, false).step, 10);
  // In every phase: 2 x 16 outputs from 2 x 10 pixels. One pixel more does not fit.
  EXPECT_EQ(FftTilingSide(16, 7, 2, 12, 20, 32, false).step, 16);
  EXPECT_EQ(FftTilingSide(16, 7, 2, 12, 21, 33, false).step, 10);
  // The phases' paddings are 3 and 2: the second would lose outputs around the edge.
  EXPECT_EQ(FftTilingSide(16, 5, 2, 5, 23, 30, false).step, 12);
}

// A dilated problem of d x d phases has the work of d x d smaller ones.
TEST(FftTiled, WorkGrowsWithPhasesAndGroups) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, "fft_tiled");
  const auto device = make_cpu_device({2, ""});
  const auto flops = [&](const char* text) {
    ConvProblem p = parse_problem(text).problem;
    p.x_layout = p.y_layout = blocked(device->info().isa);
    return algo.work(p, Config{{"tile", 16}, {"spectra", "shared"}, {"block", 4}}, *device).flops();
  };
  EXPECT_EQ(flops("mb1ic16ih48oc32oh48kh5dh1ph4"), flops("mb4ic16ih24oc32oh24kh5ph2"));
  EXPECT_EQ(flops("g3mb1ic48ih24oc96oh24kh5ph2"), 3 * flops("mb1ic16ih24oc32oh24kh5ph2"));
}

TEST(FftTiled, SaysWhyItRefusesGroups) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, "fft_tiled");
  const auto device = make_cpu_device();
  ConvProblem p = parse_problem("g3mb1ic15ih9oc15oh9kh5ph2").problem;
  p.x_layout = p.y_layout = blocked(device->info().isa);
  const auto refusal = algo.refuse(p, *device);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->field, Field::groups);
}

// One tile and several, tiles across the whole image by filters as large as the tile, filters that
// are larger than the image, large tiles, parts of the tiles in backward_filter, the epilogue and
// accumulation.
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
            "g18mb1ic18ih36oc18oh16kh21ph0", "g20mb1ic20ih28oc20oh28kh29ph14",
            "g5mb2ic5ih49iw23oc5oh49ow23kh31kw5ph15pw2", "g17mb1ic17ih95iw30oc17kh27ph13"})
        for (const Pass pass : all_passes) {
          ConvProblem p = parse_problem(text).problem;
          p.pass = pass;
          p.x_layout = p.y_layout = blocked_layout(device->info());
          if (pass == Pass::forward)
            p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
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

// No larger tile than the one that holds the image. Where none does, all that leave a quarter of
// their side as outputs.
TEST(FftTiled, OffersDepthwiseTilesUpToTheImage) {
  AlgoRegistry registry;
  append_cpu_algos(registry);
  const ConvAlgo& algo = registry.get(DeviceKind::cpu, "fft_tiled_depthwise");
  const auto device = make_cpu_device();
  const auto tiles = [&](const char* text) {
    ConvProblem p = parse_problem(text).problem;
    p.x_layout = p.y_layout = blocked_layout(device->info());
    std::set<std::int64_t> found;
    for (const Config& config : algo.configs(p, *device)) found.insert(config.get("tile"));
    return found;
  };
  using Sides = std::set<std::int64_t>;
  EXPECT_EQ(tiles("g16ic16ih14oc16kh27ph13"), (Sides{32, 40}));
  EXPECT_EQ(tiles("g16ic16ih28oc16kh29ph14"), (Sides{40, 48}));
  EXPECT_EQ(tiles("g16ic16ih49oc16kh31ph15"), (Sides{40, 48, 64}));
  EXPECT_EQ(tiles("g16ic16ih56oc16kh31ph15"), (Sides{40, 48, 64, 80}));
  EXPECT_EQ(tiles("g16ic16ih99oc16kh51ph25"), (Sides{80}));
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
      "needs a filter of at least 5 taps a side, and at most 61 unless a tile of 80x80 holds the "
      "padded image, has ";
  EXPECT_EQ(reason("g16ic16ih28oc16oh28kh31ph15"), "");
  EXPECT_EQ(reason("g16ic16ih8oc16oh8kh3ph1"), filter + "3x3");
  EXPECT_EQ(reason("g16ic16ih90oc16oh90kh61ph30"), "");
  EXPECT_EQ(reason("g16ic16ih90oc16oh90kh63ph31"), filter + "63x63");
  EXPECT_EQ(reason("g16ic16ih9oc16oh9kh63ph31"), "");
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
  p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
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
