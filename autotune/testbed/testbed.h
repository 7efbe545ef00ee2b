// Where the candidates of one problem run: its data, what its result should be, and each
// candidate's plan with its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autotune/algos.h"
#include "autotune/check.h"

namespace convlab {

// A plan with its memory, ready to run on its testbed's data.
class PlannedRun {
 public:
  virtual ~PlannedRun() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual std::size_t packed_bytes() const = 0;  // of the filter or the weights
  virtual std::string note() const { return ""; }
  virtual void pack() = 0;  // does nothing for plans that take the filter or weights unpacked
  // Gives the shared workspace this plan's size. run() does so as well, but a capture into a graph
  // may neither allocate nor copy.
  virtual void prepare() = 0;
  virtual void run(PhaseRecorder* = nullptr) = 0;
  virtual std::vector<ConstSpan> memory() const = 0;  // all that a run may access
  // Poisons, packs, runs, judges every output and guard.
  virtual CheckResult check(double max_error) = 0;
};

// One problem's operands and expected outputs on a device, shared by its candidates.
class Testbed {
 public:
  virtual ~Testbed() = default;
  virtual bool sampled() const = 0;  // the reference is evaluated on a sample of the outputs
  // Throws whatever planning throws, or for lack of memory. The testbed outlives the result.
  virtual std::unique_ptr<PlannedRun> plan(const AlgoRef&, const Candidate&) = 0;
  // Seconds to convert both activations from or to NCHW; 0 for problems without layouts.
  virtual double time_conversions(const Candidate&) { return 0; }
};

// Evaluates the reference, as far as `evaluate` says. Layouts of the problem are ignored.
std::unique_ptr<Testbed> make_testbed(const Problem&, std::uint64_t seed, ReferenceCase::Evaluate,
                                      Device&, Stream&);
// Roughly the seconds that this takes with plain loops, to evaluate it whole.
double reference_s(const Problem&);

}  // namespace convlab
