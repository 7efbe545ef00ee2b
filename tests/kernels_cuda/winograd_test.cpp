// Winograd on CUDA, beyond the test over the registry: every tile size in both schedules, chunks of
// images, parts of tiles, every layout pair; and accuracy.
#include "kernels_cuda/winograd/winograd.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "conv/error.h"
#include "conv/types/math_type.h"
#include "kernels_cuda/on_cpu/access_counts.h"
#include "kernels_cuda/on_cpu/device.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/problems.h"

namespace convlab {
namespace {

const ConvAlgo& winograd() { return cuda_algo("winograd"); }

ConvProblem problem(const char* text, Pass pass, Layout x, Layout y) {
  ConvProblem p = problem(text, pass, x);
  p.y_layout = y;
  return p;
}

CheckResult check(const ConvProblem& p, const Config& config, const ReferenceCase& reference,
                  double max_error = 2e-5) {
  const auto device = make_cuda_device();
  const auto stream = device->make_stream();
  const CheckResult verdict =
      check_candidate(winograd(), p, config, reference, *device, *stream, max_error);
  EXPECT_EQ(verdict.status, Status::ok)
      << verdict.reason << "\n  " << to_text(p) << ' ' << to_string(p.pass) << ' '
      << to_string(p.x_layout) << ' ' << to_string(p.y_layout) << ' ' << config.text();
  return verdict;
}

// Every tile size, in chunks of one, two and all images, whole and in parts. configs() offers only
// those that may be fast.
std::vector<Config> nonfused_configs(const ConvProblem& p) {
  std::vector<Config> configs;
  for (const std::int64_t m : {2, 4, 6}) {
    if (p.r == 5 && m == 6) continue;
    const std::int64_t tiles = ceil_div(p.pass == Pass::backward_data ? p.h : p.p, m) *
                               ceil_div(p.pass == Pass::backward_data ? p.w : p.q, m);
    for (const std::int64_t images :
         std::set{std::int64_t(1), std::min<std::int64_t>(p.n, 2), p.n}) {
      Config config = with_math({{"tile", m}, {"schedule", "nonfused"}}, p.dtype, MathType::f32);
      config.set("images", images);
      if (p.pass != Pass::backward_filter) configs.push_back(config);
      for (const std::int64_t split :
           std::set{std::int64_t(1), std::min<std::int64_t>(images * tiles, 3)})
        if (p.pass == Pass::backward_filter) {
          configs.push_back(config);
          configs.back().set("split", split);
        }
    }
  }
  return configs;
}

TEST(CudaWinograd, TakesImagesInChunksAndTilesInParts) {
  // Ragged tiles; more tiles than a thread block has threads; one pixel; asymmetric padding.
  for (const char* text : {"mb3ic5ih14iw11oc6kh3ph1", "mb3ic3ih17oc5kh5ph2",
                           "mb5ic2ih1oc3oh1kh3ph1", "mb3ic4ih7iw9oc5oh6ow10kh3ph0pw2"})
    for (const Pass pass : all_passes) {
      const ConvProblem p = problem(text, pass);
      const ReferenceCase reference(p, 1);
      for (const Config& config : nonfused_configs(p)) check(p, config, reference);
    }
}

TEST(CudaWinograd, TakesAnyPairOfLayouts) {
  for (const char* text : {"mb2ic6ih9iw12oc7kh3ph1", "mb1ic5ih8oc9kh5ph2"})
    for (const Pass pass : all_passes) {
      const ReferenceCase reference(problem(text, pass), 2);
      for (const Layout x : {Layout::nchw, Layout::nhwc})
        for (const Layout y : {Layout::nchw, Layout::nhwc}) {
          const ConvProblem p = problem(text, pass, x, y);
          for (const Config& config : nonfused_configs(p))
            if (config.get("images") == 1) check(p, config, reference);
        }
    }
}

TEST(CudaWinograd, FinishesTheOutput) {
  for (const auto relu : {std::optional<ActivationKind>(), std::optional(ActivationKind::relu)})
    for (const bool accumulate : {false, true})
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        // Rows of whole vectors, and rows with a remainder.
        for (const char* text : {"mb2ic3ih8iw12oc4kh3ph1", "mb2ic3ih5iw7oc4kh3ph1"}) {
          ConvProblem p = problem(text, Pass::forward, layout, layout);
          if (accumulate)
            p.accumulate = true;
          else
            p.epilogue = {.bias = true, .residual = true, .activation = relu};
          const ReferenceCase reference(p, 3);
          for (const Config& config : nonfused_configs(p)) check(p, config, reference);
        }
      }
  for (const Pass pass : {Pass::backward_data, Pass::backward_filter}) {
    ConvProblem p = problem("mb2ic3ih8iw12oc4kh3ph1", pass);
    p.accumulate = true;
    const ReferenceCase reference(p, 4);
    for (const Config& config : nonfused_configs(p)) check(p, config, reference);
  }
}

Config fused(std::int64_t tile, const char* math, std::int64_t split) {
  return {{"tile", tile}, {"schedule", "fused"}, {"math", math}, {"split", split}};
}

std::vector<Config> fused_configs() {
  std::vector<Config> configs;
  for (const std::int64_t m : {2, 4})
    for (const char* math : {"f32", "tf32x3"}) configs.push_back(fused(m, math, 1));
  return configs;
}

// Blocks are 64 or 32 channels by 32 tiles, with 8 input channels at a time. The problems have
// several of each, none of them full, and then less than one of each.
TEST(CudaWinograd, FusesRaggedBlocks) {
  for (const char* text : {"mb2ic11ih22iw25oc70kh3ph1", "mb1ic17ih3iw9oc34oh4ow9kh3ph1",
                           "mb3ic1ih1oc1oh1kh3ph1", "mb1ic5ih7iw9oc5oh6ow10kh3ph0pw2"})
    for (const Pass pass : {Pass::forward, Pass::backward_data}) {
      const ReferenceCase reference(problem(text, pass), 7);
      for (const Layout x : {Layout::nchw, Layout::nhwc})
        for (const Layout y : {Layout::nchw, Layout::nhwc})
          for (const Config& config : fused_configs())
            check(problem(text, pass, x, y), config, reference);
    }
}

// One TF32 product has 11 bits, so results are right to about a thousandth. That is required.
TEST(CudaWinograd, FusesInTf32) {
  const ConvProblem p = problem("mb1ic11ih12iw25oc34oh12ow25kh3ph1", Pass::forward);
  const ReferenceCase reference(p, 11);
  for (const std::int64_t m : {2, 4}) {
    const auto verdict = check(p, fused(m, "tf32", 1), reference, m == 2 ? 1e-3 : 3e-3);
    EXPECT_GT(verdict.rel_error, 1e-4);
  }
}

TEST(CudaWinograd, FusesWithoutBankConflicts) {
  if (reduced()) GTEST_SKIP() << "sanitizers see nothing in counts, and slow them down";
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const ConvProblem p = problem("mb1ic16ih24oc64oh24kh3ph1", Pass::forward, layout, layout);
    const ReferenceCase reference(p, 10);
    for (const Config& config : fused_configs()) {
      int lines = 0;
      for (const on_cpu::AccessCount& count :
           on_cpu::count_accesses([&] { check(p, config, reference); })) {
        if (count.kind != on_cpu::AccessKind::shared_load &&
            count.kind != on_cpu::AccessKind::shared_store)
          continue;
        EXPECT_EQ(count.transactions, count.least)
            << to_string(layout) << ' ' << config.text() << ' ' << count.site.file << ':'
            << count.site.line;
        ++lines;
      }
      EXPECT_GE(lines, 5);  // v and u written and read, m written and read
    }
  }
}

