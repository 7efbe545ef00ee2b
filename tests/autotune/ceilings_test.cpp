#include "autotune/measure/ceilings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autotune/store/provenance.h"
#include "conv/error.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"
#include "kernels_cpu/cpu.h"
#include "tests/cpu_backed_device.h"

namespace convlab {
namespace {

bool is_hardware(std::string_view unit) {
  return unit == cpu::amx_unit || unit == cpu::avx512_bf16_unit;
}

TEST(Ceilings, AreMeasuredForEachIsa) {
  for (const std::string& isa : supported_isas()) {
    const auto device = make_cpu_device({.threads = 2, .isa = isa});
    const Ceilings c = measure_ceilings(*device);
    EXPECT_EQ(c.threads, 2);
    for (double v : {c.flops(DType::f32), c.flops(DType::f64), c.l2_bandwidth, c.l3_bandwidth,
                     c.memory_bandwidth})
      EXPECT_GT(v, 1e8) << isa;
    const bool has_tiles = is_hardware(cpu::bf16_unit(device->info()));
    EXPECT_EQ(c.tile_flops > 0, has_tiles) << isa;
    EXPECT_EQ(c.flops(DType::f32, MathType::bf16x3),
              has_tiles ? c.tile_flops : c.flops(DType::f32));
    EXPECT_EQ(c.flops(DType::f32, MathType::f32), c.flops(DType::f32));
  }
  make_cpu_device();
}

TEST(RoundTrip, IsOfTwoThreads) {
  EXPECT_EQ(measure_round_trip(1), 0);
  EXPECT_GT(measure_round_trip(2), 1e-9);
}

TEST(Roofs, AreMeasuredPerLevelKindAndThreads) {
  const auto device = make_cpu_device({.threads = 2, .isa = ""});
  const std::vector<Roof> roofs = measure_roofs(*device);
  const std::size_t tiles = is_hardware(cpu::bf16_unit(device->info())) ? 1 : 0;
  EXPECT_EQ(roofs.size(), 2 * (2 + tiles + 4 * 3u));  // for one thread and two
  for (const Roof& roof : roofs) {
    EXPECT_TRUE(roof.measured);
    EXPECT_GT(roof.per_second, 1e8) << roof.level << " " << roof.what;
    EXPECT_GE(roof.noise, 0);
  }
  EXPECT_GT(peak_of(roofs, 1, "f32"), 0);
  EXPECT_EQ(peak_of(roofs, 3, "f32"), 0);
  EXPECT_GT(bandwidth_of(roofs, 2, "L1"), 0);
  EXPECT_EQ(bandwidth_of(roofs, 2, "L5"), 0);
}

TEST(Roofs, ThatAreStoppedAreNotMeasured) {
  const auto device = make_cpu_device({.threads = 1, .isa = ""});
  const std::atomic<bool> stop = true;
  EXPECT_THROW(measure_roofs(*device, &stop), CeilingsInterrupted);
  EXPECT_THROW(measure_copies(*device, 1 << 18, 1 << 22, &stop), CeilingsInterrupted);
  struct Another : CpuBackedDevice {  // its ceilings have not been measured
    Another() { info_.index = 7; }
  } another;
  EXPECT_THROW(ceilings_of(another, &stop), CeilingsInterrupted);
  EXPECT_GT(ceilings_of(another).flops(DType::f32), 0);  // an incomplete set was not kept
}

// The measurements behind a card's roofs run on any device.
TEST(Roofs, OfCopiesByADevice) {
  const auto device = make_cpu_device({.threads = 2, .isa = ""});
  std::vector<std::string> names;
  for (const Roof& roof : measure_copies(*device, 1 << 18, 1 << 22)) {
    names.push_back(roof.level + " " + roof.what);
    EXPECT_GT(roof.per_second, 1e6) << names.back();
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"L2 copy", "memory copy", "pinned to device",
                                      "pinned to host", "pageable to device", "pageable to host"}));
}

// A device with these of the CPU's loops only.
struct Loops : CpuBackedDevice {
  explicit Loops(std::vector<std::string> levels) : levels_(std::move(levels)) {
    info_.index = 8;  // its ceilings have not been measured
  }
  std::vector<CeilingLoop> ceiling_loops(int threads) override {
    std::vector<CeilingLoop> kept;
    for (CeilingLoop& loop : CpuBackedDevice::ceiling_loops(threads))
      if (std::find(levels_.begin(), levels_.end(), loop.level) != levels_.end())
        kept.push_back(std::move(loop));
    return kept;
  }
  DeviceInfo& changed_info() { return info_; }

 private:
  std::vector<std::string> levels_;
};

TEST(Roofs, OfACardWithoutLoopsAreOnPaper) {
  Loops device({});
  device.changed_info().kind = DeviceKind::cuda;
  device.changed_info().peak_f32_flops = device.changed_info().peak_f64_flops = 1e13;
  device.changed_info().peak_bandwidth = 1e12;
  const std::vector<Roof> roofs = measure_loops(device, 2);
  EXPECT_EQ(roofs.size(), 3u);
  for (const Roof& roof : roofs) {
    EXPECT_FALSE(roof.measured) << roof.level << " " << roof.what;
    EXPECT_GE(roof.per_second, 1e12);
  }
}

