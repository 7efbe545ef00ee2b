#include "autotune/runner.h"

#include <fmt/format.h>

#include <array>
#include <new>
#include <vector>

#include "autotune/measure.h"
#include "conv/error.h"
#include "conv/plan_note.h"

namespace convlab {
namespace {

// A run this long fills the caches anew many times over (32 MiB of them take 3 ms): what the run
// before it left there makes no difference, and would double what the sample costs.
constexpr double long_run_ms = 100;

// Median of a few calls after one that is not timed; slow work is called less often.
double quick_ms(const std::function<void()>& work) {
  work();
  std::vector<double> ms{1e3 * time_runs(work, 1)};
  if (ms[0] < 10)
    for (int i = 0; i < 4; ++i) ms.push_back(1e3 * time_runs(work, 1));
  return median(ms);
}

}  // namespace

std::string candidate_key(const Candidate& c) {
  return fmt::format("{} {} {} {}", c.algo, c.config.text(), to_string(c.x_layout),
                     to_string(c.y_layout));
}

LocalRunner::LocalRunner(const RunnerOptions& options, const AlgoRegistry& registry, Device& device)
    : options_(options),
      registry_(registry),
      device_(device),
      stream_(device.make_stream()),
      reference_(options.problem, options.seed) {}

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

// Of x and y alike, from or to NCHW: what a layer pays whose neighbours keep NCHW.
double LocalRunner::convert_ms(const Candidate& c) {
  const auto [found, is_new] = convert_ms_.try_emplace({c.x_layout, c.y_layout}, 0.0);
  if (!is_new) return found->second;
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
    found->second += quick_ms([&] {
      device_.ops().convert_layout(problem.dtype, plain, from.data(), desc, to.data(), *stream_);
      stream_->synchronize();
    });
  }
  return found->second;
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
    const Operands::Verdict verdict = trial->check(reference_, options_.max_error);
    c.status = verdict.status;
    c.reason = verdict.reason;
    const auto* const noted = dynamic_cast<const PlanNote*>(&trial->plan());
    if (noted && c.status == Status::ok) c.reason = noted->note();
    c.rel_error = verdict.rel_error;
    if (c.status != Status::ok) return;
    c.pack_ms = c.packed_filter_bytes > 0 ? quick_ms([&] {
      trial->pack();
      stream_->synchronize();
    })
                                          : 0;
    c.convert_ms = convert_ms(c);
    trials_[candidate_key(c)] = std::move(trial);
  } catch (const OutOfMemory& e) {
    throw CandidateLost(Status::refused, e.what());
  } catch (const std::bad_alloc&) {
    throw CandidateLost(Status::refused, "out of memory");
  } catch (const DeviceLost&) {
    throw;  // not this candidate alone
  } catch (const std::exception& e) {
    throw CandidateLost(Status::failed, e.what());
  }
}

double LocalRunner::sample(const Candidate& c, int runs) {
  Trial& trial = *trials_.at(candidate_key(c));
  const auto run = [&] { trial.run(); };
  try {
    if (options_.cache == CacheMode::hot) {
      if (c.ms < long_run_ms) run();
      return stream_->time(run, runs);
    }
    double seconds = 0;
    for (int i = 0; i < runs; ++i) {
      device_.evict_from_caches(trial.memory(), *stream_);
      seconds += stream_->time(run, 1);
    }
    return seconds / runs;
  } catch (const DeviceLost&) {
    throw;  // not this candidate alone
  } catch (const std::exception& e) {
    throw CandidateLost(Status::failed, e.what());
  }
}

void LocalRunner::release(const Candidate& c) { trials_.erase(candidate_key(c)); }

}  // namespace convlab
