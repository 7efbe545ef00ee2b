// What the test over the registry does not reach: blocks of few tiles, sums over several blocks,
// products deeper than one part; and how little winograd errs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "autotune/verify.h"
#include "conv/error.h"
#include "conv/refusals.h"
#include "conv/registry.h"
#include "kernels_cpu/cpu.h"
#include "tests/cpu_backed_device.h"

namespace convlab {
namespace {

const ConvAlgo& winograd() {
  static const AlgoRegistry registry = [] {
    AlgoRegistry r;
    append_cpu_algos(r);
    return r;
  }();
  return registry.get(DeviceKind::cpu, "winograd");
}

ConvProblem blocked(const char* text, Pass pass, const Device& device) {
  ConvProblem p = parse_problem(text).problem;
  p.pass = pass;
  p.x_layout = p.y_layout = blocked_layout(device.info());
  return p;
}

Operands::Verdict check(const ConvProblem& p, const Config& config, const ReferenceCase& reference,
                        Device& device) {
  const auto stream = device.make_stream();
  return check_candidate(winograd(), p, config, reference, device, *stream, 5e-5);
}

void expect_right(const ConvProblem& p, const Config& config, const ReferenceCase& reference,
                  Device& device) {
  const Operands::Verdict verdict = check(p, config, reference, device);
  EXPECT_EQ(verdict.status, Status::ok)
      << verdict.reason << "\n  " << to_text(p) << ' ' << to_string(p.pass) << ' ' << config.text()
      << ' ' << device.info().isa << ' ' << device.info().threads;
}

// Every tile size, shared in each way or not, in blocks of 1, of 5 and of all tiles: configs()
// offers only what may be fast.
std::vector<Config> all_configs(const ConvProblem& p) {
  const bool data = p.pass == Pass::backward_data;
  std::vector<Config> configs;
  const std::vector<std::int64_t> sizes = p.r == 3   ? std::vector<std::int64_t>{2, 4, 6}
                                          : p.r == 4 ? std::vector<std::int64_t>{4, 5}
                                                     : std::vector<std::int64_t>{2, 4};
  for (const std::int64_t m : sizes) {
    const std::int64_t tiles = p.n * ceil_div(data ? p.h : p.p, m) * ceil_div(data ? p.w : p.q, m);
    for (const std::int64_t shared : {0, 1})
      for (const std::int64_t block :
           std::set<std::int64_t>{1, std::min<std::int64_t>(5, tiles), tiles}) {
        configs.push_back({{"tile", m}, {"shared", shared}, {"block", block}});
        if (p.pass == Pass::backward_filter || shared == 1 || block == 1) continue;
        configs.push_back(configs.back());
        configs.back().set("panels", 1);
      }
  }
  return configs;
}

// Its only block is of all tiles, however many images lie side by side.
Config fused_config(const ConvProblem& p, std::int64_t m, Device& device) {
  for (std::int64_t tiles = p.n * p.h * p.w; tiles > 0; --tiles) {
    Config config{{"tile", m}, {"shared", 1}, {"block", tiles}, {"fused", 1}};
    try {
      (void)winograd().plan(p, config, device);
      return config;
    } catch (const InputError&) {
    }
  }
  throw std::logic_error("no number of tiles is right");
}

TEST(Winograd, TakesTilesInBlocksOfAnySize) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text :
           {"mb2ic20ih18iw15oc40oh18ow15kh3ph1", "mb1ic40ih4oc5oh4kh3ph1",
            "mb1ic14ih9oc21oh9kh3ph1",          // 13 to 16 columns of a depth that ends within four
            "mb1ic16ih5iw70oc16oh5ow70kh3ph1",  // rows of many tiles
            "mb1ic18ih9iw11oc34oh7ow9kh5ph1", "mb1ic19ih9iw12oc34oh10ow13kh4ph2"})
        for (const Pass pass : all_passes) {
          const ConvProblem p = blocked(text, pass, *device);
          const ReferenceCase reference(p, 1);
          for (const Config& config : all_configs(p)) expect_right(p, config, reference, *device);
        }
    }
}

