// An assembled net: an op for each step, the place and lifetime of every value and its gradient,
// and the conversions and additions between the steps. Net runs it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "conv/device.h"
#include "conv/types/arithmetic_type.h"
#include "nets/algos.h"
#include "nets/net.h"
#include "nets/parameters.h"
#include "nets/plan/plan.h"
#include "nets/run/net_memory.h"
#include "nets/run/op.h"

namespace convlab::nets {

// A value and its buffers.
struct Value {
  TensorDesc desc;  // as its step writes it
  BufferId buffer = 0, gradient = 0;
  bool wants_gradient = false;
  std::size_t step = 0;  // that writes it
};

struct Conversion {
  TensorDesc from_desc, to_desc;
  BufferId from, to;
};

struct Addition {
  TensorDesc desc;
  BufferId to, term;
};

// A step with all work around its op.
struct StepRun {
  std::unique_ptr<Op> op;             // null for the input
  std::vector<Conversion> inputs;     // before forward
  std::vector<Conversion> gradients;  // after backward_data, then
  std::vector<Addition> additions;
  // Buffers, for memory planning.
  std::vector<BufferId> x;
  std::vector<std::optional<BufferId>> dx;
  std::optional<BufferId> saved, forward_scratch, backward_scratch;
  std::optional<BufferId> forward_workspace, backward_workspace;
  std::byte* constants = nullptr;
};

// Moments of an iteration, for lifetimes: step i runs forward at i, the loss follows at the number
// of steps, and step i runs backward at 2 * steps - i.
class Assembly {
 public:
  // Throws as Net's constructor does. Allocates nothing on the device.
  Assembly(Graph, const NetPlan&, const NetAlgos&, Device&, const NetOptions&);
  Assembly(const Assembly&) = delete;  // ops refer to it
  Assembly& operator=(const Assembly&) = delete;

  // Once, before anything runs. Throws if the device has too little memory.
  void allocate(Stream&);
  // From now on the value in this buffer lies at `at`, outside of the net's memory; null: in it
  // again. After allocate.
  void place(BufferId, std::byte* at);

  bool training() const { return plan.mode == Mode::training; }
  bool has_loss() const { return training() && options.loss != Loss::none; }
  std::size_t backward_moment(std::size_t step) const { return 2 * steps.size() - step; }
  std::size_t last_moment() const { return training() ? 2 * steps.size() : steps.size(); }
  DType value_type() const { return arithmetic_type(plan.dtype); }
  // Of a value as the net stores it, and as the caller has it.
  std::size_t bytes_of(const TensorDesc& d) const {
    return std::size_t(d.elements() * size_of(plan.dtype));
  }
  std::size_t bytes_outside(const TensorDesc& d) const {
    return std::size_t(d.elements() * size_of(value_type()));
  }
  Value& value(NodeId id) { return values[id]; }
  const Value& value(NodeId id) const { return values[id]; }

  // Everything that allocate() allocates, and the optimizer's state.
  MemoryUse memory_use(std::size_t optimizer) const;
  MemoryUse memory_during(std::size_t step, Phase) const;

  const Graph graph;
  const NetPlan plan;
  const NetOptions options;
  const NetAlgos algos;
  Device& device;
  const std::vector<Step> steps;
  std::vector<Value> values;  // by node
  NodeId output = 0;
  // Of cross entropy. They lie where their gradient is written, unless that has 16 bits.
  BufferId probabilities = 0;
  Parameters parameters;
  std::vector<std::size_t> first_parameter;  // by step, and the end
  std::vector<StepRun> runs;                 // by step
  NetMemory memory;
  struct {
    std::size_t constants = 0, losses = 0, targets = 0;
  } sizes;
  Buffer constants;
  Buffer losses, targets;  // one loss an image; labels, or targets

 private:
  void find_values();
  TensorDesc x_desc(std::size_t step, std::size_t input) const;
  std::vector<std::vector<Gradient>> gradients() const;
  void make_ops();

  bool can_overwrite(std::size_t step, std::size_t input) const;
  void place_forward();
  std::optional<BufferId> during(std::size_t moment, std::size_t bytes, NetMemory::Kind);
  BufferId in_layout(NodeId, const TensorDesc&, std::size_t step);
  void place_backward();
  void place_input_gradients(std::size_t step, const Value& y);
  std::optional<std::size_t> written_over_dy(std::size_t step) const;
  void add_sizes();

  void check_fits() const;
  void bind();
  void bind(std::size_t step);
  MemoryUse completed(MemoryUse, std::size_t optimizer) const;

  std::vector<std::vector<std::size_t>> readers_;  // steps, by node
  std::vector<std::vector<Gradient>> wanted_;      // by step and input
  std::map<std::pair<NodeId, Layout>, BufferId> converted_;
};

}  // namespace convlab::nets
