// Is an algorithm's result right? One reference per problem and seed, shared by every candidate;
// operands in each candidate's layouts; poison in whatever must be written; guards around whatever
// must not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autotune/result.h"
#include "conv/algo.h"
#include "conv/reference.h"

namespace convlab {

// normal: nearly N(0,1), what everything is timed and judged on. small_integers: -2..2, on which
// sums of products are exact in every float type, so that plain algorithms must agree to the last
// bit.
enum class DataKind : std::uint8_t { normal, small_integers };

// Data of one problem (layouts aside) and the outputs it should give. Inputs are rounded to the
// problem's dtype first. Above full_reference_limit multiply-adds only a sample is evaluated.
// Host memory: 8 bytes per element of the tensors that the pass reads.
class ReferenceCase {
 public:
  // whole: all outputs, or the sample. sample: a few hundred outputs, which finds what works no
  // longer and says little about the error. nothing: operands to run on, and nothing can be judged.
  enum class Evaluate : std::uint8_t { whole, sample, nothing };
  ReferenceCase(const ConvProblem&, std::uint64_t seed, DataKind = DataKind::normal,
                Evaluate = Evaluate::whole);

  const ConvProblem& problem() const { return problem_; }
  const ReferenceInput& input() const { return input_; }
  bool sampled() const { return sampled_; }
  const std::vector<std::int64_t>& indices() const { return indices_; }  // plain, sorted
  const std::vector<double>& expected() const { return expected_; }      // at indices()

 private:
  ConvProblem problem_;
  std::vector<double> x_, w_, dy_, bias_, residual_, out_;
  ReferenceInput input_;
  std::vector<std::int64_t> indices_;
  std::vector<double> expected_;
  bool sampled_ = false;
};

// Device memory between two guard zones, to catch writes past either end. Under AddressSanitizer
// the zones are poisoned, which catches reads as well. Can be used again for another size.
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  GuardedBuffer(std::size_t bytes, Device&, Stream&);
  GuardedBuffer(GuardedBuffer&&) = default;
  GuardedBuffer& operator=(GuardedBuffer&&) = default;
  ~GuardedBuffer();
  // Makes span() this long, in the memory that is there if it suffices. Contents are lost.
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

// One problem's operands on a device in the layouts that `problem` asks for. Shared by all
// candidates of those layouts, so that tuning holds one copy per layout pair.
class Operands {
 public:
  // `problem` equals the case's but for layouts.
  Operands(const ReferenceCase&, const ConvProblem& problem, Device&, Stream&);

  const ConvProblem& problem() const { return problem_; }
  ConvArgs args() const;  // w is the unpacked filter
  ConstSpan filter() const { return w_.span(); }
  std::vector<ConstSpan> memory() const;  // all of it

  void poison_output();  // NaN, or the old contents when the problem accumulates
  // The output against the case: error, poison left, padding lanes not zero, guards broken.
  // failed or inaccurate carries its reason.
  struct Verdict {
    Status status = Status::ok;
    std::string reason;
    double rel_error = 0;
  };
  Verdict judge(const ReferenceCase&, double max_error) const;

 private:
  ConvProblem problem_;
  Device& device_;
  Stream& stream_;
  GuardedBuffer x_, w_, dy_, bias_, residual_, out_;
  std::vector<std::byte> initial_out_;
  mutable Buffer host_out_;  // what judge reads
};

// A plan with what it needs to run: packed filter and workspace, both exactly sized and poisoned.
// Trials take turns with one workspace, so that a race needs no more than its greediest candidate.
class Trial {
 public:
  Trial(const ConvAlgo&, const Config&, Operands&, GuardedBuffer& workspace, Device&, Stream&);

  const ConvPlan& plan() const { return *plan_; }
  void pack();  // does nothing for plans that take the filter as it is
  // Gives the shared workspace this plan's size. run() does so as well, but a capture into a graph
  // may neither allocate nor copy.
  void prepare();
  void run(PhaseRecorder* = nullptr);
  std::vector<ConstSpan> memory() const;  // all that a run may touch
  // Poisons, packs, runs, judges; also checks the guards of workspace and packed filter.
  Operands::Verdict check(const ReferenceCase&, double max_error);

 private:
  Operands& operands_;
  Device& device_;
  Stream& stream_;
  std::unique_ptr<ConvPlan> plan_;
  GuardedBuffer packed_;
  GuardedBuffer& workspace_;
};

// All of the above for one candidate: the result of `convlab check`. A refusal comes back as
// Status::refused, an exception as failed; but DeviceLost is thrown on, since nothing more can be
// checked in this process.
Operands::Verdict check_candidate(const ConvAlgo&, const ConvProblem&, const Config&,
                                  const ReferenceCase&, Device&, Stream&, double max_error);

}  // namespace convlab