// Of backward_filter's final sums each thread makes M panel by panel, also where its share begins
// within a panel: six or more chunks of three or six panels.
TEST(Winograd, ThreadsPartWithinAPanel) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {2, 4}) {
      const auto device = make_cpu_device({threads, isa});
      const ConvProblem p = blocked("mb1ic176ih9oc96oh9kh3ph1", Pass::backward_filter, *device);
      const ReferenceCase reference(p, 9);
      expect_right(p, {{"tile", 6}, {"shared", 1}, {"block", 4}}, reference, *device);
    }
}

// Small images lie side by side: their seams, paddings of every size, and what else is done to the
// output there. In each problem some pass and tile size has a mosaic, so that it has fewer tiles
// than the images have apart.
TEST(Winograd, LaysSmallImagesSideBySide) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text : {"mb4ic20ih7oc40oh7kh3ph1", "mb6ic20ih5iw7oc18oh3ow7kh3ph0pw1",
                               "mb7ic16ih2oc16oh2kh3ph1", "mb4ic18ih5oc34oh5kh5ph2",
                               "mb4ic16ih5oc16oh9kh3ph3", "mb4ic16ih7oc16oh11kh3ph3"}) {
        bool mosaic = false;
        for (const Pass pass : all_passes) {
          ConvProblem p = blocked(text, pass, *device);
          p.accumulate = pass == Pass::backward_data;
          if (pass == Pass::forward) p.epilogue = {.bias = true, .residual = true, .relu = true};
          const ReferenceCase reference(p, 4);
          for (const Config& config : all_configs(p)) {
            try {
              (void)winograd().plan(p, config, *device);
            } catch (const InputError&) {
              mosaic = true;  // has no such number of tiles
              continue;
            }
            expect_right(p, config, reference, *device);
          }
        }
        EXPECT_TRUE(mosaic) << text;
      }
    }
}

// A stride of two: phases with one tap and two, rows and columns of x that no output reads,
// paddings of every parity, mosaics, and products over few of the phases.
TEST(Winograd, TakesAStrideOfTwoPhaseByPhase) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text :
           {"mb2ic20ih32iw17oc40oh16ow9kh3sh2ph1", "mb6ic18ih7oc34oh4kh3sh2ph1",
            "mb1ic17ih13iw12oc16oh6ow5kh3sh2ph0", "mb3ic16ih4iw5oc18oh4ow4kh3sh2ph3pw2",
            "mb1ic16ih7iw75oc16oh4ow38kh3sh2ph1"})
        for (const Pass pass : all_passes) {
          ConvProblem p = blocked(text, pass, *device);
          p.accumulate = pass == Pass::backward_data;
          if (pass == Pass::forward) p.epilogue = {.bias = true, .residual = true, .relu = true};
          const ReferenceCase reference(p, 5);
          std::vector<Config> configs = winograd().configs(p, *device);
          for (const std::int64_t m : {4, 7})
            for (const std::int64_t shared : {0, 1})
              configs.push_back({{"tile", m}, {"shared", shared}, {"block", 1}});
          if (pass != Pass::backward_filter) {
            configs.push_back({{"tile", 4}, {"shared", 0}, {"block", 2}, {"panels", 1}});
            for (const std::int64_t m : {4, 7}) {
              configs.push_back(fused_config(p, m, *device));
              configs.push_back(configs.back());
              configs.back().set("shared", 0);
              configs.back().set("panels", 1);
            }
          }
          if (!p.accumulate)
            configs.front().set("stores", "nontemporal");  // offered for large outputs
          for (const Config& config : configs) expect_right(p, config, reference, *device);
        }
    }
}

