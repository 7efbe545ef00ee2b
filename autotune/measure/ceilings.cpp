#include "autotune/measure/ceilings.h"

#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "autotune/measure/disturbance.h"
#include "conv/error.h"
#include "conv/optional/ceiling_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autotune/measure/ceilings.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convlab {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains hide the latency of two FMA units and still fit sixteen registers. Each chain
// converges to c / (1 - b), so nothing overflows or goes denormal. Returns the FLOPs done.
template <class T>
double multiply_add(std::int64_t iterations, double* sink) {
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

double MultiplyAddF32(std::int64_t n, double* sink) { return multiply_add<float>(n, sink); }
double MultiplyAddF64(std::int64_t n, double* sink) { return multiply_add<double>(n, sink); }

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

// Plain stores, as convolutions use them: a line that is not in a cache is read first.
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

}  // namespace HWY_NAMESPACE
}  // namespace convlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab {
namespace {

HWY_EXPORT(MultiplyAddF32);
HWY_EXPORT(MultiplyAddF64);
HWY_EXPORT(ReadAll);
HWY_EXPORT(WriteAll);
HWY_EXPORT(CopyAll);

double multiply_add(DType dtype, std::int64_t n, double* sink) {
  return dtype == DType::f64 ? HWY_DYNAMIC_DISPATCH(MultiplyAddF64)(n, sink)
                             : HWY_DYNAMIC_DISPATCH(MultiplyAddF32)(n, sink);
}

// A process's first threads may all be on one core, where each loop waits for the next time slice
// (8 ms instead of 0.1), until the system moves them: measured, in a third of all starts, within
// 30 ms. It is left the time for that.
void spread_threads(int threads) {
  constexpr int calm = 10;  // empty loops in a row that did not wait
  constexpr double waited_s = 2e-4, most_s = 0.1;
  double spent_s = 0;
  for (int calm_loops = 0; calm_loops < calm && spent_s < most_s;) {
    const double seconds = time_runs(
        [&] {
#pragma omp parallel num_threads(threads)
          {
#pragma omp barrier
          }
        },
        1);
    calm_loops = seconds < waited_s ? calm_loops + 1 : 0;
    spent_s += seconds;
  }
}

// Work a second at best, which is what a ceiling is, how far the samples spread, and whether other
// programs disturbed nearly all of them.
struct Best {
  double per_second = 0, noise = 0;
  bool disturbed = false;
};

constexpr double sampling_s = 0.05;

void end_if_stopped(const std::atomic<bool>* stop, const DeviceInfo& device) {
  if (stop && *stop)
    throw CeilingsInterrupted(
        fmt::format("stopped while roofs were measured: those of {} are not kept", device.isa));
}

// Of `total_s` of samples that no other program disturbed. On a busy machine they take up to four
// times that to get; where there are too few even then, all samples count.
template <class Run>
Best best_of(double work, double total_s, const DeviceInfo& device, const Run& seconds_of_one) {
  constexpr std::size_t least = 5, most = 200;
  constexpr double patience = 4;
  seconds_of_one();
  DisturbanceMeter meter(device);
  std::vector<double> calm, all;
  double calm_s = 0, all_s = 0;
  while (calm.size() < least || (calm_s < total_s && calm.size() < most)) {
    if (all.size() >= least && all_s > patience * total_s) break;
    meter.start();
    const double seconds = seconds_of_one();
    const double lost = meter.stop();
    all.push_back(seconds), all_s += seconds;
    if (lost > most_lost) continue;
    calm.push_back(seconds), calm_s += seconds;
  }
  const bool disturbed = calm.size() < least;
  const std::vector<double>& seconds = disturbed ? all : calm;
  return {work / *std::min_element(seconds.begin(), seconds.end()),
          median_abs_deviation(seconds) / median(seconds), disturbed};
}

constexpr std::int64_t fma_iterations = 100'000;  // about a millisecond

double fma_on_all_threads(DType dtype, int threads) {
  double flops = 0, keep = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flops, keep)
  {
    double sink = 0;
    flops += multiply_add(dtype, fma_iterations, &sink);
    keep += sink;
  }
  volatile double used = keep;
  (void)used;
  return flops;
}

DeviceInfo cpu_team(int threads) {
  DeviceInfo team;
  team.threads = threads;
  return team;
}

