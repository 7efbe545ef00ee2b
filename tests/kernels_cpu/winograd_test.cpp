// Winograd, beyond the test over the registry: blocks of few tiles, sums over several blocks,
// products deeper than one part, and accuracy.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "autotune/testbed/verify.h"
#include "conv/error.h"
#include "conv/refusals.h"
#include "conv/registry.h"
#include "kernels_cpu/cpu.h"
#include "tests/cpu_backed_device.h"

namespace convlab {
namespace {

const ConvAlgo& algo(const char* id) {
  static const AlgoRegistry registry = [] {
    AlgoRegistry r;
    append_cpu_algos(r);
    return r;
  }();
  return registry.get(DeviceKind::cpu, id);
}
const ConvAlgo& winograd() { return algo("winograd"); }
const ConvAlgo& winograd_1d() { return algo("winograd_1d"); }

constexpr DType dtypes[] = {DType::f32, DType::f64};

ConvProblem blocked(const char* text, Pass pass, const Device& device, DType dtype = DType::f32) {
  ConvProblem p = parse_problem(text).problem;
  p.pass = pass;
  p.dtype = dtype;
  p.x_layout = p.y_layout = blocked_layout(device.info());
  return p;
}

CheckResult check(const ConvProblem& p, const Config& config, const ReferenceCase& reference,
                  Device& device, const ConvAlgo& algo = winograd()) {
  const auto stream = device.make_stream();
  return check_candidate(algo, p, config, reference, device, *stream,
                         p.dtype == DType::f64 ? 1e-12 : 5e-5);
}

void expect_right(const ConvProblem& p, const Config& config, const ReferenceCase& reference,
                  Device& device, const ConvAlgo& algo = winograd()) {
  const CheckResult verdict = check(p, config, reference, device, algo);
  EXPECT_EQ(verdict.status, Status::ok)
      << verdict.reason << "\n  " << to_text(p) << ' ' << to_string(p.pass) << ' '
      << to_string(p.dtype) << ' ' << config.text() << ' ' << device.info().isa << ' '
      << device.info().threads;
}

// Every tile size under each schedule that packs the filter, in blocks of 1, of 5 and of all tiles.
// configs() offers only those that may be fast.
std::vector<Config> all_configs(const ConvProblem& p) {
  const bool data = p.pass == Pass::backward_data;
  std::vector<Config> configs;
  const std::vector<std::int64_t> sizes = p.r == 3   ? std::vector<std::int64_t>{2, 4, 6}
                                          : p.r == 4 ? std::vector<std::int64_t>{4, 5}
                                                     : std::vector<std::int64_t>{2, 4};
  for (const std::int64_t m : sizes) {
    const std::int64_t tiles = p.n * ceil_div(data ? p.h : p.p, m) * ceil_div(data ? p.w : p.q, m);
    for (const char* const schedule : {"private", "shared", "panels"})
      for (const std::int64_t block :
           std::set<std::int64_t>{1, std::min<std::int64_t>(5, tiles), tiles})
        configs.push_back({{"tile", m}, {"schedule", schedule}, {"block", block}});
  }
  return configs;
}

// Where a pixel's channel block is one vector.
bool fills_lines(const std::string& isa, DType dtype) {
  return isa == "avx512" || (isa == "avx2" && dtype == DType::f32);
}

TEST(Winograd, TakesTilesInBlocksOfAnySize) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text :
           {"mb2ic20ih18iw15oc40oh18ow15kh3ph1", "mb1ic40ih4oc5oh4kh3ph1",
            "mb1ic14ih9oc21oh9kh3ph1",          // 13 to 16 columns, depth not a multiple of 4
            "mb1ic16ih5iw70oc16oh5ow70kh3ph1",  // rows of many tiles
            "mb1ic18ih9iw11oc34oh7ow9kh5ph1", "mb1ic19ih9iw12oc34oh10ow13kh4ph2"})
        for (const Pass pass : all_passes)
          for (const DType dtype : dtypes) {
            const ConvProblem p = blocked(text, pass, *device, dtype);
            const ReferenceCase reference(p, 1);
            std::vector<Config> configs = all_configs(p);
            if (pass != Pass::backward_filter && fills_lines(isa, dtype)) {
              configs.push_back(configs.front());
              configs.back().set("stores", "nontemporal");  // offered for large outputs
            }
            for (const Config& config : configs) expect_right(p, config, reference, *device);
          }
    }
}