// Parts read their own channels and no others, and what they store is added in whole sectors.
TEST(CudaWinograd, SplitsWithoutReadingMore) {
  if (reduced()) GTEST_SKIP() << "sanitizers see nothing in counts, and slow them down";
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const ConvProblem p = problem("mb1ic40ih8oc32oh8kh3ph1", Pass::forward, layout, layout);
    const ReferenceCase reference(p, 14);
    const auto sectors = [&](std::int64_t split, on_cpu::AccessKind kind, std::string_view file) {
      const Config config = fused(4, "f32", split);
      std::int64_t sum = 0;
      for (const auto& count : on_cpu::count_accesses([&] { check(p, config, reference); }))
        if (count.kind == kind && std::string_view(count.site.file).ends_with(file))
          sum += count.transactions;
      return sum;
    };
    using enum on_cpu::AccessKind;
    const std::int64_t out = p.output_bytes() / 32;
    EXPECT_EQ(sectors(3, global_load, "fused.cu"), sectors(1, global_load, "fused.cu"));
    EXPECT_EQ(sectors(3, global_load, "parts.cu"), 3 * out);
    EXPECT_EQ(sectors(1, global_store, "epilogue.h"), out);
    EXPECT_EQ(sectors(3, global_store, "epilogue.h"), 4 * out);  // three parts, and their sum
  }
}

