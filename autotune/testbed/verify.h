// How a result is checked: operands in each candidate's layouts, poison in all memory that must be
// written, guards around it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autotune/check.h"
#include "conv/algo.h"

namespace convlab {

inline constexpr std::byte poison_byte{0xFF};  // all ones is a NaN in every float type

// Rounded to dtype. Equal seeds give equal values; different seeds are unrelated.
std::vector<double> random_values(std::int64_t count, DType dtype, std::uint64_t seed, DataKind);

// ok, inaccurate, or failed where the error is the result's own size; only then is `worst` called,
// which says where and by how much.
CheckResult judge_error(double error, double max_error, const std::function<std::string()>& worst);

// Device memory between two guard zones, to catch writes past either end. Under AddressSanitizer
// the zones are poisoned, which catches reads as well. Can be reused for another size.
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  GuardedBuffer(std::size_t bytes, Device&, Stream&);
  GuardedBuffer(GuardedBuffer&&) = default;
  GuardedBuffer& operator=(GuardedBuffer&&) = default;
  ~GuardedBuffer();
  // Gives span() this length, in the existing memory if it suffices. Contents are lost.
  void resize(std::size_t bytes, Device&, Stream&);

  std::byte* data() const { return buffer_.data() ? buffer_.data() + guard : nullptr; }
  Span span() const { return {data(), bytes_}; }
  bool intact(Device&, Stream&) const;  // nothing was written outside span()

 private:
  static constexpr std::size_t guard = 256;
  void protect(bool) const;
  Buffer buffer_;
  std::size_t bytes_ = 0;
};

// One problem's operands on a device, in the layouts of `problem`. Shared by all candidates of
// those layouts, so that tuning holds one copy per layout pair.
class Operands {
 public:
  // `problem` equals the case's but for layouts.
  Operands(const ReferenceCase&, const ConvProblem& problem, Device&, Stream&);

  const ConvProblem& problem() const { return problem_; }
  ConvArgs args() const;  // w is the unpacked filter
  ConstSpan filter() const { return w_.span(); }
  std::vector<ConstSpan> memory() const;  // all of it

  void poison_output();  // NaN, or the old contents when the problem accumulates
  // Compares the output with the case: error, poison left, nonzero padding lanes, broken guards.
  // failed or inaccurate carries its reason.
  CheckResult judge(const ReferenceCase&, double max_error) const;

 private:
  ConvProblem problem_;
  Device& device_;
  Stream& stream_;
  GuardedBuffer x_, w_, dy_, bias_, residual_, out_;
  std::vector<std::byte> initial_out_;
  mutable Buffer host_out_;  // host copy for judge
};

// A plan with its memory: packed filter and workspace, both exactly sized and poisoned. Trials
// share one workspace in turn, so that a race needs only its largest candidate's.
class Trial {
 public:
  Trial(const ConvAlgo&, const Config&, Operands&, GuardedBuffer& workspace, Device&, Stream&);

  const ConvPlan& plan() const { return *plan_; }
  void pack();  // does nothing for plans that take the filter unpacked
  // Gives the shared workspace this plan's size. run() does so as well, but a capture into a graph
  // may neither allocate nor copy.
  void prepare();
  void run(PhaseRecorder* = nullptr);
  std::vector<ConstSpan> memory() const;  // all that a run may access
  // Poisons, packs, runs, judges; also checks the guards of workspace and packed filter.
  CheckResult check(const ReferenceCase&, double max_error);

 private:
  Operands& operands_;
  Device& device_;
  Stream& stream_;
  std::unique_ptr<ConvPlan> plan_;
  GuardedBuffer packed_;
  GuardedBuffer& workspace_;
};

}  // namespace convlab