Best peak_flops(DType dtype, int threads) {
  return best_of(fma_on_all_threads(dtype, threads), sampling_s, cpu_team(threads),
                 [&] { return time_runs([&] { fma_on_all_threads(dtype, threads); }, 1); });
}

// One slice a thread, each touched first by its own.
class Slices {
 public:
  Slices(std::int64_t bytes_per_thread, int threads)
      : count_(std::max<std::size_t>(std::size_t(bytes_per_thread) / sizeof(float) / 256, 1) * 256),
        slices_(std::size_t(threads)) {
    // Allocated out here: an exception must not leave a parallel region.
    for (Slice& slice : slices_) {
      slice.reset(static_cast<float*>(::operator new(count_ * sizeof(float), page, std::nothrow)));
      if (slice == nullptr)
        throw OutOfMemory(fmt::format("measuring this machine's bandwidth takes {} times {} MiB",
                                      threads, count_ * sizeof(float) >> 20));
      // As the device's own buffers: with small pages the TLB would be the roof.
      madvise(slice.get(), count_ * sizeof(float), MADV_HUGEPAGE);
    }
    on_all([&](float* slice) {
      std::fill_n(slice, count_, 1.0f);
      return 0.0;
    });
  }

  // Small slices are gone through several times over, so that starting the threads does not count.
  Best read() const {
    double keep = 0;
    const Best best =
        measure([&](float* slice) { return HWY_DYNAMIC_DISPATCH(ReadAll)(slice, count_); }, &keep);
    volatile double used = keep;
    (void)used;
    return best;
  }
  Best write() const {
    return measure([&](float* slice) {
      HWY_DYNAMIC_DISPATCH(WriteAll)(slice, count_, 1.0f);
      return 0.0;
    });
  }
  // Half of the slice to the other half: as many bytes read and written as the others move.
  Best copy() const {
    return measure([&](float* slice) {
      HWY_DYNAMIC_DISPATCH(CopyAll)(slice, slice + count_ / 2, count_ / 2);
      return 0.0;
    });
  }

 private:
  static constexpr std::align_val_t page{2 << 20};
  struct Delete {
    void operator()(float* slice) const { ::operator delete(slice, page); }
  };
  using Slice = std::unique_ptr<float, Delete>;

  // The sum of visit(slice), each by a thread of its own where the team is large enough.
  template <class Visit>
  double on_all(const Visit& visit, int repeats = 1) const {
    const int threads = int(slices_.size());
    double sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : sum)
    for (int t = 0; t < threads; ++t)
      for (int r = 0; r < repeats; ++r) sum += visit(slices_[std::size_t(t)].get());
    return sum;
  }
  template <class Visit>
  Best measure(const Visit& visit, double* keep = nullptr) const {
    const double bytes = double(count_ * sizeof(float));
    const auto repeats = std::max(1, int(double(16 << 20) / bytes));
    double sum = 0;
    const Best best =
        best_of(bytes * repeats * double(slices_.size()), sampling_s, cpu_team(int(slices_.size())),
                [&] { return time_runs([&] { sum += on_all(visit, repeats); }, 1); });
    if (keep) *keep = sum;
    return best;
  }

  std::size_t count_;
  std::vector<Slice> slices_;
};

struct Level {
  const char* name;
  std::int64_t bytes_per_thread;
};

// Half of what the threads have of each level, but more than all of the level before.
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

std::vector<Roof> measure_cpu_roofs(const DeviceInfo& device, int threads,
                                    const std::atomic<bool>* stop) {
  end_if_stopped(stop, device);
  spread_threads(threads);
  std::vector<Roof> roofs;
  const auto add = [&](const char* level, const char* what, Best best) {
    end_if_stopped(stop, device);
    roofs.push_back({level, what, threads, true, best.per_second, best.noise, "", best.disturbed});
  };
  add("registers", "f32", peak_flops(DType::f32, threads));
  add("registers", "f64", peak_flops(DType::f64, threads));
  for (const Level& level : levels(device, threads)) {
    const Slices slices(level.bytes_per_thread, threads);
    add(level.name, "read", slices.read());
    add(level.name, "write", slices.write());
    add(level.name, "copy", slices.copy());
  }
  return roofs;
}

}  // namespace

