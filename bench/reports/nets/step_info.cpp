#include "bench/reports/nets/step_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "conv/transposed.h"
#include "conv/types/arithmetic_type.h"
#include "nets/separable.h"

namespace convlab {

using namespace nets;
namespace {

struct KindOf {
  const char* operator()(const Input&) const { return "input"; }
  const char* operator()(const Conv&) const { return "convolution"; }
  const char* operator()(const Linear&) const { return "fully connected"; }
  const char* operator()(const Pool&) const { return "pooling"; }
  const char* operator()(const GlobalAvgPool&) const { return "pooling"; }
  const char* operator()(const BatchNorm&) const { return "batch norm"; }
  const char* operator()(const LocalResponseNorm&) const { return "response norm"; }
  const char* operator()(const Activation&) const { return "activation"; }
  const char* operator()(const LayerActivation&) const { return "activation"; }
  const char* operator()(const PRelu&) const { return "activation"; }
  const char* operator()(const Dropout&) const { return "dropout"; }
  const char* operator()(const Gate&) const { return "gate"; }
  const char* operator()(const PadChannels&) const { return "padding"; }
  const char* operator()(const Recurrent&) const { return "recurrent"; }
  const char* operator()(const ConvTranspose&) const { return "transposed convolution"; }
  const char* operator()(const LayerNorm&) const { return "layer norm"; }
  const char* operator()(const GroupNorm&) const { return "group norm"; }
  const char* operator()(const PixelShuffle&) const { return "shuffle"; }
  const char* operator()(const ChannelScale&) const { return "scaling"; }
  const char* operator()(const Slice&) const { return "slice"; }
  const char* operator()(const ChannelShuffle&) const { return "shuffle"; }
  const char* operator()(const Resize&) const { return "resizing"; }
  const char* operator()(const Add&) const { return "addition"; }
  const char* operator()(const Concat&) const { return "concatenation"; }
};

double elements(const Shape& s) { return double(s.elements()); }

// FLOPs of one pass over the whole batch, in pieces of `images` if the plan splits it.
double executed_flops(ConvProblem problem, const PassPlan& plan, const ConvAlgo& algo,
                      Device& device) {
  const std::int64_t batch = problem.n, piece = plan.images > 0 ? plan.images : batch;
  const auto flops = [&](std::int64_t images) {
    problem.n = images;
    return images > 0 ? algo.work(problem, plan.config, device).flops() : 0;
  };
  return double(batch / piece) * flops(piece) + flops(batch % piece);
}

class Describer {
 public:
  Describer(const Graph& graph, const NetPlan& plan, const NetAlgos& algos, Device& device)
      : graph_(graph),
        plan_(plan),
        algos_(algos),
        device_(device),
        wants_gradient_(wanted_gradients(graph, steps_of(graph, plan.mode), false)) {}

  StepInfo describe(const Step& step, const StepPlan& step_plan) const {
    const Node& node = graph_.nodes()[step.node];
    StepInfo info;
    info.layer = node.name;
    info.suffix =
        fmt::format("{}{}{}{}", step.depthwise ? "+dw" : "", step.batch_norm ? "+bn" : "",
                    step.residual ? "+add" : "",
                    step.activation ? fmt::format("+{}", to_string(*step.activation)) : "");
    info.kind = std::visit(KindOf{}, node.layer);
    info.plan = &step_plan;
    count_bytes(step, info);
    if (step.depthwise)
      count_separable(step, step_plan, info);
    else if (is_convolution(node.layer))
      count_convolution(node, step_plan, info);
    if (std::holds_alternative<Linear>(node.layer)) count_linear(node, info);
    if (std::holds_alternative<Recurrent>(node.layer)) count_recurrent(step, step_plan, info);
    return info;
  }

 private:
  bool training() const { return plan_.mode == Mode::training; }
  static PhaseInfo& at(StepInfo& info, Phase phase) { return info.phases[std::size_t(phase)]; }

  // Every phase reads its inputs and writes its outputs once. SGD with momentum reads weight,
  // gradient and velocity and writes weight and velocity.
  void count_bytes(const Step& step, StepInfo& info) const {
    const Node& node = graph_.nodes()[step.node];
    if (std::holds_alternative<Input>(node.layer)) return;
    const auto bytes = [&](double count) { return double(size_of(plan_.dtype)) * count; };
    double x = 0, dx = 0;
    for (const NodeId input : step.inputs) {
      const double of_input = bytes(elements(graph_.nodes()[input].shape));
      x += of_input;
      if (wants_gradient_[input]) dx += of_input;
    }
    const double y = bytes(elements(node.shape));
    std::int64_t parameters = graph_.parameters(node);
    if (step.depthwise) parameters += graph_.parameters(graph_.nodes()[step.depthwise->node]);
    const double w = double(parameters * size_of(arithmetic_type(plan_.dtype)));
    const bool filter = is_convolution(node.layer) || std::holds_alternative<Linear>(node.layer) ||
                        std::holds_alternative<Recurrent>(node.layer);
    // Derivatives need the layer's value or its input (activations, normalizations, gates) again.
    const bool reads_value = std::holds_alternative<Activation>(node.layer) ||
                             std::holds_alternative<LayerActivation>(node.layer) ||
                             std::holds_alternative<PRelu>(node.layer) ||
                             std::holds_alternative<Gate>(node.layer) ||
                             std::holds_alternative<BatchNorm>(node.layer) ||
                             std::holds_alternative<LayerNorm>(node.layer) ||
                             std::holds_alternative<GroupNorm>(node.layer) ||
                             std::holds_alternative<ChannelScale>(node.layer) ||
                             std::holds_alternative<LocalResponseNorm>(node.layer);
    at(info, Phase::forward).bytes = x + w + y;
    if (!training()) return;
    at(info, Phase::backward_data).bytes = y + dx + (filter ? w : 0) + (reads_value ? y : 0);
    if (filter) at(info, Phase::backward_filter).bytes = x + y + w;
    at(info, Phase::update).bytes = 5 * w;
  }

