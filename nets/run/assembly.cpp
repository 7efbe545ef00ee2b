#include "nets/run/assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "conv/error.h"
#include "conv/text/bytes.h"
#include "nets/run/half_values.h"
#include "nets/run/step_work.h"
#include "nets/separable.h"

namespace convlab::nets {
namespace {

using Kind = NetMemory::Kind;

void check_plan(const Graph& graph, const NetPlan& plan, const std::vector<Step>& steps) {
  const auto fail = [&](const std::string& why) {
    throw InputError(fmt::format("net {}: the plan is not for it: {}", graph.name(), why));
  };
  if (plan.net != graph.name()) fail(fmt::format("it is for {}", plan.net));
  const std::int64_t batch = graph.batch();
  if (plan.batch != batch) fail(fmt::format("it is for batch {}, not {}", plan.batch, batch));
  if (plan.steps.size() != steps.size())
    fail(fmt::format("{} has {} steps, the plan {}", to_string(plan.mode), steps.size(),
                     plan.steps.size()));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string& name = graph.nodes()[steps[i].node].name;
    if (plan.steps[i].layer != name)
      fail(fmt::format("step {} is {}, the plan has {}", i, name, plan.steps[i].layer));
    for (const std::optional<PassPlan>& pass : plan.steps[i].passes)
      if (pass && (pass->images < 0 || pass->images > batch))
        fail(fmt::format("layer {} takes {} images at a time: expected 0 to {}", name, pass->images,
                         batch));
  }
}

NodeId output_of(const Graph& graph, Mode mode) {
  NodeId id = graph.nodes().size() - 1;
  while (mode == Mode::inference && std::holds_alternative<Dropout>(graph.nodes()[id].layer))
    id = graph.nodes()[id].inputs[0];
  return id;
}

}  // namespace

Assembly::Assembly(Graph graph_of_net, const NetPlan& plan_of_net, const NetAlgos& algos_of_net,
                   Device& device_of_net, const NetOptions& options_of_net)
    : graph(std::move(graph_of_net)),
      plan(plan_of_net),
      options(options_of_net),
      algos(algos_of_net),
      device(device_of_net),
      steps(steps_of(graph, plan)),
      parameters(arithmetic_type(plan.dtype)) {
  check_plan(graph, plan, steps);
  require_type(graph, plan.dtype, device);
  find_values();
  make_ops();
  place_forward();
  if (training()) place_backward();
  memory.arrange();
  add_sizes();
}

void Assembly::allocate(Stream& stream) {
  check_fits();
  parameters.allocate(training(), device, stream);
  memory.allocate(device);
  constants = device.allocate(sizes.constants);
  losses = device.allocate(sizes.losses);
  targets = device.allocate(sizes.targets);
  for (const Buffer* buffer : {&losses, &targets}) device.ops().zero(buffer->span(), stream);
  bind();
}

void Assembly::find_values() {
  const auto fail = [&](NodeId id, const char* why) {
    throw InputError(
        fmt::format("net {}, layer {}: {}", graph.name(), graph.nodes()[id].name, why));
  };
  output = output_of(graph, plan.mode);
  values.resize(graph.nodes().size());
  readers_ = readers_of(graph, steps);
  const std::vector<bool> wanted = wanted_gradients(graph, steps, options.input_gradient);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    Value& v = value(step.output);
    v.step = i;
    v.desc = tensor_desc(graph.nodes()[step.output].shape, plan.steps[i].y_layout);
    const bool input = std::holds_alternative<Input>(graph.nodes()[step.node].layer);
    if (input != (i == 0)) fail(step.node, "a net has one input, its first layer");
    if (input && is_blocked(v.desc.layout)) fail(step.node, "the input is in nchw or nhwc");
    if (readers_[step.output].empty() && step.output != output)
      fail(step.node, "nothing reads what it computes");
    v.wants_gradient = training() && wanted[step.output];
  }
}

// The layout in which a step reads its i-th input.
TensorDesc Assembly::x_desc(std::size_t step, std::size_t i) const {
  const Step& s = steps[step];
  TensorDesc desc = value(s.inputs[i]).desc;
  const bool residual = s.residual && i + 1 == s.inputs.size();
  desc.layout = residual ? plan.steps[step].y_layout : plan.steps[step].x_layout;
  return desc;
}

