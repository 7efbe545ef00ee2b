#include "bench/micro/lab.h"

#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "autotune/store/provenance.h"
#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/gemm/openblas.h"

namespace convlab::micro {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class T>
Buffer random_numbers(std::int64_t count) {
  Buffer buffer = lab().device->allocate(static_cast<std::size_t>(count) * sizeof(T));
  static const std::vector<T> pool = [] {
    std::mt19937 random(1);
    std::normal_distribution<T> normal;
    std::vector<T> values((1 << 16) + 1);
    for (T& v : values) v = normal(random);
    return values;
  }();
  T* const to = buffer.as<T>();
  for (std::int64_t i = 0; i < count; ++i) to[i] = pool[static_cast<std::size_t>(i) % pool.size()];
  return buffer;
}

// The fastest of several copies, on all threads. `bytes` counts reads and writes together.
double copy_bandwidth(std::int64_t bytes) {
  const auto half = static_cast<std::size_t>(bytes / 2);
  const Buffer from = random_floats(bytes / 8 + 1), to = random_floats(bytes / 8 + 1);
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto start = Clock::now();
#pragma omp parallel
    {
      const auto threads = static_cast<std::size_t>(omp_get_num_threads());
      const auto thread = static_cast<std::size_t>(omp_get_thread_num());
      const std::size_t begin = half * thread / threads, end = half * (thread + 1) / threads;
      std::memcpy(to.data() + begin, from.data() + begin, end - begin);
    }
    best = std::min(best, seconds_since(start));
  }
  return double(bytes) / best;
}

void run_case(benchmark::State& state, const std::function<Work()>& make) {
  Work work;
  try {
    work = make();
  } catch (const Error& error) {
    state.SkipWithError(error.what());
    return;
  }
  const double copy = work.bytes > 0 ? copy_bandwidth(work.bytes) : 0;
  work.run();
  std::vector<double> times;
  for (auto _ : state) {
    const auto start = Clock::now();
    work.run();
    times.push_back(seconds_since(start));
    state.SetIterationTime(times.back());
  }
  const double best = *std::min_element(times.begin(), times.end());
  const auto middle = times.begin() + std::ptrdiff_t(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  state.counters["median_ms"] = 1e3 * *middle;
  if (work.flops > 0) state.counters["best_GFLOPs"] = work.flops / best * 1e-9;
  if (work.bytes > 0) {
    state.counters["best_GBps"] = double(work.bytes) / best * 1e-9;
    state.counters["of_copy"] = double(work.bytes) / best / copy;
  }
  for (const auto& [name, value] : work.counters) state.counters[name] = value;
}

}  // namespace

Lab::Lab() : device(make_cpu_device({})), stream(device->make_stream()), ops(device->ops()) {}

Lab& lab() {
  static Lab one;
  return one;
}

Buffer random_floats(std::int64_t count) { return random_numbers<float>(count); }
Buffer random_doubles(std::int64_t count) { return random_numbers<double>(count); }

void add_case(const std::string& name, std::function<Work()> make) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [make](benchmark::State& state) { run_case(state, make); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void prepare(char** argv) { restart_with_suitable_openblas(argv); }

int run_cases(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const auto& [name, value] : collect_provenance(lab().device->info()).fields)
    if (name != "date") benchmark::AddCustomContext(name, value);  // Google Benchmark adds a date
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace convlab::micro
