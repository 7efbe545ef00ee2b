// What a device can do at best: the roofs that predictions and rooflines stand under. Predictions
// for a card start from what its units and clocks allow on paper (DeviceInfo's peaks).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/measure/measure.h"
#include "autotune/roof.h"
#include "conv/device.h"
#include "conv/phases.h"
#include "conv/problem.h"

namespace convlab {

// Of all `threads` together, with the ISA in force.
struct Ceilings {
  int threads = 1;
  bool measured = true;
  // Bytes per second of streaming reads, from data that lies in the threads' own L2, in L3, and
  // beyond. The last reads 256 MB at most: where L3 claims more than that, it is L3 as well. Of a
  // card's caches nothing is known: all three are its memory's.
  double l2_bandwidth = 0, l3_bandwidth = 0, memory_bandwidth = 0;

  // Per second: multiply-adds in registers only, 2 FLOPs each. A type without units of its own is
  // converted to f32 and has that one's.
  double flops(DType t) const {
    const double own = flops_[std::size_t(t)];
    return own > 0 ? own : flops_[std::size_t(DType::f32)];
  }
  void set_flops(DType t, double per_second) { flops_[std::size_t(t)] = per_second; }

 private:
  std::array<double, all_dtypes.size()> flops_{};
};

// Takes about half a second on the CPU. When *stop becomes true, this and whatever else takes
// `stop` here throws CeilingsInterrupted before the next measurement, and keeps none of those
// before it.
Ceilings measure_ceilings(Device&, const std::atomic<bool>* stop = nullptr);
// Measured by the first call in this process for this ISA and number of threads.
const Ceilings& ceilings_of(Device&, const std::atomic<bool>* stop = nullptr);

// Every roof with the ISA in force: of the CPU for 1, 2, 4 ... and all of the device's threads,
// 0.7 s for each of these; of a card its loops, its copies within L2 and memory, and those from and
// to the host, 3 s together. What tensor cores do by mma.sync is no roof of a library's products,
// which reach more on some cards.
std::vector<Roof> measure_roofs(Device&, const std::atomic<bool>* stop = nullptr);
// Of the loops that a device offers (conv/optional/ceiling_loops.h) on so many threads; without
// them, what its clocks and units allow on paper.
std::vector<Roof> measure_loops(Device&, int threads, const std::atomic<bool>* stop = nullptr);
// The copies alone, of any device: so many bytes in all, which its L2 holds or its caches do not.
std::vector<Roof> measure_copies(Device&, std::int64_t cached_bytes, std::int64_t uncached_bytes,
                                 const std::atomic<bool>* stop = nullptr);

// A CPU's levels of memory, nearest first.
inline constexpr const char* memory_levels[] = {"L1", "L2", "L3", "memory"};

// 0 when there is no such roof.
double peak_of(const std::vector<Roof>&, int threads, std::string_view dtype);
// The highest of reading, writing and copying.
double bandwidth_of(const std::vector<Roof>&, int threads, std::string_view level);

// Multiply-adds on all threads, about 1 ms long: something steady to find the noise floor with.
NoiseFloor measure_noise_floor(Device&);

// The roofline model phase by phase: each takes the longer of its FLOPs at the peak times its
// efficiency and its bytes at the bandwidth of the level where the problem's tensors lie, plus the
// start of a parallel loop or kernel. Williams, Waterman, Patterson 2009.
double predict_ms(const WorkEstimate&, const ConvProblem&, CacheMode, const DeviceInfo&,
                  const Ceilings&);
// Of anything that works on tensors of so many bytes in all.
double predict_ms(const WorkEstimate&, DType, double tensor_bytes, CacheMode, const DeviceInfo&,
                  const Ceilings&);

}  // namespace convlab
