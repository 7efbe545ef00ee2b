// Candidates in a separate process, so that a crash or a hang costs only the candidate.
//
// The worker is this executable started afresh (after a bare fork, libgomp's threads are missing in
// the child and its next parallel loop hangs). All candidates of one problem share a worker, so
// that they interleave. The race logic runs here, in the parent. The worker executes commands, one
// JSON object a line: prepare a candidate, sample it, release it. While it measures, the parent
// sleeps in poll. After a crash, a hang or a lost device the next call starts a new worker, in
// which the other candidates are prepared again when their turn comes. A worker without failures
// continues with the next problem, since initialising a card takes about a second.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>

#include "autotune/race/process.h"
#include "autotune/race/runner.h"
#include "autotune/worker.h"

namespace convlab {

// A card whose driver compiles kernels gets two more minutes: the largest file of kernels takes
// nvcc half a minute.
double patience_s(double timeout_s, const DeviceInfo&);

class WorkerRunner : public CandidateRunner {
 public:
  // The worker makes a device of the same kind, index, ISA and threads. A call that takes longer
  // than patience_s plus 100 times its expected time ends as Status::timeout. It ends as
  // Status::dropped when `stop` returns true during the wait, and as Status::refused if the machine
  // lacks a resource (autotune/race/loss.h). A worker that ends before it has a candidate is no
  // candidate's fault: EnvironmentError, or OutOfMemory when it was killed. A worker in `spare` is
  // used before a new one is started, and left there at the end.
  WorkerRunner(const RunnerOptions&, const DeviceInfo&, double timeout_s,
               std::function<bool()> stop = {}, std::unique_ptr<ChildProcess>* spare = nullptr);
  ~WorkerRunner() override;

  void prepare(Candidate&) override;
  Sample sample(const Candidate&, Timed, int runs) override;
  void release(const Candidate&) override;

 private:
  nlohmann::json ask(const nlohmann::json& request, double expected_s);
  nlohmann::json ask_running(const nlohmann::json& request, double limit_s);
  void open();
  double limit_s(double expected_s) const;
  void start();
  void start_process();
  void lose_worker();
  void prepare_in_worker(Candidate&);

  RunnerOptions options_;
  DeviceInfo device_;
  double timeout_s_;
  std::function<bool()> stop_;
  std::unique_ptr<ChildProcess>* spare_;
  std::unique_ptr<ChildProcess> worker_;
  bool trusted_ = true;             // no candidate has failed in the worker that runs now
  bool killed_ = false;             // a signal ended the last worker
  std::set<std::string> prepared_;  // in the worker that runs now
};

}  // namespace convlab