// First layers, x in plain NCHW: every stride that folds and number of taps that is left, filters
// that end within a stride, paddings that do not divide it, pixels that no output reads.
TEST(Winograd, FoldsTheStrideOfAFirstLayer) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text :
           {"mb2ic3ih33iw30oc40oh17ow15kh7sh2ph3", "mb3ic3ih47iw51oc18oh11ow12kh11sh4ph2",
            "mb1ic1ih13iw12oc5oh6ow6kh6sh2ph2", "mb2ic2ih19iw22oc34oh9ow10kh9sh2ph3",
            "mb1ic4ih40iw28oc16oh7ow4kh16sh4ph0", "mb2ic3ih12iw15oc20oh12ow15kh3ph1",
            "mb1ic3ih9iw100oc16oh5ow50kh7sh2ph3", "mb1ic3ih6iw44oc16oh6ow44kh3ph1"})
        for (const Pass pass : all_passes) {
          ConvProblem p = blocked(text, pass, *device);
          if (pass == Pass::backward_data && p.stride_h == 1) continue;
          p.x_layout = Layout::nchw;
          p.accumulate = threads == 1 || pass == Pass::backward_filter;
          if (pass == Pass::forward && !p.accumulate)
            p.epilogue = {.bias = true, .residual = true, .relu = true};
          ASSERT_FALSE(winograd().refuse(p, *device)) << text;
          const ReferenceCase reference(p, 6);
          std::vector<Config> configs = winograd().configs(p, *device);
          for (const std::int64_t shared : {0, 1})
            configs.push_back({{"tile", 4}, {"shared", shared}, {"block", 1}});
          for (const Config& config : configs) expect_right(p, config, reference, *device);
        }
    }
}

// First layers of stride 1: rows of every remainder, shorter than a tile and longer than a register
// tile, filters of every number, paddings to which whole rows belong, bands that end within an
// image, and what else is done to the output there.
TEST(Winograd, GoesAlongTheRowsOfAFirstLayer) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text :
           {"mb2ic3ih40iw37oc40oh40ow37kh3ph1", "mb1ic1ih5iw70oc5oh3ow68kh3ph0",
            "mb3ic4ih6iw2oc17oh10ow6kh3ph3", "mb1ic2ih19iw23oc64oh20ow24kh3ph1"}) {
        ConvProblem p = blocked(text, Pass::forward, *device);
        p.x_layout = Layout::nchw;
        p.accumulate = threads == 1;
        if (!p.accumulate) p.epilogue = {.bias = true, .residual = true, .relu = true};
        const ReferenceCase reference(p, 8);
        Config rows{{"tile", 4}, {"rows", 1}};
        EXPECT_EQ(winograd().configs(p, *device).front(), rows) << text;
        expect_right(p, rows, reference, *device);
        if (p.accumulate) continue;
        rows.set("stores", "nontemporal");
        expect_right(p, rows, reference, *device);
      }
    }
}

// A program's own parallel region leaves one thread to what was planned for three.
TEST(Winograd, RunsWithFewerThreadsThanPlannedFor) {
  const auto device = make_cpu_device({3, ""});
  for (const Pass pass : all_passes) {
    const ConvProblem p = blocked("mb1ic20ih9oc100oh9kh3ph1", pass, *device);
    const ReferenceCase reference(p, 7);
#pragma omp parallel num_threads(2)
#pragma omp single
    for (const Config& config : all_configs(p)) expect_right(p, config, reference, *device);
  }
}

// More channels, and more tiles, than one part of a product takes.
TEST(Winograd, SplitsDeepProducts) {
  const auto device = make_cpu_device({2, ""});
  for (const char* text :
       {"mb1ic500ih9oc40oh9kh3ph1", "mb1ic16ih60oc16oh60kh3ph1", "mb1ic32ih24oc32oh24kh3ph1"})
    for (const Pass pass : all_passes) {
      const ConvProblem p = blocked(text, pass, *device);
      const ReferenceCase reference(p, 2);
      for (const Config& config : all_configs(p))
        EXPECT_EQ(check(p, config, reference, *device).status, Status::ok)
            << text << ' ' << to_string(pass) << ' ' << config.text();
    }
}

// F(6,3) loses most: 6.6e-6 of the output's norm in the experiment of cook_toom_test.cpp, whose
// sums are over all channels at once; 4.5e-6 where they are over parts of them.
TEST(Winograd, ErrsLessThanSumsOverAllChannels) {
  const auto device = make_cpu_device({2, ""});
  for (const Pass pass : all_passes) {
    const ConvProblem p = blocked("mb1ic256ih24oc64oh24kh3ph1", pass, *device);
    const ReferenceCase reference(p, 3);
    for (const Config& config : all_configs(p)) {
      if (config.get("block") != 5) continue;
      const Operands::Verdict verdict = check(p, config, reference, *device);
      RecordProperty(fmt::format("{} {}", to_string(pass), config.text()),
                     fmt::format("{:.2e}", verdict.rel_error));
      EXPECT_LT(verdict.rel_error, 5.5e-6) << to_string(pass) << ' ' << config.text();
    }
  }
}