// In backward_filter's final sums each thread computes M panel by panel, even if its share begins
// within a panel: six or more chunks of three or six panels.
TEST(Winograd, ThreadsPartWithinAPanel) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {2, 4}) {
      const auto device = make_cpu_device({threads, isa});
      for (const DType dtype : dtypes) {
        const ConvProblem p =
            blocked("mb1ic176ih9oc96oh9kh3ph1", Pass::backward_filter, *device, dtype);
        const ReferenceCase reference(p, 9);
        expect_right(p, {{"tile", 6}, {"schedule", "shared"}, {"block", 4}}, reference, *device);
      }
    }
}

// Small images lie side by side in a mosaic: covers their seams, paddings of every size, and the
// epilogue there. In each problem some pass and tile size has a mosaic, with fewer tiles than
// separate images need.
TEST(Winograd, LaysSmallImagesSideBySide) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text : {"mb4ic20ih7oc40oh7kh3ph1", "mb6ic20ih5iw7oc18oh3ow7kh3ph0pw1",
                               "mb7ic16ih2oc16oh2kh3ph1", "mb4ic18ih5oc34oh5kh5ph2",
                               "mb4ic16ih5oc16oh9kh3ph3", "mb4ic16ih7oc16oh11kh3ph3"}) {
        bool mosaic = false;
        for (const Pass pass : all_passes)
          for (const DType dtype : dtypes) {
            ConvProblem p = blocked(text, pass, *device, dtype);
            p.accumulate = pass == Pass::backward_data;
            if (pass == Pass::forward)
              p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
            const ReferenceCase reference(p, 4);
            for (const Config& config : all_configs(p)) {
              try {
                (void)winograd().plan(p, config, *device);
              } catch (const InputError&) {
                mosaic = true;  // a mosaic has no such number of tiles
                continue;
              }
              expect_right(p, config, reference, *device);
            }
          }
        EXPECT_TRUE(mosaic) << text;
      }
    }
}

// Dilated: remainders of unequal size, or of none, one dimension only, paddings of every size.
TEST(Winograd, TakesADilatedImageRemainderByRemainder) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text :
           {"mb2ic20ih19iw17oc40oh19ow17kh3dh1ph2", "mb1ic17ih13iw30oc16oh13ow30kh3dh0dw3ph1pw4",
            "mb1ic16ih11iw9oc18oh7ow13kh3dh2dw1ph0pw4", "mb3ic16ih2iw20oc16oh2ow20kh3dh3ph4",
            "mb2ic18ih14oc34oh14kh5dh1ph4", "mb1ic19ih12iw15oc21oh9ow10kh4dh1ph2pw0"})
        for (const Pass pass : all_passes)
          for (const DType dtype : dtypes) {
            ConvProblem p = blocked(text, pass, *device, dtype);
            p.accumulate = pass == Pass::backward_data;
            if (pass == Pass::forward)
              p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
            const ReferenceCase reference(p, 6);
            for (const Config& config : winograd().configs(p, *device))
              expect_right(p, config, reference, *device);
          }
    }
}

// A group a thread, and all threads on one group after another; blocks, mosaics and strides are a
// group's own.
TEST(Winograd, TakesGroupsOneByOne) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 2, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text : {"g2mb3ic64ih9iw15oc32oh9ow15kh3ph1",
                               "g4mb1ic64ih12oc128oh6kh3sh2ph1", "g3mb4ic48ih7oc144oh7kh3ph1",
                               "g2mb2ic32ih11oc32oh11kh3dh1ph2", "g2mb2ic32ih12oc32oh6kh4sh2ph1"})
        for (const Pass pass : all_passes)
          for (const DType dtype : dtypes) {
            ConvProblem p = blocked(text, pass, *device, dtype);
            p.accumulate = pass != Pass::forward;
            if (pass == Pass::forward)
              p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
            const ReferenceCase reference(p, 6);
            for (Config config : winograd().configs(p, *device)) {
              expect_right(p, config, reference, *device);
              if (config.has("block") && config.get("block") > 2) {
                config.set("block", 2);
                expect_right(p, config, reference, *device);
              }
            }
          }
    }
}

