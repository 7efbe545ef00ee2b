// A graph as executable steps: layers that one kernel computes together become one step, and layers
// that do nothing in this mode disappear.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "nets/graph.h"

namespace convlab::nets {

// training: forward, backward and update; batch norm uses the batch's statistics, dropout is
// active. inference: forward only; batch norm, with its running statistics, is folded into the
// preceding convolution, and dropout does nothing.
enum class Mode : std::uint8_t { training, inference };
std::string_view to_string(Mode);

// A depthwise convolution, its batch norm and its activation, which the step of a pointwise
// convolution also computes if the plan says so (nets/separable.h). Inference only.
struct DepthwiseFront {
  NodeId node = 0;
  std::optional<NodeId> batch_norm;
  std::optional<ActivationKind> activation;
};

// One unit of execution. It computes graph.nodes()[node].layer, followed by
//   y = activation(batch_norm(...) + residual), as far as the fields say so.
// A value is the output of a step and carries the number of the step's last node.
struct Step {
  NodeId node = 0;
  std::vector<NodeId> inputs;        // values; the residual, if any, is the last
  NodeId output = 0;                 // the value it writes
  std::optional<NodeId> batch_norm;  // in inference, folded into a convolution's filter and bias
  bool residual = false;             // adds inputs.back()
  std::optional<ActivationKind> activation;
  std::optional<DepthwiseFront> depthwise;  // reads inputs[0]; the step's own layer reads that
};

// The steps in an executable order. These are fused, if nothing else reads the value in between:
//   training:  convolution + ReLU; batch norm (+ addition of two) (+ ReLU)
//   inference: convolution (+ batch norm) (+ addition of two) (+ any activation);
//              batch norm (+ addition of two) (+ ReLU)
// An addition is fused into the later of its two inputs' steps.
std::vector<Step> steps_of(const Graph&, Mode);

// Whether training computes each value's gradient, by node: the value depends on parameters, or on
// the input and `input_gradient` is set.
std::vector<bool> wanted_gradients(const Graph&, const std::vector<Step>&, bool input_gradient);

// The steps that read each value, by node; empty for nodes that are not values.
std::vector<std::vector<std::size_t>> readers_of(const Graph&, const std::vector<Step>&);

}  // namespace convlab::nets
