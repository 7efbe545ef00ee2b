#include "autotune/race/checker.h"

#include <cmath>
#include <utility>

#include "autotune/candidates.h"
#include "autotune/limits.h"
#include "autotune/race/loss.h"
#include "autotune/race/worker.h"
#include "conv/error.h"

namespace convlab {

CheckResult Checker::check(const Problem& problem, const Candidate& candidate, double max_error) {
  const Problem as_candidate = as_run(problem, candidate);
  if (losses_ > 0) return check_in_worker(as_candidate, candidate, max_error);
  try {
    return check_here(as_candidate, candidate, max_error);
  } catch (const DeviceLost& lost) {
    ++losses_;
    return {Status::failed, lost.what(), INFINITY};
  }
}

CheckResult Checker::check_here(const Problem& problem, const Candidate& candidate,
                                double max_error) {
  validate_limits(max_error, {});
  if (!stream_) stream_ = device_.make_stream();
  if (const Problem plain = problem.with_layouts({Layout::nchw, Layout::nchw});
      !testbed_ || problem_ != plain) {
    testbed_.reset();
    problem_ = plain;
    testbed_ = make_testbed(plain, seed_, ReferenceCase::Evaluate::whole, device_, *stream_);
  }
  const AlgoRef algo = algos_.get(problem, device_.info().kind, candidate.algo);
  if (const auto refusal = algo.refuse(problem, device_))
    return {Status::refused, refusal->reason(), 0};
  try {
    return testbed_->plan(algo, candidate)->check(max_error);
  } catch (const std::exception&) {
    const Loss loss = loss_by(std::current_exception());
    return {loss.status, loss.reason, loss.status == Status::refused ? 0 : INFINITY};
  }
}

CheckResult Checker::check_in_worker(const Problem& problem, Candidate candidate,
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