TEST(CudaWinograd, FusesTheEpilogue) {
  for (const char* text : {"mb2ic3ih8iw12oc36kh3ph1", "mb2ic3ih5iw7oc36kh3ph1"})
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      ConvProblem p = problem(text, Pass::forward, layout, layout);
      p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
      const ReferenceCase finished(p, 8);
      for (const Config& config : fused_configs()) check(p, config, finished);
      p.epilogue = {};
      p.accumulate = true;
      for (const Pass pass : {Pass::forward, Pass::backward_data}) {
        p.pass = pass;
        const ReferenceCase accumulated(p, 9);
        for (const Config& config : fused_configs()) check(p, config, accumulated);
      }
    }
}

TEST(CudaWinograd, TakesDoubles) {
  for (const Pass pass : all_passes) {
    ConvProblem p = problem("mb2ic3ih8iw10oc4kh3ph1", pass);
    p.dtype = DType::f64;
    const ReferenceCase reference(p, 5);
    for (const Config& config : nonfused_configs(p)) check(p, config, reference, 1e-12);
  }
}

// F(6,3) loses most: 6.6e-6 of the output's norm in the experiment of cook_toom_test.cpp.
TEST(CudaWinograd, ErrsATenthOfTheDefaultLimit) {
  for (const Pass pass : all_passes) {
    const ConvProblem p = problem("mb1ic64ih12oc8kh3ph1", pass);
    const ReferenceCase reference(p, 6);
    std::vector<Config> configs = nonfused_configs(p);
    if (pass != Pass::backward_filter)
      for (const Config& config : fused_configs()) configs.push_back(config);
    for (const Config& config : configs)
      RecordProperty(fmt::format("{} {}", to_string(pass), config.text()),
                     fmt::format("{:.2e}", check(p, config, reference, 1e-5).rel_error));
  }
}

// The first config runs untuned, so it does not use TF32. None is repeated.
TEST(CudaWinograd, OffersEachConfigOnce) {
  const auto device = make_cuda_device();
  for (const Pass pass : all_passes) {
    const ConvProblem p = problem("mb64ic64ih28oc64kh3ph1", pass);
    const std::vector<Config> configs = winograd().configs(p, *device);
    ASSERT_FALSE(configs.empty());
    EXPECT_EQ(configs.front().choice("math"), "f32");
    EXPECT_EQ(configs.front().get("tile"), 4);
    std::set<std::string> texts;
    for (const Config& config : configs) {
      EXPECT_GT(winograd().work(p, config, *device).flops(), 0);
      EXPECT_TRUE(texts.insert(config.text()).second) << config.text();
      EXPECT_NE(winograd().plan(p, config, *device), nullptr);
    }
  }
}

