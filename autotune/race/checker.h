// Checks the candidates of one problem for `check`. They run in this process until one of them
// loses the device, which ends its use here, and from then on in worker processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "autotune/race/process.h"
#include "autotune/testbed/testbed.h"

namespace convlab {

class Checker {
 public:
  // The arguments outlive it. Seconds: a candidate's in a worker.
  Checker(const Algos& algos, Device& device, std::uint64_t seed, double timeout_s = 60)
      : algos_(algos), device_(device), seed_(seed), timeout_s_(timeout_s) {}

  // Layouts of the problem are ignored: they are the candidate's.
  CheckResult check(const Problem&, const Candidate&, double max_error);
  int losses() const { return losses_; }  // of the device

 private:
  CheckResult check_here(const Problem&, const Candidate&, double max_error);
  CheckResult check_in_worker(const Problem&, Candidate, double max_error);

  const Algos& algos_;
  Device& device_;
  std::uint64_t seed_;
  double timeout_s_;
  int losses_ = 0;
  // Of the last problem.
  std::optional<Problem> problem_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Testbed> testbed_;
  std::unique_ptr<ChildProcess> worker_;  // kept for the next candidate
};

}  // namespace convlab
