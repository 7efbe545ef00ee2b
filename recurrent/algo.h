// The interface of every algorithm for recurrent layers; conv/algo.h has convolution's.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "conv/algo.h"
#include "conv/registry.h"
#include "recurrent/problem.h"

namespace convlab {

// Pointers for one run, to device memory, laid out as problem.h says. The pass decides which are
// used; the rest are ignored. Nothing overlaps. A state that may be null is zero if it is read, and
// is not stored if it is written.
struct RecurrentArgs {
  // Read.
  const void* x = nullptr;        // forward, backward_filter; backward_data if it recomputes
  const void* weights = nullptr;  // forward, backward_data: as problem.h has them, or what
                                  // pack_weights wrote if packed_weights_bytes() > 0
  const void *h0 = nullptr, *c0 = nullptr;    // every pass; may be null
  const void* y = nullptr;                    // backward passes: what forward wrote
  const void* activations = nullptr;          // backward passes: what forward wrote
  const void* dy = nullptr;                   // backward_data
  const void *dhn = nullptr, *dcn = nullptr;  // backward_data; may be null
  const void* dgates = nullptr;               // backward_filter: what backward_data wrote

  // Written.
  void* out = nullptr;                      // y; dx, or null if nobody needs it; dweights
  void *out_h = nullptr, *out_c = nullptr;  // hn and cn, or dh0 and dc0; may be null
  void* out_activations = nullptr;          // forward when training
  void* out_dgates = nullptr;               // backward_data

  PhaseRecorder* phases = nullptr;
};

// The sizes of activations and dgates.
struct SavedBytes {
  std::size_t activations = 0, dgates = 0;
};

// Immutable, made for one problem, config and device. May be run from several threads at once with
// different workspaces and outputs.
class RecurrentPlan {
 public:
  virtual ~RecurrentPlan() = default;
  virtual std::size_t workspace_bytes() const noexcept = 0;
  // 0: takes the weights as problem.h has them.
  virtual std::size_t packed_weights_bytes() const noexcept { return 0; }
  // packed: packed_weights_bytes() bytes, 64-byte aligned.
  virtual void pack_weights(ConstSpan weights, Span packed, Stream&) const;
  // Allocates nothing. The workspace has at least workspace_bytes() and is 64-byte aligned. Its
  // contents are garbage, and so are the outputs'.
  virtual void run(const RecurrentArgs&, Workspace, Stream&) const = 0;
};

// One strategy. Stateless.
class RecurrentAlgo {
 public:
  virtual ~RecurrentAlgo() = default;
  virtual const AlgoInfo& info() const noexcept = 0;
  virtual std::optional<Refusal> refuse(const RecurrentProblem&, Device&) const = 0;
  // The configurations worth trying, at least one; front() is the untuned default. This function
  // and those below are only called with a problem that is not refused.
  virtual std::vector<Config> configs(const RecurrentProblem&, Device&) const = 0;
  // Bit-identical results from run to run for one thread count.
  virtual bool deterministic(const RecurrentProblem&, const Config&) const = 0;
  virtual WorkEstimate work(const RecurrentProblem&, const Config&, Device&) const = 0;
  // Throws InputError for a config this algorithm does not know.
  virtual std::unique_ptr<RecurrentPlan> plan(const RecurrentProblem&, const Config&,
                                              Device&) const = 0;

  // Libraries keep activations and dgates in a format of their own. Its sizes, if that is so: then
  // this algorithm runs all passes of a training step or none, each reads what its own others
  // wrote, and only their sum compares with other algorithms' times. The sizes are those for all
  // three passes of the problem.
  virtual std::optional<SavedBytes> own_format(const RecurrentProblem&, Device&) const {
    return {};
  }
};

using RecurrentRegistry = BasicRegistry<RecurrentAlgo>;

}  // namespace convlab
