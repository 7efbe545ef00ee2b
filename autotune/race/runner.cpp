#include "autotune/race/runner.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "autotune/measure/measure.h"
#include "autotune/race/loss.h"
#include "conv/optional/plan_note.h"

namespace convlab {
namespace {

// A run this long replaces the caches' contents many times over (32 MiB take 3 ms), so the previous
// run's contents make no difference. A warm-up would double the sample's cost.
constexpr double long_run_ms = 100;

// Median of the calls that fill a millisecond, after an untimed one.
double quick_s(const std::function<void()>& work) {
  constexpr double enough_s = 1e-3;
  work();
  std::vector<double> s;
  for (double sum_s = 0; sum_s < enough_s; sum_s += s.back()) s.push_back(time_runs(work, 1));
  return median(s);
}

// Call it in an exception handler.
[[noreturn]] void lose_candidate() {
  const Loss loss = loss_by(std::current_exception());
  throw CandidateLost(loss.status, loss.reason);
}

}  // namespace

LocalRunner::LocalRunner(const RunnerOptions& options, const AlgoRegistry& registry, Device& device)
    : options_(options),
      registry_(registry),
      device_(device),
      stream_(device.make_stream()),
      reference_(options.problem, options.seed, DataKind::normal, options.evaluate),
      meter_(device.info()) {}

ConvProblem LocalRunner::with_layouts(const Candidate& c) const {
  ConvProblem problem = options_.problem;
  problem.x_layout = c.x_layout;
  problem.y_layout = c.y_layout;
  return problem;
}

Operands& LocalRunner::operands(const Candidate& c) {
  std::unique_ptr<Operands>& operands = operands_[{c.x_layout, c.y_layout}];
  if (!operands)
    operands = std::make_unique<Operands>(reference_, with_layouts(c), device_, *stream_);
  return *operands;
}

// Converts x and y from or to NCHW: the cost for a layer whose neighbours use NCHW.
double LocalRunner::time_conversions(const Candidate& c) {
  double sum = 0;
  const ConvProblem problem = with_layouts(c);
  for (const TensorDesc& desc : {problem.x_desc(), problem.y_desc()}) {
    if (desc.layout == Layout::nchw) continue;
    TensorDesc plain = desc;
    plain.layout = Layout::nchw;
    const auto bytes = [&](const TensorDesc& d) {
      return std::size_t(d.elements() * size_of(problem.dtype));
    };
    const Buffer from = device_.allocate(bytes(plain)), to = device_.allocate(bytes(desc));
    const std::vector<std::byte> zeros(from.bytes());
    device_.copy_to_device(from.data(), zeros, *stream_);
    sum += quick_s([&] {
      device_.ops().convert_layout(problem.dtype, plain, from.data(), desc, to.data(), *stream_);
      stream_->synchronize();
    });
  }
  return sum;
}

void LocalRunner::prepare(Candidate& c) {
  const ConvAlgo& algo = registry_.get(device_.info().kind, c.algo);
  try {
    auto trial =
        std::make_unique<Trial>(algo, c.config, operands(c), workspace_, device_, *stream_);
    c.workspace_bytes = std::int64_t(trial->plan().workspace_bytes());
    c.packed_filter_bytes = std::int64_t(trial->plan().packed_filter_bytes());
    c.deterministic = algo.deterministic(with_layouts(c), c.config);
    c.sampled_error = reference_.sampled();
    if (c.workspace_bytes > options_.workspace_max.value_or(c.workspace_bytes)) {
      c.status = Status::refused;
      c.reason = fmt::format("needs {} bytes of workspace, the limit is {}", c.workspace_bytes,
                             *options_.workspace_max);
      return;
    }
    const CheckResult verdict = trial->check(reference_, options_.max_error);
    c.status = verdict.status;
    c.reason = verdict.reason;
    const auto* const noted = dynamic_cast<const PlanNote*>(&trial->plan());
    if (noted && c.status == Status::ok) c.reason = noted->note();
    c.rel_error = verdict.rel_error;
    if (c.status != Status::ok) return;
    trials_[candidate_key(c)] = std::move(trial);
  } catch (const std::exception&) {
    lose_candidate();
  }
}

// Measured once for all candidates of these layouts.
Sample LocalRunner::sample_conversions(const Candidate& c) {
  const Layouts layouts{c.x_layout, c.y_layout};
  if (const auto found = convert_s_.find(layouts); found != convert_s_.end())
    return {found->second, 0};
  const Sample sample = metered([&] { return time_conversions(c); });
  if (sample.lost <= most_lost) convert_s_[layouts] = sample.seconds;
  return sample;
}

Sample LocalRunner::metered(const std::function<double()>& measure) {
  meter_.start();
  const double seconds = measure();
  return {seconds, meter_.stop()};
}

Sample LocalRunner::sample(const Candidate& c, Timed timed, int runs) {
  Trial& trial = *trials_.at(candidate_key(c));
  const auto run = [&] { trial.run(); };
  try {
    if (timed == Timed::pack)
      return metered([&] {
        return quick_s([&] {
          trial.pack();
          stream_->synchronize();
        });
      });
    if (timed == Timed::convert) return sample_conversions(c);
    trial.prepare();
    if (options_.cache == CacheMode::hot) {
      if (c.ms < long_run_ms) run();
      return metered([&] { return stream_->time(run, runs); });
    }
    Sample sum;
    for (int i = 0; i < runs; ++i) {
      device_.evict_from_caches(trial.memory(), *stream_);
      const Sample one = metered([&] { return stream_->time(run, 1); });
      sum.seconds += one.seconds / runs;
      sum.lost += one.lost / runs;
    }
    return sum;
  } catch (const std::exception&) {
    lose_candidate();
  }
}

void LocalRunner::release(const Candidate& c) { trials_.erase(candidate_key(c)); }

}  // namespace convlab