// Over 50,000 pixels a sum in which each product is rounded to the size of all before it errs by
// 9.8e-6 with tile=6 and by 3.7e-6 with tile=4 (measured).
TEST(Winograd, LongSumsErrLittle) {
  const auto device = make_cpu_device({2, ""});
  const ConvProblem p = blocked("mb1ic16ih224oc16oh224kh3ph1", Pass::backward_filter, *device);
  const ReferenceCase reference(p, 4);
  for (const Config& config : winograd().configs(p, *device)) {
    const Operands::Verdict verdict = check(p, config, reference, *device);
    EXPECT_LT(verdict.rel_error, config.get("tile") == 6 ? 7e-6 : 2e-6) << config.text();
  }
}

// The first is what runs untuned. Nothing else in the list is repeated or without hope.
TEST(Winograd, OffersEachConfigOnce) {
  const auto device = make_cpu_device({2, ""});
  for (const Pass pass : all_passes) {
    const ConvProblem p = blocked("mb1ic64ih14oc64oh14kh3ph1", pass, *device);
    const std::vector<Config> configs = winograd().configs(p, *device);
    ASSERT_FALSE(configs.empty());
    for (std::size_t i = 0; i < configs.size(); ++i) {
      EXPECT_GT(winograd().work(p, configs[i], *device).flops(), 0);
      for (std::size_t j = 0; j < i; ++j) EXPECT_NE(configs[i].text(), configs[j].text());
    }
  }
}

// Whether threads that share blocks are quick depends on which cores they run on.
TEST(Winograd, OffersSharedBlocksAndNot) {
  struct TwoZen4Cores : CpuBackedDevice {
    TwoZen4Cores() : CpuBackedDevice({.threads = 2, .isa = {}}) {
      info_.l1_bytes = 32 << 10;
      info_.l2_bytes = 1 << 20;
      info_.l3_bytes = 32 << 20;
    }
  } device;
  const ConvProblem p = blocked("mb16ic32ih7oc128oh7kh5ph2", Pass::backward_filter, device);
  std::set<std::int64_t> offered;
  for (const Config& config : winograd().configs(p, device)) offered.insert(config.get("shared"));
  EXPECT_EQ(offered, (std::set<std::int64_t>{0, 1}));
}

// Layers of VGG-16, ResNet-18 and AlexNet; most of their sums over tiles alone are larger.
TEST(Winograd, FilterGradientsTakeTwiceTheirOperandsAtMost) {
  for (const int threads : {1, 2}) {
    const auto device = make_cpu_device({threads, ""});
    for (const char* text : {"mb4ic512ih28oc512oh28kh3ph1", "mb4ic512ih14oc512oh14kh3ph1",
                             "mb16ic512ih7oc512oh7kh3ph1", "mb16ic256ih14oc256oh14kh3ph1",
                             "mb16ic192ih13oc384oh13kh3ph1", "mb1ic64ih56oc64oh56kh3ph1"}) {
      const ConvProblem p = blocked(text, Pass::backward_filter, *device);
      const std::size_t operands =
          4 * std::size_t(p.x_desc().elements() + p.y_desc().elements() + p.k * p.c * p.r * p.s);
      for (const Config& config : winograd().configs(p, *device))
        EXPECT_LE(winograd().plan(p, config, *device)->workspace_bytes(), 2 * operands)
            << text << ' ' << config.text() << ", " << threads << " threads";
    }
  }
}