// Stride 2: stride phases with one tap and with two, all with two, rows and columns of x that no
// output reads, paddings of every parity, mosaics, and products over few of the stride phases.
TEST(Winograd, TakesAStrideOfTwoPhaseByPhase) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text :
           {"mb2ic20ih32iw17oc40oh16ow9kh3sh2ph1", "mb6ic18ih7oc34oh4kh3sh2ph1",
            "mb1ic17ih13iw12oc16oh6ow5kh3sh2ph0", "mb3ic16ih4iw5oc18oh4ow4kh3sh2ph3pw2",
            "mb1ic16ih7iw75oc16oh4ow38kh3sh2ph1", "mb2ic20ih16iw17oc40oh8ow8kh4sh2ph1",
            "mb6ic18ih6oc34oh3kh4sh2ph1", "mb1ic17ih13iw12oc16oh5ow5kh4sh2ph0",
            "mb3ic16ih5iw6oc18oh4ow4kh4sh2ph3pw2"})
        for (const Pass pass : all_passes)
          for (const DType dtype : dtypes) {
            ConvProblem p = blocked(text, pass, *device, dtype);
            p.accumulate = pass == Pass::backward_data;
            if (pass == Pass::forward)
              p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
            const ReferenceCase reference(p, 5);
            std::vector<Config> configs = winograd().configs(p, *device);
            for (const std::int64_t m : {4, 7})
              for (const char* const schedule : {"private", "shared"})
                configs.push_back({{"tile", m}, {"schedule", schedule}, {"block", 1}});
            if (pass != Pass::backward_filter) {
              configs.push_back({{"tile", 4}, {"schedule", "panels"}, {"block", 2}});
              for (const std::int64_t m : {4, 7})
                for (const char* const schedule : {"unpacked_shared", "unpacked_private"})
                  configs.push_back({{"tile", m}, {"schedule", schedule}});
            }
            if (pass == Pass::forward && fills_lines(isa, dtype))
              configs.front().set("stores", "nontemporal");  // offered for large outputs
            for (const Config& config : configs) expect_right(p, config, reference, *device);
          }
    }
}

// First layers, x in plain NCHW: every stride that folds with every remaining number of taps,
// filters that end within a stride, paddings that the stride does not divide, pixels that no output
// reads.
TEST(Winograd, FoldsTheStrideOfAFirstLayer) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text :
           {"mb2ic3ih33iw30oc40oh17ow15kh7sh2ph3", "mb3ic3ih47iw51oc18oh11ow12kh11sh4ph2",
            "mb1ic1ih13iw12oc5oh6ow6kh6sh2ph2", "mb2ic2ih19iw22oc34oh9ow10kh9sh2ph3",
            "mb1ic4ih40iw28oc16oh7ow4kh16sh4ph0", "mb2ic3ih12iw15oc20oh12ow15kh3ph1",
            "mb1ic3ih9iw100oc16oh5ow50kh7sh2ph3", "mb1ic3ih6iw44oc16oh6ow44kh3ph1",
            "mb2ic3ih12iw15oc20oh11ow14kh4ph1", "mb1ic2ih6iw44oc16oh6ow44kh5ph2"})
        for (const Pass pass : all_passes)
          for (const DType dtype : dtypes) {
            ConvProblem p = blocked(text, pass, *device, dtype);
            if (pass == Pass::backward_data && p.stride_h == 1) continue;
            if (pass == Pass::forward && p.stride_h == 1 && p.r == 3 && dtype == DType::f32)
              continue;  // see winograd_1d
            p.x_layout = Layout::nchw;
            p.accumulate = threads == 1 || pass == Pass::backward_filter;
            if (pass == Pass::forward && !p.accumulate)
              p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
            ASSERT_FALSE(winograd().refuse(p, *device)) << text;
            const ReferenceCase reference(p, 6);
            std::vector<Config> configs = winograd().configs(p, *device);
            for (const char* const schedule : {"private", "shared"})
              configs.push_back({{"tile", 4}, {"schedule", schedule}, {"block", 1}});
            for (const Config& config : configs) expect_right(p, config, reference, *device);
          }
    }
}