// The first reader to run backward writes a gradient; later ones add to it.
std::vector<std::vector<Gradient>> Assembly::gradients() const {
  std::vector<std::vector<Gradient>> all(steps.size());
  std::vector<bool> written(values.size(), false);
  for (std::size_t i = steps.size(); i-- > 0;)
    for (const NodeId u : steps[i].inputs) {
      all[i].push_back(!value(u).wants_gradient ? Gradient::none
                       : written[u]             ? Gradient::add
                                                : Gradient::write);
      written[u] = true;
    }
  return all;
}

void Assembly::make_ops() {
  const std::vector<std::vector<Gradient>> wanted = gradients();
  const auto is_dropout = [&](const Step& s) {
    return std::holds_alternative<Dropout>(graph.nodes()[s.node].layer);
  };
  const std::uint64_t draws = std::uint64_t(std::count_if(steps.begin(), steps.end(), is_dropout));
  std::uint64_t draw = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    std::vector<TensorDesc> x;
    std::vector<Gradient> gradient = wanted[i];
    for (std::size_t j = 0; j < step.inputs.size(); ++j) {
      x.push_back(x_desc(i, j));
      // In another layout it is written to a separate buffer, then converted and added.
      if (gradient[j] == Gradient::add && !same_memory(x[j], value(step.inputs[j]).desc))
        gradient[j] = Gradient::write;
    }
    first_parameter.push_back(parameters.list().size());
    const std::string& name = graph.nodes()[step.node].name;
    runs.emplace_back();
    try {
      runs[i].op =
          make_op({graph, step, plan.steps[i], plan.mode, plan.dtype, options, draws, draw, algos,
                   device, parameters, std::move(x), value(step.output).desc, gradient});
    } catch (const InputError& error) {
      throw InputError(fmt::format("net {}, layer {}: {}", graph.name(), name, error.what()));
    }
    draw += is_dropout(step);
  }
  first_parameter.push_back(parameters.list().size());
  wanted_ = wanted;
}

// Whether a step may write its output over its input's value: no later step may read that.
bool Assembly::can_overwrite(std::size_t step, std::size_t input) const {
  const NodeId u = steps[step].inputs[input];
  const Value& x = value(u);
  if (u == 0 || u == output || !same_memory(x.desc, x_desc(step, input)) ||
      readers_[u].back() != step ||
      std::count(steps[step].inputs.begin(), steps[step].inputs.end(), u) > 1)
    return false;
  if (!training()) return true;
  if (runs[x.step].op->needs().backward_reads_y) return false;
  return std::none_of(readers_[u].begin(), readers_[u].end(), [&](std::size_t reader) {
    return runs[reader].op->needs().backward_reads_x;
  });
}

void Assembly::place_forward() {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    StepRun& run = runs[i];
    Value& y = value(step.output);
    if (!run.op) {  // the input keeps its place from one set_input to the next
      y.buffer = memory.add(bytes_of(y.desc), Kind::activation);
      memory.use(y.buffer, 0);
      memory.use(y.buffer, last_moment());
      continue;
    }
    const OpNeeds& needs = run.op->needs();
    const bool backward = training() && y.wants_gradient;
    for (std::size_t j = 0; j < step.inputs.size(); ++j) {
      run.x.push_back(in_layout(step.inputs[j], x_desc(i, j), i));
      if (backward && needs.backward_reads_x) memory.use(run.x[j], backward_moment(i));
    }
    if (needs.y_over && can_overwrite(i, *needs.y_over))
      y.buffer = run.x[*needs.y_over];
    else
      y.buffer = memory.add(bytes_of(y.desc), Kind::activation);
    memory.use(y.buffer, i);
    if (backward && needs.backward_reads_y) memory.use(y.buffer, backward_moment(i));
    if (needs.saved > 0) {
      run.saved = memory.use(memory.add(needs.saved, Kind::activation), i);
      if (backward) memory.use(*run.saved, backward_moment(i));
    }
    run.forward_scratch = during(i, needs.forward_scratch, Kind::activation);
    run.forward_workspace = during(i, needs.forward_workspace, Kind::workspace);
  }
  memory.use(value(output).buffer, steps.size());  // the loss reads it
  memory.use(value(output).buffer, last_moment());
}

// A buffer that is needed at one moment only; nullopt for zero bytes.
std::optional<BufferId> Assembly::during(std::size_t moment, std::size_t bytes, Kind kind) {
  if (bytes == 0) return std::nullopt;
  return memory.use(memory.add(bytes, kind), moment);
}