TEST(Ceilings, OfADeviceThatOffersNothingToMeasureAreAnError) {
  const auto reason = [](const auto& measure) {
    try {
      measure();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const std::vector<std::string>& levels :
       std::vector<std::vector<std::string>>{{}, {"registers"}, {"memory"}}) {
    Loops device(levels);
    device.changed_info().name = "a CPU";
    EXPECT_EQ(reason([&] { (void)ceilings_of(device); }),
              "no ceilings for 'a CPU': expected a CeilingDevice with f32 loops in registers and "
              "memory reads");
  }
  Loops silent({});
  EXPECT_THROW(measure_loops(silent, 1), Error);
  silent.changed_info().kind = DeviceKind::cuda;
  silent.changed_info().name = "a card";
  const std::string expected =
      "no ceilings for 'a card': expected peak_f32_flops and peak_bandwidth in its DeviceInfo";
  EXPECT_EQ(reason([&] { (void)measure_ceilings(silent); }), expected);
  EXPECT_EQ(reason([&] { (void)measure_loops(silent, 1); }), expected);
}

TEST(Ceilings, OfALevelWithoutALoopAreThoseOfTheNextOneOutwards) {
  Loops device({"registers", "memory"});
  const Ceilings c = measure_ceilings(device);
  EXPECT_GT(c.memory_bandwidth, 0);
  EXPECT_EQ(c.l3_bandwidth, c.memory_bandwidth);
  EXPECT_EQ(c.l2_bandwidth, c.memory_bandwidth);
}

TEST(Ceilings, OfACardAreWhatItsClocksAllow) {
  struct Card : CpuBackedDevice {
    Card(int index, double flops) {
      info_.kind = DeviceKind::cuda;
      info_.index = index;
      info_.threads = 132;
      info_.peak_f32_flops = flops;
      info_.peak_f64_flops = flops / 2;
      info_.peak_bandwidth = 4.8e12;
    }
  } card(0, 67e12), another(1, 20e12);
  const Ceilings c = ceilings_of(card);
  EXPECT_FALSE(c.measured);
  EXPECT_EQ(c.flops(DType::f32), 67e12);
  EXPECT_EQ(c.flops(DType::f64), 33.5e12);
  EXPECT_EQ(c.flops(DType::f16), 67e12);  // f16 has no units of its own here
  EXPECT_EQ(c.memory_bandwidth, 4.8e12);
  EXPECT_EQ(ceilings_of(another).flops(DType::f32), 20e12);  // another card has its own ceilings
}

TEST(Ceilings, PredictPhaseByPhase) {
  Ceilings ceilings;
  ceilings.set_flops(DType::f32, 1e11);
  ceilings.set_flops(DType::f64, 5e10);
  ceilings.l3_bandwidth = 1e10;
  ceilings.memory_bandwidth = 1e9;
  DeviceInfo device;
  device.l3_bytes = 1 << 20;
  ConvProblem problem;
  // 10 ms of compute at half the peak, then 1 ms of traffic from L3.
  const WorkEstimate work{{{.name = "product", .flops = 5e8, .bytes_read = 1e6, .efficiency = 0.5},
                           {.name = "copy", .flops = 1, .bytes_written = 1e7}}};
  EXPECT_NEAR(predict_ms(work, problem, CacheMode::hot, device, ceilings), 11, 0.1);
  EXPECT_NEAR(predict_ms(work, problem, CacheMode::cold, device, ceilings), 20, 0.1);
  problem.dtype = DType::f64;
  EXPECT_NEAR(predict_ms(work, problem, CacheMode::hot, device, ceilings), 21, 0.1);
  problem.c = 1 << 20;  // no longer fits
  EXPECT_NEAR(predict_ms(work, problem, CacheMode::hot, device, ceilings), 30, 0.1);
  WorkEstimate waiting = work;
  waiting.phases[0].waits_s = 5e-3;
  EXPECT_NEAR(predict_ms(waiting, problem, CacheMode::hot, device, ceilings), 35, 0.1);
}

TEST(Provenance, NamesMachineAndBuild) {
  DeviceInfo device;
  device.name = "a CPU";
  device.libraries = {{"blas", "1.2"}};
  const Provenance p = collect_provenance(device);
  std::map<std::string, std::string> fields(p.fields.begin(), p.fields.end());
  EXPECT_EQ(fields["cpu"], "a CPU");
  EXPECT_EQ(fields["blas"], "1.2");
  EXPECT_EQ(fields["threads"], "1");
  for (const char* name : {"isa", "compiler", "flags", "commit", "date"})
    EXPECT_TRUE(fields.contains(name)) << name;
}

}  // namespace
}  // namespace convlab
