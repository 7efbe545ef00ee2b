// What all calls from Python share: the device, the algorithms, the tuning store, and the plans
// that earlier calls have made. Knows nothing of Python.
#pragma once

#include <sys/types.h>

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "autotune/algos.h"
#include "autotune/candidates.h"
#include "autotune/store/store.h"
#include "conv/device.h"
#include "nets/run/batched_conv.h"

namespace convlab::python {

// A convolution that is ready to run, from several threads at once.
class PreparedConv {
 public:
  // `problem` is as the caller wants it, epilogue included; `fused` the part of the epilogue that
  // the algorithm applies itself. It works in these layouts, and activations are converted.
  PreparedConv(const ConvProblem& problem, std::string asked, nets::PassPlan, Layouts,
               const Epilogue& fused, const ConvAlgo&, Device&);

  const ConvProblem& problem() const { return problem_; }
  const std::string& asked() const { return asked_; }  // an algorithm or family; empty: any
  const nets::PassPlan& plan() const { return plan_; }
  const ConvProblem& inner() const { return inner_; }  // in the algorithm's layouts

  std::size_t scratch_bytes() const { return scratch_bytes_; }
  // args: as ConvArgs in the caller's layouts, w unpacked. The scratch has scratch_bytes() and is
  // 64-byte aligned.
  void run(ConvArgs args, Span scratch, Device&) const;

 private:
  ConvProblem problem_, inner_;
  std::string asked_;
  nets::PassPlan plan_;
  nets::BatchedConv conv_;
  // The scratch: workspaces, then the packed filter and the converted activations; 0 bytes where
  // there are none.
  std::size_t packed_at_ = 0, x_at_ = 0, y_at_ = 0, scratch_bytes_ = 0;
  bool converts_x_ = false, converts_y_ = false;
};

// Memory that calls take in turns, so that a repeated call meets pages that are mapped already.
// There are as many buffers as there were calls at one time.
class ScratchPool {
 public:
  Buffer take(std::size_t bytes, Device&);
  void give(Buffer);
  void clear();

 private:
  std::mutex mutex_;
  std::vector<Buffer> free_;
};

class Engine {
 public:
  // Makes the device in the first call. Throws EnvironmentError in a process that was forked after
  // that: OpenMP's threads stayed in the parent.
  static Engine& get();

  Device& device() { return *device_; }
  Device& device(int threads);  // of that many; they stay
  const Algos& algos() const { return algos_; }
  ScratchPool& scratch() { return scratch_; }

  // Throws InputError if `algo` names no algorithm, or if none that it names takes the problem.
  std::shared_ptr<const PreparedConv> prepared(const ConvProblem&, const std::string& algo);
  // Opens the store if there is one by now; null otherwise. Calls are serialised by the caller.
  template <class Use>
  auto with_store(const Use& use) {
    const std::lock_guard lock(planning_);
    return use(store());
  }
  // Most recently used first.
  std::vector<std::shared_ptr<const PreparedConv>> plans();
  void forget();  // plans, the open store and scratch

 private:
  Engine();
  const Store* store();
  std::shared_ptr<const PreparedConv> find(const ConvProblem&, const std::string& algo);
  std::shared_ptr<const PreparedConv> prepare(const ConvProblem&, const std::string& algo);

  std::unique_ptr<Device> device_;
  std::mutex devices_mutex_;
  std::map<int, std::unique_ptr<Device>> devices_;  // for other numbers of threads
  Algos algos_;
  pid_t process_;
  std::mutex planning_;  // one plan is made at a time; taken before plans_mutex_
  std::optional<Store> store_;
  std::mutex plans_mutex_;
  std::list<std::shared_ptr<const PreparedConv>> plans_;
  ScratchPool scratch_;
};

}  // namespace convlab::python