Ceilings measure_ceilings(const DeviceInfo& device, const std::atomic<bool>* stop) {
  if (device.kind == DeviceKind::cuda)
    return {.threads = device.threads,
            .measured = false,
            .f32_flops = device.peak_f32_flops,
            .f64_flops = device.peak_f64_flops,
            .l2_bandwidth = device.peak_bandwidth,
            .l3_bandwidth = device.peak_bandwidth,
            .memory_bandwidth = device.peak_bandwidth};
  const int threads = device.threads;
  end_if_stopped(stop, device);
  spread_threads(threads);
  const std::vector<Level> level = levels(device, threads);
  const auto read = [&](std::size_t i) {
    end_if_stopped(stop, device);
    return Slices(level[i].bytes_per_thread, threads).read().per_second;
  };
  const auto peak = [&](DType dtype) {
    end_if_stopped(stop, device);
    return peak_flops(dtype, threads).per_second;
  };
  Ceilings c;
  c.threads = threads;
  c.f32_flops = peak(DType::f32);
  c.f64_flops = peak(DType::f64);
  c.l2_bandwidth = read(1);
  c.l3_bandwidth = read(2);
  c.memory_bandwidth = read(3);
  end_if_stopped(stop, device);
  return c;
}

std::vector<Roof> measure_copies(Device& device, std::int64_t cached_bytes,
                                 std::int64_t uncached_bytes, const std::atomic<bool>* stop) {
  std::vector<Roof> roofs;
  const std::unique_ptr<Stream> stream = device.make_stream();
  const auto add = [&](const char* level, const char* what, double bytes, int runs,
                       const std::function<void()>& enqueue) {
    end_if_stopped(stop, device.info());
    const Best best =
        best_of(bytes, sampling_s, device.info(), [&] { return stream->time(enqueue, runs); });
    roofs.push_back({level, what, device.info().threads, true, best.per_second, best.noise, "",
                     best.disturbed});
  };
  const auto copy_on_device = [&](const char* level, std::int64_t bytes, int runs) {
    const TensorDesc desc{1, 1, std::max<std::int64_t>(bytes / 8 / 1024, 1), 1024, Layout::nchw};
    const std::size_t half = std::size_t(desc.elements()) * sizeof(float);
    const Buffer from = device.allocate(half), to = device.allocate(half);
    device.copy_to_device(from.data(), std::vector<std::byte>(half), *stream);
    stream->synchronize();
    add(level, "copy", 2.0 * double(half), runs, [&] {
      device.ops().convert_layout(DType::f32, desc, from.data(), desc, to.data(), *stream);
    });
  };
  copy_on_device("L2", cached_bytes, 32);
  copy_on_device("memory", uncached_bytes, 1);

  const auto bytes = std::size_t(std::min<std::int64_t>(uncached_bytes, 64 << 20));
  const Buffer there = device.allocate(bytes), pinned = device.allocate_pinned(bytes);
  std::vector<std::byte> pageable(bytes);
  std::fill_n(pinned.data(), bytes, std::byte{1});
  const std::pair<const char*, Span> hosts[] = {{"pinned", pinned.span()}, {"pageable", pageable}};
  for (const auto& host : hosts) {
    add(host.first, "to device", double(bytes), 1,
        [&] { device.copy_to_device(there.data(), host.second, *stream); });
    stream->synchronize();
    end_if_stopped(stop, device.info());
    // Done on return: the host's clock.
    const Best best = best_of(double(bytes), sampling_s, device.info(), [&] {
      return time_runs([&] { device.copy_to_host(host.second, there.data(), *stream); }, 1);
    });
    roofs.push_back({host.first, "to host", device.info().threads, true, best.per_second,
                     best.noise, "", best.disturbed});
  }
  return roofs;
}

