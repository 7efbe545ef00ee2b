// A device's peak rates: the roofs of predictions and rooflines. Predictions for a card start from
// its theoretical peaks, computed from units and clocks (DeviceInfo).
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
#include "conv/types/math_type.h"

namespace convlab {

// Totals over all `threads`, with the ISA in force.
struct Ceilings {
  int threads = 1;
  bool measured = true;
  // Bytes per second of streaming reads, from data in the threads' own L2, in L3, and beyond. The
  // last reads 256 MB at most: if L3 is reported as larger, it measures L3. A card's cache
  // bandwidths are unknown: all three are its memory's.
  double l2_bandwidth = 0, l3_bandwidth = 0, memory_bandwidth = 0;
  double tile_flops = 0;  // per second, of bf16 tiles; 0 without a matrix unit

  // FLOPs per second of multiply-adds in registers, 2 FLOPs each. A type without its own units is
  // converted to f32 and has f32's peak.
  double flops(DType t) const {
    const double own = flops_[std::size_t(t)];
    return own > 0 ? own : flops_[std::size_t(DType::f32)];
  }
  // Of products formed like this: those of bf16 tiles have a peak of their own, where there is one.
  double flops(DType t, MathType math) const {
    return multiplies_bf16(math) && tile_flops > 0 ? tile_flops : flops(t);
  }
  void set_flops(DType t, double per_second) { flops_[std::size_t(t)] = per_second; }

 private:
  std::array<double, all_dtypes.size()> flops_{};
};

// Takes about half a second on the CPU. A level without a loop has the bandwidth of the next one
// outwards. Throws Error for a device that offers no loops for f32 and memory, or a card that
// states no peaks. When *stop becomes true, every function here that takes `stop` throws
// CeilingsInterrupted before the next measurement and discards the earlier ones.
Ceilings measure_ceilings(Device&, const std::atomic<bool>* stop = nullptr);
// Measured by the first call in this process for this ISA and number of threads.
const Ceilings& ceilings_of(Device&, const std::atomic<bool>* stop = nullptr);

// Every roof with the ISA in force. A CPU's: for 1, 2, 4 ... and all of the device's threads, 0.7 s
// for each of these. A card's: its loops, its copies within L2 and memory, and those from and to
// the host, 3 s together. The mma.sync rate of tensor cores does not bound a library's products,
// which exceed it on some cards.
std::vector<Roof> measure_roofs(Device&, const std::atomic<bool>* stop = nullptr);
// Roofs of the loops that a device offers (conv/optional/ceiling_loops.h), on this many threads. A
// device without loops gives its theoretical peaks; throws Error if it states none, as on a CPU.
std::vector<Roof> measure_loops(Device&, int threads, const std::atomic<bool>* stop = nullptr);
// The copies alone, on any device. Total bytes: `cached_bytes` fit in its L2, `uncached_bytes`
// exceed its caches.
std::vector<Roof> measure_copies(Device&, std::int64_t cached_bytes, std::int64_t uncached_bytes,
                                 const std::atomic<bool>* stop = nullptr);

// A CPU's levels of memory, nearest first.
inline constexpr const char* memory_levels[] = {"L1", "L2", "L3", "memory"};

// 0 when there is no such roof.
double peak_of(const std::vector<Roof>&, int threads, std::string_view dtype);
// The highest of reading, writing and copying.
double bandwidth_of(const std::vector<Roof>&, int threads, std::string_view level);

// The noise floor of multiply-adds on all threads, about 1 ms each: a steady load.
NoiseFloor measure_noise_floor(Device&);

// The roofline model, phase by phase. A phase takes the longer of two times: its FLOPs at the peak
// times its efficiency, or its bytes at the bandwidth of the level that holds the problem's
// tensors; of a recurrent layer the recurrent weights, which each step reads again. The start of a
// parallel loop or kernel is added, and what the phase waits. Williams, Waterman, Patterson 2009.
double predict_ms(const WorkEstimate&, const Problem&, CacheMode, const DeviceInfo&,
                  const Ceilings&);
// The same for any work on tensors of this many bytes in all.
double predict_ms(const WorkEstimate&, DType, double tensor_bytes, CacheMode, const DeviceInfo&,
                  const Ceilings&);

}  // namespace convlab