// The buffer of a value in this layout, needed at a step's moment; the first step that reads it in
// this layout converts it.
BufferId Assembly::in_layout(NodeId u, const TensorDesc& desc, std::size_t step) {
  const Value& v = value(u);
  if (same_memory(v.desc, desc)) return memory.use(v.buffer, step);
  const auto [known, is_new] = converted_.try_emplace({u, desc.layout});
  if (is_new) {
    known->second = memory.add(bytes_of(desc), Kind::activation);
    memory.use(v.buffer, step);
    runs[step].inputs.push_back({v.desc, desc, v.buffer, known->second});
  }
  return memory.use(known->second, step);
}

void Assembly::place_backward() {
  Value& last = value(output);
  last.gradient = memory.add(bytes_of(last.desc), Kind::gradient);
  memory.use(last.gradient, steps.size());
  probabilities = last.gradient;
  if (has_loss() && has_16_bits(plan.dtype)) {
    probabilities = memory.add(bytes_outside(last.desc), Kind::gradient);
    memory.use(probabilities, steps.size());
    memory.use(probabilities, backward_moment(steps.size() - 1));
  }
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Value& y = value(steps[i].output);
    if (!runs[i].op || !y.wants_gradient) continue;
    memory.use(y.gradient, backward_moment(i));
    place_input_gradients(i, y);
    const OpNeeds& needs = runs[i].op->needs();
    runs[i].backward_scratch = during(backward_moment(i), needs.backward_scratch, Kind::gradient);
    runs[i].backward_workspace =
        during(backward_moment(i), needs.backward_workspace, Kind::workspace);
  }
  if (options.input_gradient) memory.use(value(0).gradient, last_moment());
}

// The buffers to which the i-th step writes its inputs' gradients: a value's gradient, or a
// separate buffer if the layout differs or the op cannot add.
void Assembly::place_input_gradients(std::size_t i, const Value& y) {
  StepRun& run = runs[i];
  const OpNeeds& needs = run.op->needs();
  const std::size_t now = backward_moment(i);
  const auto temporary = [&](const TensorDesc& desc) {
    return memory.use(memory.add(bytes_of(desc), Kind::gradient), now);
  };
  const std::optional<std::size_t> over_dy = written_over_dy(i);
  run.dx.resize(steps[i].inputs.size());
  for (std::size_t j = 0; j < run.dx.size(); ++j) {
    if (wanted_[i][j] == Gradient::none) continue;
    Value& u = value(steps[i].inputs[j]);
    const TensorDesc x = x_desc(i, j);
    const bool first = wanted_[i][j] == Gradient::write;
    if (first)
      u.gradient = over_dy == j ? y.gradient : memory.add(bytes_of(u.desc), Kind::gradient);
    memory.use(u.gradient, now);
    if (!same_memory(x, u.desc)) {
      run.dx[j] = temporary(x);
      const BufferId converted = first ? u.gradient : temporary(u.desc);
      run.gradients.push_back({x, u.desc, *run.dx[j], converted});
      if (!first) run.additions.push_back({u.desc, u.gradient, converted});
    } else if (!first && needs.gradient[j] == Gradient::write) {
      run.dx[j] = temporary(u.desc);
      run.additions.push_back({u.desc, u.gradient, *run.dx[j]});
    } else {
      run.dx[j] = u.gradient;
    }
  }
}

// The input, if any, whose gradient takes over dy's buffer.
std::optional<std::size_t> Assembly::written_over_dy(std::size_t i) const {
  for (const std::size_t j : runs[i].op->needs().dx_over)
    if (wanted_[i][j] == Gradient::write &&
        same_memory(x_desc(i, j), value(steps[i].inputs[j]).desc))
      return j;
  return std::nullopt;
}

void Assembly::add_sizes() {
  for (const StepRun& run : runs)
    if (run.op) sizes.constants += padded(run.op->needs().constants);
  if (!has_loss()) return;
  const TensorDesc& y = value(output).desc;
  sizes.losses = std::size_t(y.n * size_of(value_type()));
  if (options.loss == Loss::cross_entropy) {
    validate_classes(y, "cross entropy");
    sizes.targets = std::size_t(y.n) * sizeof(std::int32_t);
  } else {  // in the output's layout; in their own if it differs
    const TensorDesc nchw{y.n, y.c, y.h, y.w, Layout::nchw};
    sizes.targets =
        same_memory(nchw, y) ? bytes_outside(y) : padded(bytes_outside(y)) + bytes_outside(nchw);
  }
}

