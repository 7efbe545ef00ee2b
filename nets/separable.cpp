#include "nets/separable.h"

#include <algorithm>
#include <set>
#include <string>

namespace convlab::nets {
namespace {

const Conv* conv_of(const Graph& graph, const Step& step) {
  return std::get_if<Conv>(&graph.nodes()[step.node].layer);
}

bool is_depthwise(const Graph& graph, const Step& step) {
  const Conv* const conv = conv_of(graph, step);
  const std::int64_t filters = graph.nodes()[step.node].shape.c;
  return conv != nullptr && conv->groups > 1 && conv->groups == filters && !step.residual &&
         graph.nodes()[step.inputs[0]].shape.c == filters;
}

bool is_pointwise(const Graph& graph, const Step& step) {
  const Conv* const conv = conv_of(graph, step);
  constexpr PerAxis one = 1, none = 0;
  return conv != nullptr && conv->groups == 1 && conv->kernel == one && conv->stride == one &&
         conv->pad == none && conv->end() == none;
}

}  // namespace

std::vector<SeparableSteps> separable_steps(const Graph& graph, const std::vector<Step>& steps) {
  const std::vector<std::vector<std::size_t>> readers = readers_of(graph, steps);
  std::vector<std::optional<std::size_t>> writer(graph.nodes().size());
  for (std::size_t i = 0; i < steps.size(); ++i) writer[steps[i].output] = i;
  // The step that writes a step's first input, if only this step reads it, and once.
  const auto before = [&](std::size_t i) -> std::optional<std::size_t> {
    if (steps[i].inputs.empty() || readers[steps[i].inputs[0]].size() != 1) return {};
    return writer[steps[i].inputs[0]];
  };
  std::vector<SeparableSteps> found;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!is_pointwise(graph, steps[i])) continue;
    SeparableSteps s{0, i, steps[i]};
    const std::optional<std::size_t> first = before(i);
    if (!first || !is_depthwise(graph, steps[*first])) continue;
    s.depthwise = *first;
    const Step& depthwise = steps[*first];
    s.joined.inputs[0] = depthwise.inputs[0];
    s.joined.depthwise = {depthwise.node, depthwise.batch_norm, depthwise.activation};
    found.push_back(std::move(s));
  }
  return found;
}

SeparableProblem separable_problem(const Graph& graph, const Step& joined, DType dtype,
                                   Layout layout) {
  const auto problem_of = [&](NodeId node) {
    ConvProblem p = graph.conv_problem(graph.nodes()[node]);
    p.dtype = dtype;
    p.x_layout = p.y_layout = layout;
    return p;
  };
  const auto has_bias = [&](NodeId node, const std::optional<NodeId>& batch_norm) {
    return batch_norm || std::get<Conv>(graph.nodes()[node].layer).bias;
  };
  const DepthwiseFront& front = *joined.depthwise;
  SeparableProblem s{problem_of(front.node), problem_of(joined.node)};
  s.depthwise.epilogue = {.bias = has_bias(front.node, front.batch_norm),
                          .activation = front.activation};
  s.pointwise.epilogue = {.bias = has_bias(joined.node, joined.batch_norm),
                          .residual = joined.residual,
                          .activation = joined.activation};
  return s;
}

std::vector<Step> steps_of(const Graph& graph, const NetPlan& plan) {
  std::vector<Step> steps = steps_of(graph, plan.mode);
  std::set<std::string> joined;
  for (const StepPlan& step : plan.steps)
    if (const auto& pass = step.passes[std::size_t(Pass::forward)];
        pass && pass->algo == separable_algo)
      joined.insert(step.layer);
  if (joined.empty() || plan.mode != Mode::inference) return steps;
  std::vector<bool> gone(steps.size(), false);
  for (SeparableSteps& s : separable_steps(graph, steps)) {
    if (joined.count(graph.nodes()[s.joined.node].name) == 0) continue;
    gone[s.depthwise] = true;
    steps[s.pointwise] = std::move(s.joined);
  }
  std::vector<Step> rest;
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (!gone[i]) rest.push_back(std::move(steps[i]));
  return rest;
}

}  // namespace convlab::nets