// Blocks of up to 64 channels and 32 tiles, in parts of 8 input channels, against two
// multiprocessors.
TEST(CudaWinograd, FusesFirstWhatFillsTheCard) {
  const auto device = make_cuda_device();
  const auto first = [&](const char* text) {
    return winograd().configs(problem(text, Pass::forward), *device).front();
  };
  EXPECT_EQ(first("mb1ic16ih28oc32oh28kh3ph1"), fused(4, "f32", 1));  // 2 blocks, F(2,3) 7
  EXPECT_EQ(first("mb1ic16ih14oc32oh14kh3ph1"), fused(2, "f32", 1));  // 2 blocks, F(4,3) 1
  EXPECT_EQ(first("mb1ic16ih7oc32oh7kh3ph1"), fused(2, "f32", 2));
  EXPECT_EQ(first("mb1ic8ih7oc32oh7kh3ph1").choice("schedule"), "nonfused");
}

std::unique_ptr<Device> h100() {
  DeviceInfo info = on_cpu::default_card();
  info.threads = 132;
  return on_cpu::make_card(info);
}

struct Grid {
  const char* problem;
  int tile, blocks, split;
  int kilocycles, split_kilocycles;  // by estimate
};

// One image. The unsplit grid leaves most of 132 multiprocessors idle, the split one few.
TEST(CudaWinograd, SplitsToOccupyTheCardWithOneImage) {
  const auto card = h100();
  const auto kilocycles = [&](const cuda::WinogradFused& run) {
    return std::lround(run.cycles(card->info()) / 1000);
  };
  for (const Grid& g : {Grid{"mb1ic512ih7oc512oh7kh3ph1", 4, 16, 8, 493, 75},
                        Grid{"mb1ic512ih7oc512oh7kh3ph1", 2, 8, 16, 399, 37},
                        Grid{"mb1ic512ih14oc512oh14kh3ph1", 4, 16, 8, 493, 76},
                        Grid{"mb1ic256ih14oc256oh14kh3ph1", 4, 8, 16, 251, 31},
                        Grid{"mb1ic256ih14oc256oh14kh3ph1", 2, 8, 16, 203, 25},
                        Grid{"mb1ic64ih56oc64oh56kh3ph1", 4, 14, 8, 70, 25}})
    for (const Pass pass : {Pass::forward, Pass::backward_data}) {
      const ConvProblem p = problem(g.problem, pass);
      const cuda::WinogradFused whole{cuda::WinogradShape(p, g.tile)};
      cuda::WinogradFused split = whole;
      split.split = g.split;
      EXPECT_EQ(whole.blocks(card->info()), g.blocks);
      EXPECT_EQ(split.blocks(card->info()), g.blocks * g.split);
      EXPECT_EQ(kilocycles(whole), g.kilocycles);
      EXPECT_EQ(kilocycles(split), g.split_kilocycles);
      const std::vector<Config> configs = winograd().configs(p, *card);
      const auto place = [&](std::int64_t parts) {
        return std::ranges::find(configs, fused(g.tile, "f32", parts)) - configs.begin();
      };
      EXPECT_GT(configs.front().get("split"), 1);
      EXPECT_LT(place(g.split), place(1));
      EXPECT_LT(place(1), std::ptrdiff_t(configs.size()));
    }
}

