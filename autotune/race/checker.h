// Checks the candidates of one problem for `check`. They run in this process until one of them
// loses the device, which ends its use here, and from then on in worker processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "autotune/check.h"
#include "autotune/race/process.h"
#include "conv/registry.h"

namespace convlab {

class Checker {
 public:
  // The arguments outlive it. Seconds: a candidate's in a worker.
  Checker(const AlgoRegistry& registry, Device& device, std::uint64_t seed, double timeout_s = 60)
      : registry_(registry), device_(device), seed_(seed), timeout_s_(timeout_s) {}

  // `problem` without its layouts, which are the candidate's.
  CheckResult check(ConvProblem problem, const Candidate&, double max_error);
  int losses() const { return losses_; }  // of the device

 private:
  CheckResult check_here(const ConvProblem&, const Candidate&, double max_error);
  CheckResult check_in_worker(const ConvProblem&, Candidate, double max_error);

  const AlgoRegistry& registry_;
  Device& device_;
  std::uint64_t seed_;
  double timeout_s_;
  int losses_ = 0;
  // Of the last problem.
  std::optional<ReferenceCase> reference_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<ChildProcess> worker_;  // kept for the next candidate
};

}  // namespace convlab
