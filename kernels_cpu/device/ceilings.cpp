#include "kernels_cpu/device/ceilings.h"

#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "conv/error.h"
#include "conv/types/math_type.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/amx/peak.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"
#include "kernels_cpu/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/device/ceilings.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains hide the latency of two FMA units and still fit sixteen registers. Each chain
// converges to c / (1 - b), so nothing overflows or goes denormal. Returns the FLOPs done.
template <class T>
double MultiplyAdd(std::int64_t iterations, double* sink) {
  constexpr int chains = 12;
  const hn::ScalableTag<T> d;
  const auto b = hn::Set(d, T(0.5)), c = hn::Set(d, T(1));
  // All different, or a compiler may find that some chains are the same and keep one.
  auto acc0 = hn::Set(d, T(0)), acc1 = hn::Set(d, T(1)), acc2 = hn::Set(d, T(2)),
       acc3 = hn::Set(d, T(3)), acc4 = hn::Set(d, T(4)), acc5 = hn::Set(d, T(5)),
       acc6 = hn::Set(d, T(6)), acc7 = hn::Set(d, T(7)), acc8 = hn::Set(d, T(8)),
       acc9 = hn::Set(d, T(9)), acc10 = hn::Set(d, T(10)), acc11 = hn::Set(d, T(11));
  for (std::int64_t i = 0; i < iterations; ++i) {
    acc0 = hn::MulAdd(acc0, b, c);
    acc1 = hn::MulAdd(acc1, b, c);
    acc2 = hn::MulAdd(acc2, b, c);
    acc3 = hn::MulAdd(acc3, b, c);
    acc4 = hn::MulAdd(acc4, b, c);
    acc5 = hn::MulAdd(acc5, b, c);
    acc6 = hn::MulAdd(acc6, b, c);
    acc7 = hn::MulAdd(acc7, b, c);
    acc8 = hn::MulAdd(acc8, b, c);
    acc9 = hn::MulAdd(acc9, b, c);
    acc10 = hn::MulAdd(acc10, b, c);
    acc11 = hn::MulAdd(acc11, b, c);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(acc0, acc1), hn::Add(acc2, acc3)),
                           hn::Add(hn::Add(hn::Add(acc4, acc5), hn::Add(acc6, acc7)),
                                   hn::Add(hn::Add(acc8, acc9), hn::Add(acc10, acc11))));
  *sink = double(hn::GetLane(hn::SumOfLanes(d, sum)));
  return 2.0 * chains * double(hn::Lanes(d)) * double(iterations);
}

double MultiplyAddF32(std::int64_t n, double* sink) { return MultiplyAdd<float>(n, sink); }
double MultiplyAddF64(std::int64_t n, double* sink) { return MultiplyAdd<double>(n, sink); }

