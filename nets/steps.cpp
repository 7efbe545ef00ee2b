#include "nets/steps.h"

#include <fmt/format.h>

#include "conv/error.h"

namespace convlab::nets {
namespace {

template <class L>
bool is(const Node& node) {
  return std::holds_alternative<L>(node.layer);
}

std::optional<ActivationKind> activation_of(const Node& node) {
  const auto* activation = std::get_if<Activation>(&node.layer);
  return activation ? std::optional(activation->kind) : std::nullopt;
}

// Walks the graph in order, and from each node through the layers that can be fused to it.
class Fuser {
 public:
  Fuser(const Graph& graph, Mode mode)
      : nodes_(graph.nodes()), mode_(mode), users_(nodes_.size()), value_(nodes_.size()) {
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      source_.push_back(disappears(id) ? source_[nodes_[id].inputs[0]] : id);
      if (disappears(id)) continue;
      for (NodeId input : nodes_[id].inputs) users_[source_[input]].push_back(id);
    }
  }

  std::vector<Step> steps() {
    std::vector<bool> done(nodes_.size(), false);
    std::vector<Step> steps;
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (done[id] || disappears(id)) continue;
      Step step;
      step.node = step.output = id;
      for (NodeId input : nodes_[id].inputs) step.inputs.push_back(*value_[source_[input]]);
      fuse(step, done);
      value_[step.output] = step.output;
      steps.push_back(std::move(step));
    }
    return steps;
  }

 private:
  bool disappears(NodeId id) const { return mode_ == Mode::inference && is<Dropout>(nodes_[id]); }

  // The only reader of the step's output so far, if there is one.
  const Node* next(const Step& step) const {
    const auto& users = users_[step.output];
    return users.size() == 1 ? &nodes_[users[0]] : nullptr;
  }

  void fuse(Step& step, std::vector<bool>& done) {
    const Node& node = nodes_[step.node];
    const bool conv = is<Conv>(node);
    const auto take = [&] {
      step.output = users_[step.output][0];
      done[step.output] = true;
    };
    if (conv && mode_ == Mode::inference && next(step) && is<BatchNorm>(*next(step))) {
      take();
      step.batch_norm = step.output;
    }
    const bool adds = is<BatchNorm>(node) || (conv && mode_ == Mode::inference);
    if (adds && next(step) && is<Add>(*next(step))) {
      std::vector<NodeId> terms;
      for (const NodeId term : next(step)->inputs) terms.push_back(source_[term]);
      if (terms.size() == 2 && terms[0] != terms[1]) {
        const NodeId other = terms[0] == step.output ? terms[1] : terms[0];
        // If it does not exist yet, its own step, which comes later, does the addition.
        if (value_[other]) {
          step.inputs.push_back(*value_[other]);
          step.residual = true;
          take();
        }
      }
    }
    if (!(conv || is<BatchNorm>(node)) || !next(step)) return;
    const std::optional<ActivationKind> kind = activation_of(*next(step));
    // Only a convolution's epilogue has the others, and training needs what some of them read.
    if (kind == ActivationKind::relu || (kind && conv && mode_ == Mode::inference)) {
      step.activation = kind;
      take();
    }
  }

  const std::vector<Node>& nodes_;
  Mode mode_;
  std::vector<NodeId> source_;  // a node, or what it reads if it disappears
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::optional<NodeId>> value_;  // value that holds a node's output, once there is one
};

}  // namespace

std::string_view to_string(Mode mode) { return mode == Mode::training ? "training" : "inference"; }

std::vector<Step> steps_of(const Graph& graph, Mode mode) { return Fuser(graph, mode).steps(); }

std::vector<bool> wanted_gradients(const Graph& graph, const std::vector<Step>& steps,
                                   bool input_gradient) {
  std::vector<bool> wanted(graph.nodes().size());
  for (const Step& step : steps) {
    const Node& node = graph.nodes()[step.node];
    bool wants = graph.parameters(node) > 0 || (input_gradient && is<Input>(node));
    for (const NodeId input : step.inputs) wants = wants || wanted[input];
    wanted[step.output] = wants;
  }
  return wanted;
}

std::vector<std::vector<std::size_t>> readers_of(const Graph& graph,
                                                 const std::vector<Step>& steps) {
  std::vector<std::vector<std::size_t>> readers(graph.nodes().size());
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (NodeId value : steps[i].inputs) {
      if (value >= readers.size())
        throw InputError(
            fmt::format("net {}: a step reads node {}, which is not there", graph.name(), value));
      readers[value].push_back(i);
    }
  return readers;
}

}  // namespace convlab::nets