// Activations and their gradients grow with the batch; workspaces may grow too, or may hold partial
// sums per thread. The suggested batch assumes workspaces of the current size, so that it fits.
void Assembly::check_fits() const {
  const std::size_t rest =
      parameters.value_bytes() + (training() ? parameters.trained_bytes() : 0) + sizes.constants;
  const std::size_t available = std::size_t(device.info().memory_bytes);
  const std::size_t needed = memory.bytes() + rest;
  if (needed <= available) return;
  const auto batch = double(plan.batch);
  const std::string problem =
      fmt::format("net {}: a batch of {} needs {}, the device has {}", graph.name(), plan.batch,
                  show_bytes(std::int64_t(needed)), show_bytes(std::int64_t(available)));
  const double room = (double(available) - double(rest)) / double(memory.bytes());
  if (room * batch < 1) throw OutOfMemory(problem);
  MemoryUse fullest;
  memory.report(fullest);
  const double live = room * double(fullest.activations + fullest.gradients + fullest.workspace);
  double fits = batch;
  for (std::size_t moment = 0; moment <= last_moment(); ++moment) {
    MemoryUse use;
    memory.report(use, moment);
    const auto values = double(use.activations + use.gradients);
    if (values > 0) fits = std::min(fits, (live - double(use.workspace)) / values * batch);
  }
  throw InputError(fits < 1
                       ? fmt::format("{}: a smaller batch may fit", problem)
                       : fmt::format("{}: a batch of {} would fit", problem, std::int64_t(fits)));
}

void Assembly::bind() {
  std::byte* next_constants = constants.data();
  for (StepRun& run : runs) {
    run.constants = next_constants;
    if (run.op) next_constants += padded(run.op->needs().constants);
  }
  for (std::size_t i = 0; i < runs.size(); ++i) bind(i);
}

void Assembly::place(BufferId id, std::byte* at) {
  if (memory.is_at(id, at)) return;
  memory.place(id, at);
  const auto uses = [&](std::size_t i) {
    const StepRun& run = runs[i];
    return value(steps[i].output).buffer == id ||
           std::find(run.x.begin(), run.x.end(), id) != run.x.end();
  };
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (uses(i)) bind(i);
}

void Assembly::bind(std::size_t i) {
  StepRun& run = runs[i];
  if (!run.op) return;
  const auto data = [&](const std::optional<BufferId>& id) {
    return id ? memory.data(*id) : nullptr;
  };
  const auto span = [&](const std::optional<BufferId>& id) {
    return id ? memory.span(*id) : Span{};
  };
  const Value& y = value(steps[i].output);
  OpMemory at;
  for (const BufferId x : run.x) at.x.push_back(memory.data(x));
  at.y = memory.data(y.buffer);
  if (training() && y.wants_gradient) at.dy = memory.data(y.gradient);
  for (const auto& dx : run.dx) at.dx.push_back(data(dx));
  at.saved = data(run.saved);
  at.forward_scratch = data(run.forward_scratch);
  at.backward_scratch = data(run.backward_scratch);
  at.constants = run.constants;
  at.forward_workspace = span(run.forward_workspace);
  at.backward_workspace = span(run.backward_workspace);
  run.op->bind(std::move(at));
}

MemoryUse Assembly::memory_use(std::size_t optimizer) const {
  MemoryUse use;
  memory.report(use);
  return completed(use, optimizer);
}
// Adds everything except the arena's part.
MemoryUse Assembly::completed(MemoryUse use, std::size_t optimizer) const {
  const std::size_t gradients = training() ? parameters.trained_bytes() : 0;
  use.weights = parameters.value_bytes() + sizes.constants;
  use.gradients += gradients;
  use.optimizer = optimizer;
  use.total = use.weights + use.arena + gradients + use.optimizer + sizes.losses + sizes.targets;
  return use;
}
MemoryUse Assembly::memory_during(std::size_t step, Phase phase) const {
  if (step >= steps.size())
    throw InputError(
        fmt::format("net {}: has {} steps, there is no step {}", graph.name(), steps.size(), step));
  const std::size_t moment = phase == Phase::forward  ? step
                             : phase == Phase::update ? last_moment()
                                                      : backward_moment(step);
  MemoryUse use;
  memory.report(use, moment);
  return completed(use, parameters.state_bytes());
}

}  // namespace convlab::nets
