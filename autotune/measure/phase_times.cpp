#include "autotune/measure/phase_times.h"

#include <omp.h>

#include <algorithm>

#include "autotune/measure/measure.h"
#include "autotune/testbed/verify.h"

namespace convlab {
namespace {

// Each thread's time in each phase, padded to a cache line or more per thread to avoid false
// sharing.
class ThreadClocks : public PhaseRecorder {
 public:
  ThreadClocks(std::size_t threads, std::size_t phases)
      : seconds_(threads, std::vector<double>(phases + 8)) {}

  void add(int phase, double seconds) override {
    seconds_.at(std::size_t(omp_get_thread_num())).at(std::size_t(phase)) += seconds;
  }

  std::vector<double> mean_ms(std::size_t phases) const {
    std::vector<double> sum(phases);
    double threads = 0;
    for (const std::vector<double>& mine : seconds_) {
      threads += *std::max_element(mine.begin(), mine.end()) > 0 ? 1 : 0;
      for (std::size_t i = 0; i < phases; ++i) sum[i] += 1e3 * mine[i];
    }
    for (double& s : sum) s /= std::max(threads, 1.0);
    return sum;
  }

 private:
  std::vector<std::vector<double>> seconds_;
};

// Trial and PlannedRun are run alike.
template <class Run>
PhaseTimes phases_of(Run& planned, std::size_t phases, CacheMode cache, Device& device,
                     Stream& stream) {
  constexpr double enough_s = 0.02;
  constexpr std::size_t most_runs = 9;
  planned.pack();
  planned.run();
  stream.synchronize();
  const auto threads = std::size_t(std::max(device.info().threads, omp_get_max_threads()));
  std::vector<PhaseTimes> runs;
  for (double spent = 0; runs.size() < most_runs && (runs.empty() || spent < enough_s);) {
    if (cache == CacheMode::cold) device.evict_from_caches(planned.memory(), stream);
    stream.synchronize();
    ThreadClocks clocks(threads, phases);
    const double seconds = time_runs(
        [&] {
          planned.run(&clocks);
          stream.synchronize();
        },
        1);
    PhaseTimes& run = runs.emplace_back();
    run.ms = 1e3 * seconds;
    run.phase_ms = clocks.mean_ms(phases);
    run.other_ms = run.ms;
    for (const double ms : run.phase_ms) run.other_ms -= ms;
    run.other_ms = std::max(run.other_ms, 0.0);
    spent += seconds;
  }
  std::nth_element(runs.begin(), runs.begin() + std::ptrdiff_t(runs.size() / 2), runs.end(),
                   [](const PhaseTimes& a, const PhaseTimes& b) { return a.ms < b.ms; });
  return runs[runs.size() / 2];
}

}  // namespace

PhaseTimes measure_phases(PlannedRun& planned, std::size_t phases, CacheMode cache, Device& device,
                          Stream& stream) {
  return phases_of(planned, phases, cache, device, stream);
}

PhaseTimes measure_phases(const ConvAlgo& algo, const ConvProblem& problem, const Config& config,
                          CacheMode cache, const ReferenceCase& data, Device& device) {
  const std::unique_ptr<Stream> stream = device.make_stream();
  Operands operands(data, problem, device, *stream);
  GuardedBuffer workspace;
  Trial trial(algo, config, operands, workspace, device, *stream);
  return phases_of(trial, algo.work(problem, config, device).phases.size(), cache, device, *stream);
}

}  // namespace convlab