TEST(Winograd, SaysWhyItRefuses) {
  const auto device = make_cpu_device();
  const auto reason = [&](const ConvProblem& p) {
    const auto refusal = winograd().refuse(p, *device);
    return refusal ? refusal->reason() : "";
  };
  const auto problem = [&](const char* text) { return blocked(text, Pass::forward, *device); };
  ConvProblem p = problem("ic16ih8oc16oh8kh3ph1");
  EXPECT_EQ(reason(p), "");
  EXPECT_EQ(reason(problem("ic16ih8oc16oh4kh3sh2ph1")), "");
  EXPECT_EQ(reason(problem("ic16ih8oc16oh4kh5sh2ph2")), "needs stride 1, has 2x2");
  EXPECT_EQ(reason(problem("ic16ih8oc16oh4ow8kh3sh2sw1ph1pw1")), "needs stride 1, has 2x1");
  EXPECT_EQ(reason(problem("ic16ih9oc16oh9kh3dh1ph2")), "needs dilation 1, has 2x2");
  EXPECT_EQ(reason(problem("g2ic32ih8oc32oh8kh3ph1")), "needs 1 group, has 2");
  EXPECT_EQ(reason(problem("ic16ih8oc16oh8kh1ph0")), "takes 3x3 to 5x5 filters, has 1x1");
  p = problem("ic3ih23oc16oh12kh7sh2ph3");
  EXPECT_EQ(reason(p), "takes 3x3 to 5x5 filters, has 7x7");
  p.x_layout = Layout::nchw;
  EXPECT_EQ(reason(p), "");
  p = problem("ic3ih12oc16oh12kh3ph1");
  p.x_layout = Layout::nchw;
  p.pass = Pass::backward_data;
  EXPECT_EQ(reason(p), "takes gradients of a plain input where a stride folds, has stride 1");
  p = problem("ic3ih23oc16oh12kh3sh2ph1");
  p.x_layout = Layout::nchw;
  EXPECT_EQ(reason(p),
            "folds a stride of 1, 2 or 4 where 3x3 to 5x5 taps are left, has 3x3 of stride 2x2");
  p = problem("ic16ih8oc16oh8kh3ph1");
  p.dtype = DType::f64;
  EXPECT_EQ(reason(p), "takes f32, not f64");
}

TEST(Winograd, RejectsAConfigItDoesNotKnow) {
  const auto device = make_cpu_device();
  const ConvProblem p = blocked("mb1ic16ih8oc16oh8kh3ph1", Pass::forward, *device);
  EXPECT_THROW(winograd().plan(p, {{"tile", 3}, {"shared", 0}, {"block", 1}}, *device), InputError);
  EXPECT_THROW(winograd().plan(p, {{"tile", 4}, {"shared", 0}, {"block", 0}}, *device), InputError);
  EXPECT_THROW(winograd().plan(p, {{"tile", 4}}, *device), InputError);
  EXPECT_THROW(winograd().plan(p, {{"tile", 4}, {"rows", 1}}, *device), InputError);
  ConvProblem first = blocked("mb1ic3ih8oc16oh8kh3ph1", Pass::forward, *device);
  first.x_layout = Layout::nchw;
  EXPECT_NO_THROW(winograd().plan(first, {{"tile", 4}, {"rows", 1}}, *device));
  EXPECT_THROW(winograd().plan(first, {{"tile", 6}, {"rows", 1}}, *device), InputError);
  Config panels{{"tile", 4}, {"shared", 0}, {"block", 1}, {"panels", 1}};
  EXPECT_NO_THROW(winograd().plan(p, panels, *device));
  panels.set("shared", 1);
  EXPECT_THROW(winograd().plan(p, panels, *device), InputError);
  const Config fused{{"tile", 4}, {"shared", 1}, {"block", 4}, {"fused", 1}};  // 8 x 8: 4 tiles
  EXPECT_EQ(winograd().plan(p, fused, *device)->packed_filter_bytes(), 0u);
  Config part = fused;
  part.set("block", 2);
  EXPECT_THROW(winograd().plan(p, part, *device), InputError);
  part = fused;
  part.set("shared", 0);
  EXPECT_THROW(winograd().plan(p, part, *device), InputError);
  part.set("panels", 1);
  EXPECT_NO_THROW(winograd().plan(p, part, *device));
  EXPECT_THROW(winograd().plan(first, fused, *device), InputError);
  const ConvProblem gradient = blocked("mb1ic16ih8oc16oh8kh3ph1", Pass::backward_filter, *device);
  EXPECT_THROW(winograd().plan(gradient, fused, *device), InputError);
}

}  // namespace
}  // namespace convlab
