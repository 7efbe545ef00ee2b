// A graph as the steps that run it: layers that one kernel does together become one step, and
// layers that do nothing in this mode disappear.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "nets/graph.h"

namespace convlab::nets {

// training: forward, backward and update; batch norm takes the batch's statistics, dropout drops.
// inference: forward only; batch norm, with its running statistics, is folded into the convolution
// before it, and dropout does nothing.
enum class Mode : std::uint8_t { training, inference };
std::string_view to_string(Mode);

// One unit of execution. What it computes is graph.nodes()[node].layer, followed by
//   y = relu(batch_norm(...) + residual), as far as the flags say so.
// A value is the output of a step and carries the number of the step's last node.
struct Step {
  NodeId node = 0;
  std::vector<NodeId> inputs;        // values; the residual, if any, is the last
  NodeId output = 0;                 // the value it leaves
  std::optional<NodeId> batch_norm;  // of a convolution, in inference: folded into filter and bias
  bool residual = false;             // adds inputs.back()
  bool relu = false;
};

// In an order that can be run. Fused are, where nothing else reads the value in between:
//   training:  convolution + ReLU; batch norm (+ addition of two) (+ ReLU)
//   inference: convolution (+ batch norm) (+ addition of two) (+ ReLU); batch norm likewise
// An addition goes to the later of its two inputs' steps.
std::vector<Step> steps_of(const Graph&, Mode);

// Which of the steps read each value, by node; empty for nodes that are no value.
std::vector<std::vector<std::size_t>> readers_of(const Graph&, const std::vector<Step>&);

}  // namespace convlab::nets