  void count_convolution(const Node& node, const StepPlan& step_plan, StepInfo& info) const {
    ConvProblem problem = graph_.conv_problem(node);
    problem.dtype = plan_.dtype;
    const bool turned = is_transposed(node.layer);  // the problem's x is this layer's y
    problem.x_layout = turned ? step_plan.y_layout : step_plan.x_layout;
    problem.y_layout = turned ? step_plan.x_layout : step_plan.y_layout;
    for (const Pass pass : all_passes) {
      PhaseInfo& phase = info.phases[std::size_t(pass)];
      if (!step_plan.passes[std::size_t(pass)]) {
        phase = {};  // not needed
        continue;
      }
      phase.plan = &*step_plan.passes[std::size_t(pass)];
      problem.pass = turned ? transposed(pass) : pass;
      phase.problem = problem;
      phase.eff_flops = problem.flops();
      phase.exec_flops = executed_flops(
          problem, *phase.plan, algos_.conv.get(device_.info().kind, phase.plan->algo), device_);
    }
  }

  // The FLOPs of partial tiles are left out.
  void count_separable(const Step& step, const StepPlan& step_plan, StepInfo& info) const {
    const SeparableProblem s = separable_problem(graph_, step, plan_.dtype, step_plan.x_layout);
    for (PhaseInfo& phase : info.phases)
      if (&phase != &at(info, Phase::forward)) phase = {};
    PhaseInfo& phase = at(info, Phase::forward);
    phase.plan = &*step_plan.passes[std::size_t(Pass::forward)];
    phase.eff_flops = phase.exec_flops = s.depthwise.flops() + s.pointwise.flops();
  }

  void count_linear(const Node& node, StepInfo& info) const {
    const double flops = 2 * double(node.shape.n) * double(graph_.multiply_adds(node));
    for (const Pass pass : all_passes) {
      if (pass != Pass::forward && !training()) continue;
      PhaseInfo& phase = info.phases[std::size_t(pass)];
      phase.eff_flops = phase.exec_flops = flops;
    }
  }

  void count_recurrent(const Step& step, const StepPlan& step_plan, StepInfo& info) const {
    RecurrentProblem problem = graph_.recurrent_problem(graph_.nodes()[step.node]);
    problem.dtype = plan_.dtype;
    problem.input_gradient = wants_gradient_[step.inputs[0]];
    for (const Pass pass : all_passes) {
      if (!step_plan.passes[std::size_t(pass)]) continue;
      PhaseInfo& phase = info.phases[std::size_t(pass)];
      phase.plan = &*step_plan.passes[std::size_t(pass)];
      problem.pass = pass;
      problem.training = training() && pass == Pass::forward;
      phase.eff_flops = problem.flops();
      if (!problem.has_input_product()) phase.bytes -= double(problem.input_weights_bytes());
      const RecurrentAlgo& algo = algos_.recurrent->get(device_.info().kind, phase.plan->algo);
      phase.exec_flops = algo.work(problem, phase.plan->config, device_).flops();
    }
  }

  const Graph& graph_;
  const NetPlan& plan_;
  const NetAlgos algos_;
  Device& device_;
  const std::vector<bool> wants_gradient_;  // by node; time_net computes no input gradient
};

}  // namespace

std::string StepInfo::layouts() const {
  return plan->x_layout == plan->y_layout
             ? std::string(to_string(plan->x_layout))
             : fmt::format("{}>{}", to_string(plan->x_layout), to_string(plan->y_layout));
}

std::string StepInfo::algos() const {
  std::vector<std::string> names;
  for (const auto& pass : plan->passes)
    if (pass) names.push_back(pass->algo);
  const bool differ =
      std::adjacent_find(names.begin(), names.end(), std::not_equal_to()) != names.end();
  if (!names.empty() && !differ) return names.front();
  return fmt::format("{}", fmt::join(names, "/"));
}

std::vector<StepInfo> describe_steps(const Graph& graph, const NetPlan& plan, const NetAlgos& algos,
                                     Device& device) {
  const std::vector<Step> steps = steps_of(graph, plan);
  const Describer describer(graph, plan, algos, device);
  std::vector<StepInfo> infos;
  for (std::size_t i = 0; i < steps.size(); ++i)
    infos.push_back(describer.describe(steps[i], plan.steps[i]));
  return infos;
}

std::int64_t batch_of(const Graph& graph) { return graph.batch(); }

}  // namespace convlab
