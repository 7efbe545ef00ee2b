// Winograd on CUDA, beyond the test over the registry: every tile size in both schedules, chunks of
// images, parts of tiles, every layout pair; and accuracy.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "conv/error.h"
#include "conv/types/math_type.h"
#include "kernels_cuda/on_cpu/access_counts.h"
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
  for (const bool relu : {false, true})
    for (const bool accumulate : {false, true})
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        // Rows of whole vectors, and rows with a remainder.
        for (const char* text : {"mb2ic3ih8iw12oc4kh3ph1", "mb2ic3ih5iw7oc4kh3ph1"}) {
          ConvProblem p = problem(text, Pass::forward, layout, layout);
          if (accumulate)
            p.accumulate = true;
          else
            p.epilogue = {.bias = true, .residual = true, .relu = relu};
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

std::vector<Config> fused_configs() {
  std::vector<Config> configs;
  for (const std::int64_t m : {2, 4})
    for (const char* math : {"f32", "tf32x3"})
      configs.push_back({{"tile", m}, {"schedule", "fused"}, {"math", math}});
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
    const auto verdict = check(p, {{"tile", m}, {"schedule", "fused"}, {"math", "tf32"}}, reference,
                               m == 2 ? 1e-3 : 3e-3);
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

TEST(CudaWinograd, FusesTheEpilogue) {
  for (const char* text : {"mb2ic3ih8iw12oc36kh3ph1", "mb2ic3ih5iw7oc36kh3ph1"})
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      ConvProblem p = problem(text, Pass::forward, layout, layout);
      p.epilogue = {.bias = true, .residual = true, .relu = true};
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

// Blocks of 32 channels and 32 tiles, against two multiprocessors.
TEST(CudaWinograd, FusesFirstWhatFillsTheCard) {
  const auto device = make_cuda_device();
  const auto first = [&](const char* text) {
    return winograd().configs(problem(text, Pass::forward), *device).front().choice("schedule");
  };
  EXPECT_EQ(first("mb1ic16ih14oc64oh14kh3ph1"), "fused");
  EXPECT_EQ(first("mb1ic16ih14oc32oh14kh3ph1"), "nonfused");
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
  EXPECT_NE(plan(Pass::forward, "tile=4,schedule=fused,math=f32"), nullptr);
  for (const char* config :
       {"tile=3,schedule=nonfused,math=f32,images=1", "tile=4,schedule=nonfused,math=f16,images=1",
        "tile=4,schedule=nonfused,math=f32,images=0", "tile=4,schedule=nonfused,math=f32,images=3",
        "tile=4,schedule=nonfused,math=tf32x3,images=1", "tile=4", "tile=4,schedule=2,math=f32",
        "tile=4,schedule=own,math=f32", "tile=6,schedule=fused,math=f32",
        "tile=4,schedule=fused,math=f16"})
    EXPECT_THROW(plan(Pass::forward, config), InputError) << config;
  for (const char* config :
       {"tile=4,schedule=fused,math=f32", "tile=4,schedule=nonfused,math=f32,images=1", filter})
    EXPECT_THROW(plan(Pass::backward_filter, config), InputError) << config;
}

}  // namespace
}  // namespace convlab