std::vector<Roof> measure_loops(Device& device, const std::atomic<bool>* stop) {
  const DeviceInfo& info = device.info();
  auto* const its = dynamic_cast<CeilingDevice*>(&device);
  if (!its)
    return {{"registers", "f32", info.threads, false, info.peak_f32_flops, 0, ""},
            {"registers", "f64", info.threads, false, info.peak_f64_flops, 0, ""},
            {"memory", "read", info.threads, false, info.peak_bandwidth, 0, ""}};
  constexpr double long_enough_s = 4 * sampling_s;  // a card at rest raises its clocks first
  std::vector<Roof> roofs;
  const std::unique_ptr<Stream> stream = device.make_stream();
  for (const CeilingLoop& loop : its->ceiling_loops()) {
    end_if_stopped(stop, device.info());
    double work = 0;
    const Best runs = best_of(1, long_enough_s, info, [&] {
      return stream->time([&] { work = loop.enqueue(*stream); }, 1);
    });
    roofs.push_back({loop.level, loop.what, info.threads, true, work * runs.per_second, runs.noise,
                     "", runs.disturbed});
  }
  return roofs;
}

std::vector<Roof> measure_roofs(Device& device, const std::atomic<bool>* stop) {
  const DeviceInfo& info = device.info();
  if (info.kind == DeviceKind::cuda) {
    std::vector<Roof> roofs = measure_loops(device, stop);
    for (Roof& roof : measure_copies(device, info.l2_bytes / 4, 512 << 20, stop))
      roofs.push_back(std::move(roof));
    end_if_stopped(stop, device.info());
    return roofs;
  }
  std::vector<Roof> roofs;
  for (int threads = 1;; threads = std::min(2 * threads, info.threads)) {
    for (Roof& roof : measure_cpu_roofs(info, threads, stop)) roofs.push_back(std::move(roof));
    if (threads == info.threads) return roofs;
  }
}

double peak_of(const std::vector<Roof>& roofs, int threads, std::string_view dtype) {
  for (const Roof& roof : roofs)
    if (roof.threads == threads && roof.level == "registers" && roof.what == dtype)
      return roof.per_second;
  return 0;
}

double bandwidth_of(const std::vector<Roof>& roofs, int threads, std::string_view level) {
  double best = 0;
  for (const Roof& roof : roofs)
    if (roof.threads == threads && roof.level == level) best = std::max(best, roof.per_second);
  return best;
}

const Ceilings& ceilings_of(const DeviceInfo& device, const std::atomic<bool>* stop) {
  static std::mutex mutex;
  static std::map<std::tuple<DeviceKind, int, std::string, int>, Ceilings> known;
  const std::lock_guard lock(mutex);
  const std::tuple key(device.kind, device.index, device.isa, device.threads);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, measure_ceilings(device, stop)).first->second;
}

NoiseFloor measure_noise_floor(const DeviceInfo& device) {
  spread_threads(device.threads);
  return measure_noise_floor([&] { fma_on_all_threads(DType::f32, device.threads); });
}

double measure_round_trip(const DeviceInfo& device) {
  using Clock = std::chrono::steady_clock;
  constexpr int batches = 21, rounds = 500;
  if (device.threads < 2) return 0;
  std::vector<double> seconds;
  seconds.reserve(batches);
  alignas(64) std::atomic<int> turns = 0;
  spread_threads(device.threads);
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
  return seconds.empty() ? 0 : median(seconds);
}

double predict_ms(const WorkEstimate& work, const ConvProblem& problem, CacheMode cache,
                  const DeviceInfo& device, const Ceilings& ceilings) {
  const std::int64_t tensors = problem.x_bytes() + problem.y_bytes() + problem.filter_bytes();
  return predict_ms(work, problem.dtype, double(tensors), cache, device, ceilings);
}

double predict_ms(const WorkEstimate& work, DType dtype, double tensor_bytes, CacheMode cache,
                  const DeviceInfo& device, const Ceilings& ceilings) {
  constexpr double loop_start_s = 3e-6;
  const bool in_l3 = cache == CacheMode::hot && tensor_bytes < double(device.l3_bytes) / 2;
  const double bandwidth = in_l3 ? ceilings.l3_bandwidth : ceilings.memory_bandwidth;
  double seconds = 0;
  for (const PhaseWork& phase : work.phases) {
    const double compute = phase.flops / (ceilings.flops(dtype) * phase.efficiency);
    const double move = (phase.bytes_read + phase.bytes_written) / bandwidth;
    seconds += std::max(compute, phase.flops > 0 ? move : move / phase.efficiency) + loop_start_s;
  }
  return 1e3 * seconds;
}

}  // namespace convlab
#endif  // HWY_ONCE
