#include "autotune/race/runner.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "autotune/candidates.h"
#include "autotune/measure/measure.h"
#include "autotune/race/loss.h"

namespace convlab {
namespace {

// A run this long replaces the caches' contents many times over (32 MiB take 3 ms), so the previous
// run's contents make no difference. A warm-up would double the sample's cost.
constexpr double long_run_ms = 100;

// Call it in an exception handler.
[[noreturn]] void lose_candidate() {
  const Loss loss = loss_by(std::current_exception());
  throw CandidateLost(loss.status, loss.reason);
}

}  // namespace

LocalRunner::LocalRunner(const RunnerOptions& options, const Algos& algos, Device& device)
    : options_(options),
      algos_(algos),
      device_(device),
      stream_(device.make_stream()),
      testbed_(make_testbed(options.problem, options.seed, options.evaluate, device, *stream_)),
      meter_(device.info()) {}

void LocalRunner::prepare(Candidate& c) {
  const AlgoRef algo = algos_.get(options_.problem, device_.info().kind, c.algo);
  try {
    std::unique_ptr<PlannedRun> planned = testbed_->plan(algo, c);
    c.workspace_bytes = std::int64_t(planned->workspace_bytes());
    c.packed_filter_bytes = std::int64_t(planned->packed_bytes());
    c.deterministic = algo.deterministic(as_run(options_.problem, c), c.config);
    c.sampled_error = testbed_->sampled();
    if (c.workspace_bytes > options_.workspace_max.value_or(c.workspace_bytes)) {
      c.status = Status::refused;
      c.reason = fmt::format("needs {} bytes of workspace, the limit is {}", c.workspace_bytes,
                             *options_.workspace_max);
      return;
    }
    const CheckResult verdict = planned->check(options_.max_error);
    c.status = verdict.status;
    c.reason = verdict.reason;
    if (c.status == Status::ok) c.reason = planned->note();
    c.rel_error = verdict.rel_error;
    if (c.status != Status::ok) return;
    runs_[candidate_key(c)] = std::move(planned);
  } catch (const std::exception&) {
    lose_candidate();
  }
}

// Measured once for all candidates of these layouts.
Sample LocalRunner::sample_conversions(const Candidate& c) {
  const Layouts layouts{c.x_layout, c.y_layout};
  if (const auto found = convert_s_.find(layouts); found != convert_s_.end())
    return {found->second, 0};
  const Sample sample = metered([&] { return testbed_->time_conversions(c); });
  if (sample.lost <= most_lost) convert_s_[layouts] = sample.seconds;
  return sample;
}

Sample LocalRunner::metered(const std::function<double()>& measure) {
  meter_.start();
  const double seconds = measure();
  return {seconds, meter_.stop()};
}

Sample LocalRunner::sample(const Candidate& c, Timed timed, int runs) {
  PlannedRun& planned = *runs_.at(candidate_key(c));
  const auto run = [&] { planned.run(); };
  try {
    if (timed == Timed::pack)
      return metered([&] {
        return quick_s([&] {
          planned.pack();
          stream_->synchronize();
        });
      });
    if (timed == Timed::convert) return sample_conversions(c);
    planned.prepare();
    if (options_.cache == CacheMode::hot) {
      if (c.ms < long_run_ms) run();
      return metered([&] { return stream_->time(run, runs); });
    }
    Sample sum;
    for (int i = 0; i < runs; ++i) {
      device_.evict_from_caches(planned.memory(), *stream_);
      const Sample one = metered([&] { return stream_->time(run, 1); });
      sum.seconds += one.seconds / runs;
      sum.lost += one.lost / runs;
    }
    return sum;
  } catch (const std::exception&) {
    lose_candidate();
  }
}

void LocalRunner::release(const Candidate& c) { runs_.erase(candidate_key(c)); }

}  // namespace convlab