// With a tenth to gain or less, as where the outputs are blocks enough, a split is not listed.
TEST(CudaWinograd, SplitsSmallGridsOnly) {
  const auto splits = [&](const char* text, Device& device) {
    int count = 0;
    for (const Config& c : winograd().configs(problem(text, Pass::forward), device))
      count += c.choice("schedule") == "fused" && c.get("tile") == 4 && c.get("split") > 1;
    return count;
  };
  EXPECT_EQ(splits("mb64ic64ih56oc64oh56kh3ph1", *h100()), 0);
  EXPECT_EQ(splits("mb1ic1024ih7oc3680oh7kh3ph1", *h100()), 0);  // 115 blocks: saves 7%
  EXPECT_EQ(splits("mb1ic1024ih7oc2720oh7kh3ph1", *h100()), 3);  // 85; a split in each math type
  EXPECT_EQ(splits("mb1ic512ih7oc512oh7kh3ph1", *make_cuda_device()), 0);  // two multiprocessors
  EXPECT_EQ(splits("mb1ic8ih7oc512oh7kh3ph1", *h100()), 0);                // one chunk
}

TEST(CudaWinograd, SaysWhyItRefuses) {
  const auto device = make_cuda_device();
  const auto reason = [&](const ConvProblem& p) {
    const auto refusal = winograd().refuse(p, *device);
    return refusal ? refusal->reason() : "";
  };
  const auto forward = [&](const char* text) { return problem(text, Pass::forward); };
  EXPECT_EQ(reason(forward("ic16ih8oc16oh8kh3ph1")), "");
  EXPECT_EQ(reason(forward("ic16ih8oc16oh4kh3sh2ph1")), "needs stride 1, has 2x2");
  EXPECT_EQ(reason(forward("ic16ih9oc16oh9kh3dh1ph2")), "needs dilation 1, has 2x2");
  EXPECT_EQ(reason(forward("g2ic32ih8oc32oh8kh3ph1")), "needs 1 group, has 2");
  EXPECT_EQ(reason(forward("ic16ih8oc16oh8kh1ph0")), "needs a 3x3 or 5x5 filter, has 1x1");
  EXPECT_EQ(reason(forward("mb1ic2048ih2048oc1kh3ph1")),
            "needs fewer than 2^31 elements of an image, pairs of tile and channel, and taps, has "
            "8589934592");
  ConvProblem p = forward("ic16ih8oc16oh8kh3ph1");
  p.dtype = DType::f16;
  EXPECT_EQ(reason(p), "needs f32 or f64, has f16");
  p.dtype = DType::f32;
  p.y_layout = Layout::nchw16c;
  EXPECT_EQ(reason(p), "needs nchw or nhwc, has nchw16c");
}

TEST(CudaWinograd, RejectsAConfigItDoesNotKnow) {
  const auto device = make_cuda_device();
  const auto plan = [&](Pass pass, const char* config) {
    return winograd().plan(problem("mb2ic16ih8oc16oh8kh3ph1", pass), Config::parse(config),
                           *device);
  };
  const char* const filter = "tile=4,schedule=nonfused,math=f32,images=1,split=5";
  EXPECT_NE(plan(Pass::forward, "tile=4,schedule=nonfused,math=f32,images=1"), nullptr);
  EXPECT_NE(plan(Pass::forward, "tile=4,schedule=fused,math=f32,split=1"), nullptr);
  for (const char* config :
       {"tile=3,schedule=nonfused,math=f32,images=1", "tile=4,schedule=nonfused,math=f16,images=1",
        "tile=4,schedule=nonfused,math=f32,images=0", "tile=4,schedule=nonfused,math=f32,images=3",
        "tile=4,schedule=nonfused,math=tf32x3,images=1", "tile=4",
        "tile=4,schedule=2,math=f32,split=1", "tile=4,schedule=own,math=f32,split=1",
        "tile=6,schedule=fused,math=f32,split=1", "tile=4,schedule=fused,math=f16,split=1"})
    EXPECT_THROW(plan(Pass::forward, config), InputError) << config;
  for (const char* config : {"tile=4,schedule=fused,math=f32,split=1",
                             "tile=4,schedule=nonfused,math=f32,images=1", filter})
    EXPECT_THROW(plan(Pass::backward_filter, config), InputError) << config;
}

}  // namespace
}  // namespace convlab
