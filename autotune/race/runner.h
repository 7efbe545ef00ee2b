// Runs the candidates of one problem in this process, on real data.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "autotune/measure/disturbance.h"
#include "autotune/race/candidate_runner.h"
#include "autotune/testbed/testbed.h"

namespace convlab {

// Settings shared by all candidates. Layouts of `problem` are ignored.
struct RunnerOptions {
  Problem problem;
  CacheMode cache = CacheMode::hot;
  std::uint64_t seed = 1;
  double max_error = std::numeric_limits<double>::infinity();
  std::optional<std::int64_t> workspace_max;
  // sample: for candidates that were checked whole in another process.
  ReferenceCase::Evaluate evaluate = ReferenceCase::Evaluate::whole;
};

// Hot: operands, workspace and output are as the previous run of the same candidate left them.
// Cold: all of them are evicted from every cache before each timed run.
class LocalRunner : public CandidateRunner {
 public:
  LocalRunner(const RunnerOptions&, const Algos&, Device&);  // evaluates the reference

  void prepare(Candidate&) override;
  Sample sample(const Candidate&, Timed, int runs) override;
  void release(const Candidate&) override;

 private:
  Sample sample_conversions(const Candidate&);
  Sample metered(const std::function<double()>& measure);

  RunnerOptions options_;
  const Algos& algos_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Testbed> testbed_;
  std::map<Layouts, double> convert_s_;
  std::map<std::string, std::unique_ptr<PlannedRun>> runs_;
  DisturbanceMeter meter_;
};

}  // namespace convlab