// First layers of stride 1: rows of every remainder, shorter than a tile and longer than a register
// tile, any number of filters, whole rows of padding, bands that end within an image, and the
// epilogue there.
TEST(Winograd1d, TakesFirstLayersOfStrideOne) {
  for (const std::string& isa : supported_isas())
    for (const int threads : {1, 3}) {
      const auto device = make_cpu_device({threads, isa});
      for (const char* text :
           {"mb2ic3ih40iw37oc40oh40ow37kh3ph1", "mb1ic1ih5iw70oc5oh3ow68kh3ph0",
            "mb3ic4ih6iw2oc17oh10ow6kh3ph3", "mb1ic2ih19iw23oc64oh20ow24kh3ph1"}) {
        ConvProblem p = blocked(text, Pass::forward, *device);
        p.x_layout = Layout::nchw;
        p.accumulate = threads == 1;
        if (!p.accumulate)
          p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
        const ReferenceCase reference(p, 8);
        ASSERT_FALSE(winograd_1d().refuse(p, *device)) << text;
        Config config{{"tile", 4}};
        EXPECT_EQ(winograd_1d().configs(p, *device), std::vector<Config>{config}) << text;
        expect_right(p, config, reference, *device, winograd_1d());
        if (p.accumulate) continue;
        config.set("stores", "nontemporal");
        expect_right(p, config, reference, *device, winograd_1d());
      }
    }
}

// CONVLAB_MACHINE takes any size: with half of L1 below one row of a panel there was a division by
// zero.
TEST(Winograd, ComputesWithCachesOfOneByte) {
  class TinyDevice : public CpuBackedDevice {
   public:
    TinyDevice() { info_.l1_bytes = info_.l2_bytes = 1, info_.l3_bytes = 0; }
  } device;
  for (const Pass pass : all_passes)
    for (const DType dtype : dtypes) {
      const ConvProblem p = blocked("mb2ic19ih13oc23oh13kh3ph1", pass, device, dtype);
      const ReferenceCase reference(p, 6);
      const std::vector<Config> configs = winograd().configs(p, device);
      ASSERT_FALSE(configs.empty());
      for (const Config& config : configs) expect_right(p, config, reference, device);
    }
}

// Inside a program's own parallel region, a plan for three threads gets only one.
TEST(Winograd, RunsWithFewerThreadsThanPlannedFor) {
  const auto device = make_cpu_device({3, ""});
  for (const Pass pass : all_passes)
    for (const DType dtype : dtypes) {
      const ConvProblem p = blocked("mb1ic20ih9oc100oh9kh3ph1", pass, *device, dtype);
      const ReferenceCase reference(p, 7);
#pragma omp parallel num_threads(2)
#pragma omp single
      for (const Config& config : all_configs(p)) expect_right(p, config, reference, *device);
    }
}

// More channels and more tiles than fit one part of a product.
TEST(Winograd, SplitsDeepProducts) {
  const auto device = make_cpu_device({2, ""});
  for (const char* text :
       {"mb1ic500ih9oc40oh9kh3ph1", "mb1ic16ih60oc16oh60kh3ph1", "mb1ic32ih24oc32oh24kh3ph1"})
    for (const Pass pass : all_passes)
      for (const DType dtype : dtypes) {
        const ConvProblem p = blocked(text, pass, *device, dtype);
        const ReferenceCase reference(p, 2);
        for (const Config& config : all_configs(p)) expect_right(p, config, reference, *device);
      }
}

