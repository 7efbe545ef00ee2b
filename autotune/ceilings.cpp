#include "autotune/ceilings.h"

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autotune/ceilings.cpp"
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
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i + 4 * step <= count; i += 4 * step) {
    s0 = hn::Add(s0, hn::Load(d, data + i));
    s1 = hn::Add(s1, hn::Load(d, data + i + step));
    s2 = hn::Add(s2, hn::Load(d, data + i + 2 * step));
    s3 = hn::Add(s3, hn::Load(d, data + i + 3 * step));
  }
  return double(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)))));
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

double multiply_add(DType dtype, std::int64_t n, double* sink) {
  return dtype == DType::f64 ? HWY_DYNAMIC_DISPATCH(MultiplyAddF64)(n, sink)
                             : HWY_DYNAMIC_DISPATCH(MultiplyAddF32)(n, sink);
}

// Best of several runs, which is what a ceiling is.
double best_seconds(const std::function<void()>& work, double total_s) {
  work();
  double best = time_runs(work, 1);
  const int more = std::clamp(int(total_s / best), 2, 200);
  for (int i = 0; i < more; ++i) best = std::min(best, time_runs(work, 1));
  return best;
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

double peak_flops(DType dtype, int threads) {
  double flops = 0;
  const double seconds = best_seconds([&] { flops = fma_on_all_threads(dtype, threads); }, 0.05);
  return flops / seconds;
}

double read_bandwidth(std::int64_t bytes_per_thread, int threads) {
  const std::size_t count = std::size_t(bytes_per_thread) / sizeof(float) / 64 * 64;
  std::vector<float*> slices(std::size_t(threads), nullptr);
  double seconds = 0, keep = 0;
#pragma omp parallel num_threads(threads)
  {
    float*& slice = slices[std::size_t(omp_get_thread_num())];
    slice = static_cast<float*>(::operator new (count * sizeof(float), std::align_val_t{64}));
    std::fill_n(slice, count, 1.0f);
  }
  // Small slices are read several times over, so that starting the threads does not count.
  const std::size_t repeats = std::max<std::size_t>(1, (std::size_t(8) << 20) / (count * 4));
  seconds = best_seconds(
      [&] {
#pragma omp parallel num_threads(threads) reduction(+ : keep)
        for (std::size_t r = 0; r < repeats; ++r)
          keep += HWY_DYNAMIC_DISPATCH(ReadAll)(slices[std::size_t(omp_get_thread_num())], count);
      },
      0.05);
  volatile double used = keep;
  (void)used;
  for (float* slice : slices) ::operator delete (slice, std::align_val_t{64});
  return double(count * sizeof(float) * repeats) * threads / seconds;
}

}  // namespace

Ceilings measure_ceilings(const DeviceInfo& device) {
  if (device.kind == DeviceKind::cuda)
    return {.threads = device.threads,
            .measured = false,
            .f32_flops = device.peak_f32_flops,
            .f64_flops = device.peak_f64_flops,
            .l2_bandwidth = device.peak_bandwidth,
            .l3_bandwidth = device.peak_bandwidth,
            .memory_bandwidth = device.peak_bandwidth};
  constexpr std::int64_t most = 256 << 20;
  const int threads = device.threads;
  const std::int64_t l2 = std::max<std::int64_t>(device.l2_bytes, 256 << 10);
  const std::int64_t l3 = std::max(device.l3_bytes, l2 * threads);
  Ceilings c;
  c.threads = threads;
  c.f32_flops = peak_flops(DType::f32, threads);
  c.f64_flops = peak_flops(DType::f64, threads);
  c.l2_bandwidth = read_bandwidth(l2 / 2, threads);
  c.l3_bandwidth = read_bandwidth(std::max(l2 * 2, std::min(l2 * 4, l3 / 2 / threads)), threads);
  c.memory_bandwidth = read_bandwidth(std::min(most, 4 * l3) / threads, threads);
  return c;
}

const Ceilings& ceilings_of(const DeviceInfo& device) {
  static std::mutex mutex;
  static std::map<std::tuple<DeviceKind, int, std::string, int>, Ceilings> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] =
      known.try_emplace({device.kind, device.index, device.isa, device.threads});
  if (is_new) found->second = measure_ceilings(device);
  return found->second;
}

NoiseFloor measure_noise_floor(const DeviceInfo& device) {
  return measure_noise_floor([&] { fma_on_all_threads(DType::f32, device.threads); });
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