double ReadAll(const float* data, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (std::size_t i = 0; i + 8 * step <= count; i += 8 * step) {
    s0 = hn::Add(s0, hn::Load(d, data + i));
    s1 = hn::Add(s1, hn::Load(d, data + i + step));
    s2 = hn::Add(s2, hn::Load(d, data + i + 2 * step));
    s3 = hn::Add(s3, hn::Load(d, data + i + 3 * step));
    s4 = hn::Add(s4, hn::Load(d, data + i + 4 * step));
    s5 = hn::Add(s5, hn::Load(d, data + i + 5 * step));
    s6 = hn::Add(s6, hn::Load(d, data + i + 6 * step));
    s7 = hn::Add(s7, hn::Load(d, data + i + 7 * step));
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  return double(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// Ordinary stores, as in convolutions: a store that misses reads the line for ownership.
void WriteAll(float* data, std::size_t count, float value) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  const auto v = hn::Set(d, value);
  for (std::size_t i = 0; i + 4 * step <= count; i += 4 * step) {
    hn::Store(v, d, data + i);
    hn::Store(v, d, data + i + step);
    hn::Store(v, d, data + i + 2 * step);
    hn::Store(v, d, data + i + 3 * step);
  }
}

void CopyAll(const float* HWY_RESTRICT from, float* HWY_RESTRICT to, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  for (std::size_t i = 0; i + 2 * step <= count; i += 2 * step) {
    const auto a = hn::Load(d, from + i), b = hn::Load(d, from + i + step);
    hn::Store(a, d, to + i);
    hn::Store(b, d, to + i + step);
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab {
namespace cpu {

HWY_EXPORT(MultiplyAddF32);
HWY_EXPORT(MultiplyAddF64);
HWY_EXPORT(ReadAll);
HWY_EXPORT(WriteAll);
HWY_EXPORT(CopyAll);

namespace {

using Clock = std::chrono::steady_clock;

// A process's first threads may all start on one core, where they take turns by time slices. The
// system moves them some 30 ms later. This waits until it has.
void spread_threads(int threads) {
  constexpr int calm = 10;  // empty loops in a row that did not wait
  constexpr double waited_s = 2e-4, most_s = 0.1;
  double spent_s = 0;
  for (int calm_loops = 0; calm_loops < calm && spent_s < most_s;) {
    const Clock::time_point start = Clock::now();
#pragma omp parallel num_threads(threads)
    {
#pragma omp barrier
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    calm_loops = seconds < waited_s ? calm_loops + 1 : 0;
    spent_s += seconds;
  }
}

// Keeps the compiler from finding the value unused.
void use(double value) {
  volatile double used = value;
  (void)used;
}

double multiply_adds(DType dtype, int threads) {
  constexpr std::int64_t iterations = 100'000;  // about a millisecond
  double flops = 0, keep = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flops, keep)
  {
    double sink = 0;
    flops += dtype == DType::f64 ? HWY_DYNAMIC_DISPATCH(MultiplyAddF64)(iterations, &sink)
                                 : HWY_DYNAMIC_DISPATCH(MultiplyAddF32)(iterations, &sink);
    keep += sink;
  }
  use(keep);
  return flops;
}

// About a millisecond of products of bf16 tiles.
double multiply_tiles_on(bool on_amx, int threads) {
  double flops = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flops)
  flops += on_amx ? multiply_tiles(50'000) : multiply_dots(2'000);
  return flops;
}

// One slice a thread, first touched by that thread.
class Slices {
 public:
  Slices(std::int64_t bytes_per_thread, int threads)
      : count_(std::max<std::size_t>(std::size_t(bytes_per_thread) / sizeof(float) / 256, 1) * 256),
        slices_(std::size_t(threads)) {
    // Allocated outside the parallel region, which an exception must not leave.
    for (Slice& slice : slices_) {
      slice.reset(static_cast<float*>(::operator new(count_ * sizeof(float), page, std::nothrow)));
      if (slice == nullptr)
        throw OutOfMemory(fmt::format("measuring this machine's bandwidth takes {} times {} MiB",
                                      threads, count_ * sizeof(float) >> 20));
      // Huge pages, as the device's own buffers have: with small pages the TLB would be the limit.
      madvise(slice.get(), count_ * sizeof(float), MADV_HUGEPAGE);
    }
    visit([&](float* slice) {
      std::fill_n(slice, count_, 1.0f);
      return 0.0;
    });
  }

  // Each returns the bytes moved. Small slices are passed over several times, so that the cost of
  // starting the threads is negligible.
  double read() const {
    use(visit([&](float* slice) { return HWY_DYNAMIC_DISPATCH(ReadAll)(slice, count_); },
              repeats()));
    return bytes();
  }
  double write() const {
    visit(
        [&](float* slice) {
          HWY_DYNAMIC_DISPATCH(WriteAll)(slice, count_, 1.0f);
          return 0.0;
        },
        repeats());
    return bytes();
  }
  // Copies half of the slice to the other half: reads and writes together are as many bytes as the
  // others move.
  double copy() const {
    visit(
        [&](float* slice) {
          HWY_DYNAMIC_DISPATCH(CopyAll)(slice, slice + count_ / 2, count_ / 2);
          return 0.0;
        },
        repeats());
    return bytes();
  }

 private:
  static constexpr std::align_val_t page{2 << 20};
  struct Delete {
    void operator()(float* slice) const { ::operator delete(slice, page); }
  };
  using Slice = std::unique_ptr<float, Delete>;

  std::size_t slice_bytes() const { return count_ * sizeof(float); }
  int repeats() const { return std::max(1, int(double(16 << 20) / double(slice_bytes()))); }
  double bytes() const { return double(slice_bytes()) * repeats() * double(slices_.size()); }

  // The sum of visit(slice) over the slices, one thread a slice if the team is large enough.
  template <class Visit>
  double visit(const Visit& one, int repeats = 1) const {
    const int threads = int(slices_.size());
    double sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : sum)
    for (int t = 0; t < threads; ++t)
      for (int r = 0; r < repeats; ++r) sum += one(slices_[std::size_t(t)].get());
    return sum;
  }

  std::size_t count_;
  std::vector<Slice> slices_;
};

struct Level {
  const char* name;
  std::int64_t bytes_per_thread;
};

// Half of the threads' capacity at each level, but more than the whole level before.
std::vector<Level> levels(const DeviceInfo& device, int threads) {
  constexpr std::int64_t most = 256 << 20;
  const std::int64_t l1 = std::max<std::int64_t>(device.l1_bytes, 16 << 10);
  const std::int64_t l2 = std::max<std::int64_t>(device.l2_bytes, 256 << 10);
  const std::int64_t l3 = std::max(device.l3_bytes, l2 * threads);
  return {{"L1", l1 / 2},
          {"L2", l2 / 2},
          {"L3", std::max(l2 * 2, std::min(l2 * 4, l3 / 2 / threads))},
          {"memory", std::min(most, 4 * l3) / threads}};
}

}  // namespace

std::vector<CeilingLoop> ceiling_loops(const DeviceInfo& device, int threads) {
  spread_threads(threads);
  std::vector<CeilingLoop> loops;
  for (const DType dtype : {DType::f32, DType::f64})
    loops.push_back({"registers", std::string(to_string(dtype)),
                     [=](Stream&) { return multiply_adds(dtype, threads); }});
  const bool on_amx = bf16_unit(device) == amx_unit;
  if (on_amx || bf16_unit(device) == avx512_bf16_unit)
    loops.push_back({"registers", std::string(bf16_tiles),
                     [=](Stream&) { return multiply_tiles_on(on_amx, threads); }});
  for (const Level& level : levels(device, threads)) {
    // A level's loops share the slices; the first one to run allocates them.
    const auto shared = std::make_shared<std::unique_ptr<Slices>>();
    const auto add = [&](const char* what, double (Slices::*run)() const) {
      loops.push_back({level.name, what, [=](Stream&) {
                         if (!*shared)
                           *shared = std::make_unique<Slices>(level.bytes_per_thread, threads);
                         return (**shared.*run)();
                       }});
    };
    add("read", &Slices::read);
    add("write", &Slices::write);
    add("copy", &Slices::copy);
  }
  return loops;
}

}  // namespace cpu

double measure_round_trip(int threads) {
  using cpu::Clock;
  constexpr int batches = 21, rounds = 500;
  if (threads < 2) return 0;
  std::vector<double> seconds;
  seconds.reserve(batches);
  alignas(64) std::atomic<int> turns = 0;
  cpu::spread_threads(threads);
#pragma omp parallel num_threads(2)
  if (omp_get_num_threads() == 2) {
    const int me = omp_get_thread_num();
    Clock::time_point start = Clock::now();
    for (int turn = me; turn < 2 * batches * rounds; turn += 2) {
      // Two threads on one processor would wait out each other's time slices.
      for (int spins = 0; turns.load(std::memory_order_acquire) != turn; ++spins)
        if (spins > 10'000) std::this_thread::yield();
      turns.store(turn + 1, std::memory_order_release);
      if (me == 0 && (turn + 2) % (2 * rounds) == 0) {
        const Clock::time_point now = Clock::now();
        seconds.push_back(std::chrono::duration<double>(now - start).count() / rounds);
        start = now;
      }
    }
  }
  if (seconds.empty()) return 0;
  std::nth_element(seconds.begin(), seconds.begin() + batches / 2, seconds.end());
  return seconds[batches / 2];
}

}  // namespace convlab
#endif  // HWY_ONCE