// F(6,3) loses most: 6.6e-6 of the output's norm in the experiment of cook_toom_test.cpp, which
// sums over all channels at once; 4.5e-6 with partial sums over parts of the channels. f64 is 2^29
// times as accurate, but then the reference errs as well.
TEST(Winograd, ErrsLessThanSumsOverAllChannels) {
  const auto device = make_cpu_device({2, ""});
  for (const Pass pass : all_passes)
    for (const DType dtype : dtypes) {
      const ConvProblem p = blocked("mb1ic256ih24oc64oh24kh3ph1", pass, *device, dtype);
      const ReferenceCase reference(p, 3);
      for (const Config& config : all_configs(p)) {
        if (config.get("block") != 5) continue;
        const CheckResult verdict = check(p, config, reference, *device);
        const std::string what =
            fmt::format("{} {} {}", to_string(pass), to_string(dtype), config.text());
        RecordProperty(what, fmt::format("{:.2e}", verdict.rel_error));
        EXPECT_LT(verdict.rel_error, dtype == DType::f64 ? 1e-13 : 5.5e-6) << what;
      }
    }
}

// A plain running sum over 50,000 pixels errs by 9.8e-6 with tile=6 and by 3.7e-6 with tile=4
// (measured), because each product is rounded to the magnitude of the sum so far.
TEST(Winograd, LongSumsErrLittle) {
  const auto device = make_cpu_device({2, ""});
  const ConvProblem p = blocked("mb1ic16ih224oc16oh224kh3ph1", Pass::backward_filter, *device);
  const ReferenceCase reference(p, 4);
  for (const Config& config : winograd().configs(p, *device)) {
    const CheckResult verdict = check(p, config, reference, *device);
    EXPECT_LT(verdict.rel_error, config.get("tile") == 6 ? 7e-6 : 2e-6) << config.text();
  }
}

// The first config runs untuned. The list has no duplicates and no hopeless configs.
TEST(Winograd, OffersEachConfigOnce) {
  const auto device = make_cpu_device({2, ""});
  for (const Pass pass : all_passes)
    for (const DType dtype : dtypes) {
      const ConvProblem p = blocked("mb1ic64ih14oc64oh14kh3ph1", pass, *device, dtype);
      const std::vector<Config> configs = winograd().configs(p, *device);
      ASSERT_FALSE(configs.empty());
      for (std::size_t i = 0; i < configs.size(); ++i) {
        EXPECT_GT(winograd().work(p, configs[i], *device).flops(), 0);
        for (std::size_t j = 0; j < i; ++j) EXPECT_NE(configs[i].text(), configs[j].text());
      }
    }
}

// Whether sharing blocks between threads is fast depends on the cores they run on.
TEST(Winograd, OffersSharedBlocksAndNot) {
  struct TwoZen4Cores : CpuBackedDevice {
    TwoZen4Cores() : CpuBackedDevice({.threads = 2, .isa = {}}) {
      info_.l1_bytes = 32 << 10;
      info_.l2_bytes = 1 << 20;
      info_.l3_bytes = 32 << 20;
    }
  } device;
  const ConvProblem p = blocked("mb16ic32ih7oc128oh7kh5ph2", Pass::backward_filter, device);
  std::set<bool> shared;
  for (const Config& config : winograd().configs(p, device))
    shared.insert(config.choice("schedule") == "shared");
  EXPECT_EQ(shared.size(), 2U);
}

