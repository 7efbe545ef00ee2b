// depthwise beyond the test over the registry: rows of all lengths around its tiles, parts of
// vectors, large filters, caches and thread counts that cut the work otherwise; and the lines into
// which strides and dilations are cut.
#include "kernels_cpu/depthwise/depthwise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "autotune/testbed/verify.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/depthwise/rows.h"
#include "kernels_cpu/gemm/non_temporal.h"
#include "tests/cpu_backed_device.h"
#include "tests/kernels_cpu/expect_exact.h"
#include "tests/kernels_cpu/isas.h"

namespace convlab {
namespace {

// Every output and tap, with the input that it reads, is in one line, and no other is.
void expect_each_once(const cpu::Dimension& d) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> reads;  // input by output and tap
  const cpu::Lines lines = cpu::lines_of(d);
  ASSERT_EQ(std::int64_t(lines.order.size()), d.taps);
  std::int64_t outputs = 0;
  for (const cpu::Line& line : lines.lines) {
    outputs += line.count;
    for (const cpu::Run& run : line.runs)
      for (std::int64_t i = 0; i < line.count; ++i)
        for (std::int64_t t = 0; t < run.taps; ++t) {
          const std::int64_t output = line.first + i * lines.out_step;
          const std::int64_t tap = lines.order.at(std::size_t(run.slot + t));
          ASSERT_LT(output, d.out);
          EXPECT_TRUE(reads.try_emplace({output, tap}, run.first + lines.in_step * (i + t)).second);
        }
  }
  EXPECT_EQ(outputs, d.out);
  for (std::int64_t output = 0; output < d.out; ++output) {
    std::map<std::int64_t, std::int64_t> inside;
    for (const cpu::InsideTap& tap : cpu::inside_taps_of(d, output)) inside[tap.tap] = tap.in;
    for (std::int64_t tap = 0; tap < d.taps; ++tap) {
      const std::int64_t at = d.backward ? output + d.pad - tap * d.dilation
                                         : output * d.stride - d.pad + tap * d.dilation;
      const auto found = reads.find({output, tap});
      if (d.backward && at % d.stride != 0) {
        EXPECT_EQ(found, reads.end());
        continue;
      }
      const std::int64_t in = d.backward ? at / d.stride : at;
      ASSERT_NE(found, reads.end()) << output << ' ' << tap;
      EXPECT_EQ(found->second, in);
      EXPECT_EQ(inside.contains(tap), in >= 0 && in < d.in);
      if (inside.contains(tap)) {
        EXPECT_EQ(inside[tap], in);
      }
    }
  }
}

TEST(DepthwiseLines, HaveEachOutputAndTapOnce) {
  for (std::int64_t stride = 1; stride <= 4; ++stride)
    for (std::int64_t dilation = 1; dilation <= 6; ++dilation)
      for (const std::int64_t taps : {1, 2, 3, 5, 8})
        for (const std::int64_t out : {1, 2, 5, 13})
          for (const bool backward : {false, true}) {
            SCOPED_TRACE(fmt::format("stride {} dilation {} taps {} out {} backward {}", stride,
                                     dilation, taps, out, backward));
            expect_each_once({.in = 11,
                              .out = out,
                              .taps = taps,
                              .stride = stride,
                              .dilation = dilation,
                              .pad = taps / 2,
                              .backward = backward});
          }
}

class Depthwise : public testing::TestWithParam<std::string> {
 protected:
  // In nhwc and blocked, in all passes.
  void check(const std::string& text, DType dtype = DType::f32) {
    for (const Pass pass : all_passes)
      for (const bool blocked : {false, true}) {
        ConvProblem p = blocked_problem(text, pass, GetParam());
        if (!blocked) p.x_layout = p.y_layout = Layout::nhwc;
        p.dtype = dtype;
        expect_exact(*algo_, p, GetParam());
      }
  }
  const std::unique_ptr<ConvAlgo> algo_ = cpu::make_depthwise();
};

// One, two and three tiles and their ends, of every chunk's width.
TEST_P(Depthwise, TakesRowsOfAnyLength) {
  for (int width = 1; width <= (reduced() ? 16 : 31); ++width)
    check(fmt::format("g20mb1ic20ih3iw{0}oc20oh3ow{0}kh3ph1", width));
  for (const int taps : {2, 4, 5, 6, 7, 8, 9, 11})
    for (const int width : {7, 14, 17, 33})
      check(fmt::format("g9mb1ic9ih4iw{}oc9kh2kw{}ph1pw{}", width, taps, taps / 2));
}

TEST_P(Depthwise, TakesStridesAndDilations) {
  for (const char* field :
       {"sh2", "sh3", "dh1", "dh2", "sh2dh1", "sh2dh2", "sh3dh1", "sh4dh2", "sh4dh5"})
    for (const int size : {25, 44})
      for (const int taps : {3, 5})
        check(fmt::format("g18mb1ic18ih{0}iw{0}oc18kh{1}ph{2}{3}", size, taps, taps / 2, field));
}

TEST_P(Depthwise, TakesPartsOfVectors) {
  for (int channels = 2; channels <= 35; ++channels)
    for (const DType dtype : {DType::f32, DType::f64})
      check(fmt::format("g{0}mb2ic{0}ih5iw8oc{0}kh3ph1", channels), dtype);
}

// In blocked layouts as many filters a channel as divide a vector.
TEST_P(Depthwise, TakesSeveralFiltersAChannel) {
  for (const char* text : {"g20mb2ic20ih5iw17oc40kh3ph1", "g33mb1ic33ih7iw15oc66kh3ph1sh2",
                           "g9mb1ic9ih6iw9oc18kh5ph2dh1", "g18mb1ic18ih5iw20oc36kh1kw9ph0pw4"})
    for (const DType dtype : {DType::f32, DType::f64}) check(text, dtype);
  for (const int filters : {3, 4, 5, 16, 17})
    for (const int channels : {2, 7, 16, 19}) {
      const std::string text =
          fmt::format("g{0}mb1ic{0}ih5iw8oc{1}kh3ph1", channels, channels * filters);
      for (const Pass pass : all_passes) {
        ConvProblem p = blocked_problem(text, pass, GetParam());
        if (filters == 4) expect_exact(*algo_, p, GetParam());
        p.x_layout = p.y_layout = Layout::nhwc;
        expect_exact(*algo_, p, GetParam());
      }
    }
}

TEST_P(Depthwise, TakesLargeFiltersAndLongRows) {
  for (const char* text : {"g17mb1ic17ih20oc17kh31ph15", "g4mb1ic4ih9oc4kh13ph6",
                           "g18mb2ic18ih1iw90oc18kh1kw31ph0pw15", "g16mb1ic16iw70oc16ow70kw4pw3",
                           "g33mb1ic33ih40iw1oc33kh29kw1ph14pw0", "g8mb1ic8ih30oc8kh27ph13dh1"})
    for (const DType dtype : {DType::f32, DType::f64}) check(text, dtype);
}

TEST_P(Depthwise, StoresNonTemporally) {
  ConvProblem p = blocked_problem("g48mb2ic48ih9oc48kh3ph1", Pass::forward, GetParam());
  p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
  for (const Layout layout : {p.x_layout, Layout::nhwc})
    for (const std::int64_t filters : {1, 2}) {
      p.k = p.c * filters;
      p.x_layout = p.y_layout = layout;
      expect_exact(*algo_, p, GetParam(), [](std::vector<Config>& configs) {
        configs.push_back(cpu::with_nontemporal_stores({}));
      });
    }
}

INSTANTIATE_TEST_SUITE_P(Isas, Depthwise, testing::ValuesIn(isas()));

// Caches so small that bands of rows, spans of tiles and groups of channels are cut to the least,
// and more threads than there are rows.
class SmallCaches : public CpuBackedDevice {
 public:
  SmallCaches(int threads, std::int64_t l2) : CpuBackedDevice({.threads = threads, .isa = ""}) {
    info_.l1_bytes = 1 << 10;
    info_.l2_bytes = l2;
  }
};

TEST(DepthwiseBlocks, OfAnySizeGiveTheSame) {
  const auto algo = cpu::make_depthwise();
  for (const char* text :
       {"g70mb2ic70ih9iw40oc70kh3ph1", "g70mb2ic70ih9iw40oc140kh3ph1",
        "g40mb1ic40ih21iw33oc40kh5ph2sh2", "g40mb2ic40ih21iw33oc40kh3ph1sh2",
        "g150mb1ic150ih3oc150kh3ph1", "g24mb1ic24iw200oc24kw9pw4", "g5mb3ic5ih12oc5kh7ph3"})
    for (const int threads : {2, 7})
      for (const std::int64_t l2 : {1 << 10, 1 << 15}) {
        SmallCaches device(threads, l2);
        const auto stream = device.make_stream();
        for (const Pass pass : all_passes)
          for (const Layout layout : {Layout::nhwc, blocked_layout(device.info())}) {
            ConvProblem p = parse_problem(text).problem;
            p.pass = pass;
            p.x_layout = p.y_layout = layout;
            const ReferenceCase reference(p, 5, DataKind::small_integers);
            for (const Config& config : algo->configs(p, device)) {
              const auto verdict =
                  check_candidate(*algo, p, config, reference, device, *stream, 0.0);
              EXPECT_EQ(verdict.status, Status::ok)
                  << text << ' ' << to_string(pass) << ' ' << to_string(layout) << " threads "
                  << threads << " l2 " << l2 << ": " << verdict.reason;
            }
          }
      }
}

// Rows of tiles where a plane exceeds L1 and all planes L2. The input is prefetched if it exceeds
// all L2 and few multiply-adds read a pixel: all of it but the first output row's, and each pixel
// once.
TEST(DepthwiseBlocks, AreInTheOrderOfMemoryBeyondTheCaches) {
  const auto device = make_cpu_device({2, ""});
  DeviceInfo info = device->info();
  info.l1_bytes = 32 << 10;
  info.l2_bytes = 64 << 10;
  const auto plan = [&](const char* text, Pass pass = Pass::forward) {
    ConvProblem p = parse_problem(text).problem;
    p.pass = pass;
    p.x_layout = p.y_layout = blocked_layout(info);
    return cpu::plan_depthwise(p, info);
  };
  const auto small = plan("g32mb16ic32ih14oc32kh3ph1");
  EXPECT_EQ(small.tile_rows, 14);
  EXPECT_FALSE(small.prefetch);
  const auto wide = plan("g32mb1ic32ih112oc32kh3ph1");
  EXPECT_EQ(wide.tile_rows, 1);
  EXPECT_FALSE(wide.prefetch);
  info.l2_bytes = 2 << 20;
  EXPECT_EQ(plan("g32mb1ic32ih112oc32kh3ph1").tile_rows, 112);
  info.l2_bytes = 64 << 10;
  EXPECT_FALSE(plan("g32mb1ic32ih112oc32kh3ph1sh2", Pass::backward_data).prefetch);

  const auto strided = plan("g32mb1ic32ih112iw120oc32kh3ph1sh2");
  EXPECT_EQ(strided.tile_rows, 1);
  EXPECT_TRUE(strided.prefetch);
  std::int64_t row = 2, column = 0;  // output row 0 reads rows 0 and 1
  for (const cpu::Range& rows : strided.rows_ahead) {
    if (rows.size() == 0) continue;
    EXPECT_EQ(rows.begin, row);
    row = rows.end;
  }
  EXPECT_EQ(row, 112);
  EXPECT_EQ(strided.rows_ahead.size(), 56u);
  for (const cpu::PixelTile& tile : strided.tiles) {
    EXPECT_EQ(tile.ahead.begin, column);
    column = tile.ahead.end;
  }
  EXPECT_EQ(column, 120);
}

// Padding is skipped, and what partial tiles compute in vain is counted.
TEST(DepthwiseWork, CountsWhatIsExecuted) {
  const auto device = make_cpu_device({1, ""});
  const auto algo = cpu::make_depthwise();
  ConvProblem p = parse_problem("g64mb1ic64ih14oc64oh14kh3ph1").problem;
  p.x_layout = p.y_layout = blocked_layout(device->info());
  const double inside = 40.0 / 42 * 40 / 42;
  const double flops = algo->work(p, {}, *device).flops();
  EXPECT_GE(flops, p.flops() * inside * 0.999);
  EXPECT_LE(flops, p.flops());
}

}  // namespace
}  // namespace convlab
