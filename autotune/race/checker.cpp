#include "autotune/race/checker.h"

#include <cmath>
#include <utility>

#include "autotune/candidates.h"
#include "autotune/race/worker.h"
#include "conv/error.h"

namespace convlab {

CheckResult Checker::check(ConvProblem problem, const Candidate& candidate, double max_error) {
  problem = with_layouts(problem, {candidate.x_layout, candidate.y_layout});
  if (losses_ > 0) return check_in_worker(problem, candidate, max_error);
  try {
    return check_here(problem, candidate, max_error);
  } catch (const DeviceLost& lost) {
    ++losses_;
    return {Status::failed, lost.what(), INFINITY};
  }
}

CheckResult Checker::check_here(const ConvProblem& problem, const Candidate& candidate,
                                double max_error) {
  const auto plain = [](const ConvProblem& p) {
    return with_layouts(p, {Layout::nchw, Layout::nchw});
  };
  if (!reference_ || plain(reference_->problem()) != plain(problem))
    reference_.emplace(problem, seed_);
  if (!stream_) stream_ = device_.make_stream();
  return check_candidate(registry_.get(device_.info().kind, candidate.algo), problem,
                         candidate.config, *reference_, device_, *stream_, max_error);
}

CheckResult Checker::check_in_worker(const ConvProblem& problem, Candidate candidate,
                                     double max_error) {
  RunnerOptions options;
  options.problem = problem;
  options.seed = seed_;
  options.max_error = max_error;
  try {
    WorkerRunner runner(options, device_.info(), timeout_s_, {}, &worker_);
    runner.prepare(candidate);
  } catch (const CandidateLost& lost) {
    const bool refused = lost.status == Status::refused;
    losses_ += !refused;
    return {lost.status, lost.what(), refused ? 0 : INFINITY};
  }
  const bool passed = candidate.status == Status::ok;
  return {candidate.status, passed ? "" : candidate.reason, candidate.rel_error};
}

}  // namespace convlab