// Layers of VGG-16, ResNet-18 and AlexNet. For most of them, the sums over tiles alone would exceed
// the limit.
TEST(Winograd, FilterGradientsTakeTwiceTheirOperandsAtMost) {
  for (const int threads : {1, 2}) {
    const auto device = make_cpu_device({threads, ""});
    for (const char* text : {"mb4ic512ih28oc512oh28kh3ph1", "mb4ic512ih14oc512oh14kh3ph1",
                             "mb16ic512ih7oc512oh7kh3ph1", "mb16ic256ih14oc256oh14kh3ph1",
                             "mb16ic192ih13oc384oh13kh3ph1", "mb1ic64ih56oc64oh56kh3ph1"})
      for (const DType dtype : dtypes) {
        const ConvProblem p = blocked(text, Pass::backward_filter, *device, dtype);
        const auto operands = std::size_t(p.x_bytes() + p.y_bytes() + p.filter_bytes());
        for (const Config& config : winograd().configs(p, *device))
          EXPECT_LE(winograd().plan(p, config, *device)->workspace_bytes(), 2 * operands)
              << text << ' ' << to_string(dtype) << ' ' << config.text() << ", " << threads
              << " threads";
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
  EXPECT_EQ(reason(problem("ic16ih8oc16oh4kh4sh2ph1")), "");
  EXPECT_EQ(reason(problem("ic16ih8oc16oh4kh5sh2ph2")), "needs stride 1, has 2x2");
  EXPECT_EQ(reason(problem("ic16ih8oc16oh4ow8kh3sh2sw1ph1pw1")), "needs stride 1, has 2x1");
  EXPECT_EQ(reason(problem("ic16ih9oc16oh9kh3dh1ph2")), "");
  EXPECT_EQ(reason(problem("ic16ih9oc16oh8kh3dh1ph1pw2")),
            "needs padding in multiples of the dilation, 2x2, has 1x2");
  EXPECT_EQ(reason(problem("ic16ih9oc16oh5kh3sh2dh1ph2")), "needs stride 1, has 2x2");
  EXPECT_EQ(reason(problem("g2ic32ih8oc32oh8kh3ph1")), "");
  EXPECT_EQ(reason(problem("g2ic40ih8oc32oh8kh3ph1")),
            fmt::format("needs channels and filters of a group in multiples of {}, has 2 groups of "
                        "20 channels and 16 filters",
                        channel_block(p.x_layout)));
  EXPECT_EQ(reason(problem("ic16ih8oc16oh8kh1ph0")), "needs a 3x3 to 5x5 filter, has 1x1");
  p = problem("ic3ih23oc16oh12kh7sh2ph3");
  EXPECT_EQ(reason(p), "needs a 3x3 to 5x5 filter, has 7x7");
  p.x_layout = Layout::nchw;
  EXPECT_EQ(reason(p), "");
  p = problem("ic3ih12oc16oh12kh3ph1");
  p.x_layout = Layout::nchw;
  p.pass = Pass::backward_data;
  EXPECT_EQ(reason(p), "needs a stride of 2 or 4 for the gradient of a plain input, has 1");
  p = problem("ic3ih23oc16oh12kh3sh2ph1");
  p.x_layout = Layout::nchw;
  EXPECT_EQ(reason(p),
            "needs a stride of 1, 2 or 4 whose folding leaves 3x3 to 5x5 taps, has 3x3 of stride "
            "2x2");
  p = problem("ic3ih12oc16oh12kh3ph1");
  p.x_layout = Layout::nchw;
  EXPECT_EQ(reason(p),
            "needs 4x4 or 5x5 in the forward of a first layer of stride 1, has 3x3, which "
            "winograd_1d takes");
  p.dtype = DType::f64;  // which winograd_1d does not take
  EXPECT_EQ(reason(p), "");
  // Few channels, and refused for what blocked layouts refuse as well.
  for (const Pass pass : all_passes) {
    const auto plain = [&](const char* text) {
      ConvProblem few = problem(text);
      few.pass = pass;
      few.x_layout = Layout::nchw;
      return reason(few);
    };
    EXPECT_EQ(plain("ic3ih12oc16kh3dh1ph3"),
              "needs padding in multiples of the dilation, 2x2, has 3x3");
    EXPECT_EQ(plain("ic3ih12oc16kh7dh1ph3"), "needs a 3x3 to 5x5 filter, has 7x7");
    EXPECT_EQ(plain("ic3ih12oc16kh3dh1ph2"), "needs dilation 1 with x in nchw, has 2x2");
    EXPECT_EQ(plain("g3ic3ih12oc12kh3ph1"),
              fmt::format("needs channels and filters of a group in multiples of {}, has 3 groups "
                          "of 1 channel and 4 filters",
                          channel_block(p.y_layout)));
    EXPECT_EQ(plain("g2ic4ih12oc2kh4sh2ph1"),
              fmt::format("needs channels and filters of a group in multiples of {}, has 2 groups "
                          "of 2 channels and 1 filter",
                          channel_block(p.y_layout)));
  }
  p = problem("ic16ih8oc16oh8kh3ph1");
  p.dtype = DType::f64;
  EXPECT_EQ(reason(p), "");
  p.dtype = DType::f16;  // computed in f32
  EXPECT_EQ(reason(p), "");
}

TEST(Winograd1d, SaysWhyItRefuses) {
  const auto device = make_cpu_device();
  const auto reason = [&](const char* text, Layout x, Pass pass = Pass::forward,
                          DType dtype = DType::f32) {
    ConvProblem p = blocked(text, pass, *device, dtype);
    p.x_layout = x;
    const auto refusal = winograd_1d().refuse(p, *device);
    return refusal ? refusal->reason() : "";
  };
  EXPECT_EQ(reason("ic3ih12oc16oh12kh3ph1", Layout::nchw), "");
  EXPECT_EQ(reason("ic3ih12oc16oh12kh3ph1", Layout::nchw, Pass::backward_filter),
            "needs fwd, has bwd_w");
  EXPECT_EQ(reason("ic3ih12oc16oh12kh3ph1", Layout::nchw, Pass::forward, DType::f64),
            "needs f32, has f64");
  EXPECT_EQ(reason("ic3ih12oc16oh12kh3ph1", Layout::nhwc), "needs x in nchw, has nhwc");
  EXPECT_EQ(reason("ic5ih12oc16oh12kh3ph1", Layout::nchw), "needs at most 4 channels of x, has 5");
  EXPECT_EQ(reason("ic3ih12oc16oh12kh5ph2", Layout::nchw), "needs a 3x3 filter, has 5x5");
  EXPECT_EQ(reason("ic3ih12oc16oh6kh3sh2ph1", Layout::nchw), "needs stride 1, has 2x2");
}

TEST(Winograd, RejectsAConfigItDoesNotKnow) {
  const auto device = make_cpu_device();
  const ConvProblem p = blocked("mb1ic16ih8oc16oh8kh3ph1", Pass::forward, *device);
  const auto reason = [&](const ConvProblem& problem, const char* config,
                          const ConvAlgo& algo = winograd()) -> std::string {
    try {
      (void)algo.plan(problem, Config::parse(config), *device);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const auto expect_says = [&](const ConvProblem& problem, const char* config, const char* part) {
    EXPECT_NE(reason(problem, config).find(part), std::string::npos)
        << config << ": " << reason(problem, config);
  };
  EXPECT_EQ(reason(p, "tile=4,schedule=panels,block=1"), "");
  expect_says(p, "tile=3,schedule=private,block=1", "no tile=3 for 3x3");
  expect_says(p, "tile=4,schedule=private,block=0", "expected 1 to 4 tiles");
  expect_says(p, "tile=4,schedule=both,block=1",
              "private, shared, panels, unpacked_shared, unpacked_private");
  EXPECT_NE(reason(p, "tile=4,schedule=1,block=1"), "");
  EXPECT_NE(reason(p, "tile=4,block=1"), "");
  EXPECT_NE(reason(p, "tile=4,schedule=private"), "");
  ConvProblem first = blocked("mb1ic3ih23oc16oh12kh7sh2ph3", Pass::forward, *device);
  first.x_layout = Layout::nchw;
  const ConvProblem gradient = blocked("mb1ic16ih8oc16oh8kh3ph1", Pass::backward_filter, *device);
  for (const char* const unpacked :
       {"tile=4,schedule=unpacked_shared", "tile=4,schedule=unpacked_private"}) {
    EXPECT_EQ(winograd().plan(p, Config::parse(unpacked), *device)->packed_filter_bytes(), 0u);
    expect_says(p, fmt::format("{},block=4", unpacked).c_str(), "has no block");
    expect_says(first, unpacked, "expected fwd or bwd_d, no first layer");
    expect_says(gradient, unpacked, "expected fwd or bwd_d, no first layer");
  }
  first = blocked("mb1ic3ih8oc16oh8kh3ph1", Pass::forward, *device);
  first.x_layout = Layout::nchw;
  EXPECT_EQ(reason(first, "tile=4", winograd_1d()), "");
  EXPECT_EQ(reason(first, "tile=6", winograd_1d()), "winograd_1d's tile: expected 4, has 6");
}

}  // namespace
}  // namespace convlab
