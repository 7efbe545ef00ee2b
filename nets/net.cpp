#include "nets/net.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

#include "conv/error.h"
#include "nets/net_memory.h"
#include "nets/op.h"

namespace convlab {
namespace {

using Kind = NetMemory::Kind;

// The same elements at the same places, whatever the layouts are called.
bool same_memory(const TensorDesc& a, const TensorDesc& b) {
  return a.layout == b.layout || (a.h * a.w == 1 && a.padded_c() == b.padded_c());
}

TensorDesc desc_of(const Shape& s, Layout layout) { return {s.n, s.c, s.h, s.w, layout}; }

// A value, wherever its buffers are.
struct Value {
  TensorDesc desc;  // as its step leaves it
  BufferId buffer = 0, gradient = 0;
  bool wants_gradient = false;
  std::size_t step = 0;  // that leaves it
};

struct Conversion {
  TensorDesc from_desc, to_desc;
  BufferId from, to;
};

struct Addition {
  TensorDesc desc;
  BufferId to, term;
};

// A step with everything that happens around its op.
struct StepRun {
  std::unique_ptr<Op> op;             // null for the input
  std::vector<Conversion> inputs;     // before forward
  std::vector<Conversion> gradients;  // after backward_data, then
  std::vector<Addition> additions;
  // Buffers, while memory is planned.
  std::vector<BufferId> x;
  std::vector<std::optional<BufferId>> dx;
  std::optional<BufferId> saved, forward_scratch, backward_scratch;
};

void check_plan(const Graph& graph, const NetPlan& plan, const std::vector<Step>& steps) {
  const auto fail = [&](const std::string& why) {
    throw InputError(fmt::format("net {}: the plan is not for it: {}", graph.name(), why));
  };
  if (plan.net != graph.name()) fail(fmt::format("it is for {}", plan.net));
  const std::int64_t batch = graph.nodes().front().shape.n;
  if (plan.batch != batch) fail(fmt::format("it is for batch {}, not {}", plan.batch, batch));
  if (plan.dtype != DType::f32 && plan.dtype != DType::f64)
    fail(fmt::format("nets run in f32 and f64, it is for {}", to_string(plan.dtype)));
  if (plan.steps.size() != steps.size())
    fail(fmt::format("{} has {} steps, the plan {}", to_string(plan.mode), steps.size(),
                     plan.steps.size()));
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (const std::string& name = graph.nodes()[steps[i].node].name; plan.steps[i].layer != name)
      fail(fmt::format("step {} is {}, the plan has {}", i, name, plan.steps[i].layer));
}

NodeId output_of(const Graph& graph, Mode mode) {
  NodeId id = graph.nodes().size() - 1;
  while (mode == Mode::inference && std::holds_alternative<Dropout>(graph.nodes()[id].layer))
    id = graph.nodes()[id].inputs[0];
  return id;
}

}  // namespace

std::string_view to_string(Phase phase) {
  constexpr std::array<std::string_view, 4> names{"fwd", "bwd_d", "bwd_w", "update"};
  return names[std::size_t(phase)];
}

// Moments of an iteration, for lifetimes: step i runs forward at i, the loss follows at the number
// of steps, and step i runs backward at 2 * steps - i.
class Net::Impl {
 public:
  Impl(Graph graph, const NetPlan& plan, const AlgoRegistry& registry, Device& device,
       const NetOptions& options)
      : graph_(std::move(graph)),
        plan_(plan),
        options_(options),
        device_(device),
        ops_(device.ops()),
        stream_(device.make_stream()),
        steps_(steps_of(graph_, plan.mode)),
        parameters_(plan.dtype) {
    check_plan(graph_, plan_, steps_);
    find_values();
    make_ops(registry);
    place_forward();
    if (training()) place_backward();
    memory_.arrange();
    add_sizes();
  }

  void allocate() {
    check_fits();
    parameters_.allocate(training(), device_, *stream_);
    memory_.allocate(device_);
    workspace_ = device_.allocate(sizes_.workspace);
    constants_ = device_.allocate(sizes_.constants);
    losses_ = device_.allocate(sizes_.losses);
    targets_ = device_.allocate(sizes_.targets);
    for (const Buffer* buffer : {&losses_, &targets_}) ops_.zero(buffer->span(), *stream_);
    if (options_.poison) {
      nan_.assign(1 << 20, std::byte{0xFF});
      for (const Buffer* buffer : {&workspace_, &constants_}) poison(buffer->span());
      for (BufferId id = 0; id < memory_.lifetimes().size(); ++id) poison(memory_.span(id));
    }
    bind();
  }

  // Of all that allocate() allocates, and the optimizer's state.
  MemoryUse memory(std::size_t optimizer) const {
    MemoryUse use;
    memory_.report(use);
    return completed(use, optimizer);
  }

  // ---- Running ----

  void forward() {
    if (parameters_changed_ && !training()) {
      for (StepRun& run : runs_)
        if (run.op) run.op->parameters_changed(*stream_);
      parameters_changed_ = false;
    }
    ++iteration_;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (!runs_[i].op) continue;
      at_moment(i, [&] {
        observed(i, Phase::forward, [&] {
          for (const Conversion& c : runs_[i].inputs) convert(c);
          runs_[i].op->forward(iteration_, *stream_);
        });
      });
    }
    if (has_loss()) at_moment(runs_.size(), [&] { loss_forward(); });
    ran_forward_ = true;
  }

  void backward() {
    if (!has_loss())
      throw InputError(fmt::format("net {}: backward needs {}", graph_.name(),
                                   training() ? "a loss" : "a plan for training"));
    if (!ran_forward_)
      throw InputError(fmt::format("net {}: backward needs a forward before it", graph_.name()));
    ran_forward_ = false;
    loss_backward();
    for (std::size_t i = runs_.size(); i-- > 0;) {
      StepRun& run = runs_[i];
      if (!run.op || !value(steps_[i].output).wants_gradient) continue;
      at_moment(backward_moment(i), [&] {
        if (run.op->needs().backward_filter)
          observed(i, Phase::backward_filter, [&] { run.op->backward_filter(*stream_); });
        if (!run.op->needs().backward_data) return;
        poison_workspace();
        observed(i, Phase::backward_data, [&] {
          run.op->backward_data(iteration_, *stream_);
          for (const Conversion& c : run.gradients) convert(c);
          for (const Addition& a : run.additions)
            ops_.add(plan_.dtype, a.desc, memory_.data(a.to), memory_.data(a.term),
                     memory_.data(a.to), *stream_);
        });
      });
    }
  }

  void update(const UpdateRule& rule) {
    if (!training())
      throw InputError(fmt::format("net {}: update needs a plan for training", graph_.name()));
    parameters_.begin_update(rule, device_, *stream_);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (first_parameter_[i] == first_parameter_[i + 1]) continue;
      observed(i, Phase::update, [&] {
        for (std::size_t p = first_parameter_[i]; p < first_parameter_[i + 1]; ++p)
          parameters_.update(rule, p, device_, *stream_);
      });
    }
  }

  double loss() {
    if (!has_loss()) throw InputError(fmt::format("net {}: has no loss", graph_.name()));
    const std::size_t count = losses_.bytes() / std::size_t(size_of(plan_.dtype));
    const std::vector<double> losses = [&] {
      std::vector<std::byte> host(losses_.bytes());
      device_.copy_to_host(host, losses_.data(), *stream_);
      std::vector<double> values(count);
      for (std::size_t i = 0; i < count; ++i)
        values[i] = plan_.dtype == DType::f64
                        ? reinterpret_cast<const double*>(host.data())[i]
                        : double(reinterpret_cast<const float*>(host.data())[i]);
      return values;
    }();
    double sum = 0;
    for (const double value : losses) sum += value;
    return sum / double(count);
  }

  bool is_output_finite(const Step& step) {
    const Value& y = value(step.output);
    std::vector<std::byte> host(bytes_of(y.desc));
    device_.copy_to_host(host, memory_.data(y.buffer), *stream_);
    const auto all_finite = [&host]<class T>(const T* data) {
      return std::all_of(data, data + host.size() / sizeof(T),
                         [](T element) { return std::isfinite(element); });
    };
    return plan_.dtype == DType::f64 ? all_finite(reinterpret_cast<const double*>(host.data()))
                                     : all_finite(reinterpret_cast<const float*>(host.data()));
  }

  // ---- In and out ----

  void set_input(ConstSpan from) {
    expect_bytes("the input", from.size(), bytes_of(value(0).desc));
    device_.copy_to_device(memory_.data(value(0).buffer), from, *stream_);
  }
  void set_labels(std::span<const std::int32_t> labels) {
    if (options_.loss != Loss::cross_entropy || !training())
      throw InputError(
          fmt::format("net {}: without cross entropy there are no labels", graph_.name()));
    expect_bytes("the labels", labels.size_bytes(), targets_.bytes());
    device_.copy_to_device(targets_.data(), std::as_bytes(labels), *stream_);
  }
  void set_targets(ConstSpan from) {
    if (options_.loss != Loss::squared_error || !training())
      throw InputError(
          fmt::format("net {}: without squared error there are no targets", graph_.name()));
    const TensorDesc& y = value(output_).desc;
    const TensorDesc nchw{y.n, y.c, y.h, y.w, Layout::nchw};
    expect_bytes("the targets", from.size(), bytes_of(nchw));
    std::byte* const plain =
        same_memory(nchw, y) ? targets_.data() : targets_.data() + padded(bytes_of(y));
    device_.copy_to_device(plain, from, *stream_);
    if (plain != targets_.data())
      ops_.convert_layout(plan_.dtype, nchw, plain, y, targets_.data(), *stream_);
  }

  void read_output(Span to) {
    read_value(value(output_).desc, value(output_).buffer, "the output", to);
  }
  void read_input_gradient(Span to) {
    if (!options_.input_gradient || !training())
      throw InputError(fmt::format("net {}: was not made with input_gradient", graph_.name()));
    read_value(value(0).desc, value(0).gradient, "the input's gradient", to);
  }

 private:
  friend class Net;

  bool training() const { return plan_.mode == Mode::training; }
  bool has_loss() const { return training() && options_.loss != Loss::none; }
  std::size_t backward_moment(std::size_t step) const { return 2 * steps_.size() - step; }
  std::size_t last_moment() const { return training() ? 2 * steps_.size() : steps_.size(); }
  std::size_t bytes_of(const TensorDesc& d) const {
    return std::size_t(d.elements() * size_of(plan_.dtype));
  }
  Value& value(NodeId id) { return values_[id]; }
  const Value& value(NodeId id) const { return values_[id]; }

  // ---- Making ----

  void find_values() {
    const auto fail = [&](NodeId id, const char* why) {
      throw InputError(
          fmt::format("net {}, layer {}: {}", graph_.name(), graph_.nodes()[id].name, why));
    };
    output_ = output_of(graph_, plan_.mode);
    values_.resize(graph_.nodes().size());
    readers_ = readers_of(graph_, steps_);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      Value& v = value(step.output);
      v.step = i;
      v.desc = desc_of(graph_.nodes()[step.output].shape, plan_.steps[i].y_layout);
      const bool input = std::holds_alternative<Input>(graph_.nodes()[step.node].layer);
      if (input != (i == 0)) fail(step.node, "a net has one input, its first layer");
      if (input && v.desc.layout != Layout::nchw) fail(step.node, "the input is in nchw");
      if (readers_[step.output].empty() && step.output != output_)
        fail(step.node, "nothing reads what it computes");
      v.wants_gradient = training() && ((input && options_.input_gradient) ||
                                        graph_.parameters(graph_.nodes()[step.node]) > 0);
      for (const NodeId u : step.inputs) v.wants_gradient |= value(u).wants_gradient;
    }
  }

  // In which layout a step reads its i-th input.
  TensorDesc x_desc(std::size_t step, std::size_t i) const {
    const Step& s = steps_[step];
    TensorDesc desc = value(s.inputs[i]).desc;
    const bool residual = s.residual && i + 1 == s.inputs.size();
    desc.layout = residual ? plan_.steps[step].y_layout : plan_.steps[step].x_layout;
    return desc;
  }

  // The first to run backward writes a gradient, those after it add to it.
  std::vector<std::vector<Gradient>> gradients() const {
    std::vector<std::vector<Gradient>> all(steps_.size());
    std::vector<bool> written(values_.size(), false);
    for (std::size_t i = steps_.size(); i-- > 0;)
      for (const NodeId u : steps_[i].inputs) {
        all[i].push_back(!value(u).wants_gradient ? Gradient::none
                         : written[u]             ? Gradient::add
                                                  : Gradient::write);
        written[u] = true;
      }
    return all;
  }

  void make_ops(const AlgoRegistry& registry) {
    const std::vector<std::vector<Gradient>> wanted = gradients();
    const auto is_dropout = [&](const Step& s) {
      return std::holds_alternative<Dropout>(graph_.nodes()[s.node].layer);
    };
    const std::uint64_t draws =
        std::uint64_t(std::count_if(steps_.begin(), steps_.end(), is_dropout));
    std::uint64_t draw = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      std::vector<TensorDesc> x;
      std::vector<Gradient> gradient = wanted[i];
      for (std::size_t j = 0; j < step.inputs.size(); ++j) {
        x.push_back(x_desc(i, j));
        // Through another layout it is written beside, then converted and added.
        if (gradient[j] == Gradient::add && !same_memory(x[j], value(step.inputs[j]).desc))
          gradient[j] = Gradient::write;
      }
      first_parameter_.push_back(parameters_.list().size());
      const std::string& name = graph_.nodes()[step.node].name;
      runs_.emplace_back();
      try {
        runs_[i].op = make_op({graph_, step, plan_.steps[i], plan_.mode, plan_.dtype, options_,
                               draws, draw, registry, device_, parameters_, std::move(x),
                               value(step.output).desc, gradient});
      } catch (const InputError& error) {
        throw InputError(fmt::format("net {}, layer {}: {}", graph_.name(), name, error.what()));
      }
      draw += is_dropout(step);
    }
    first_parameter_.push_back(parameters_.list().size());
    wanted_ = wanted;
  }

  // Whether a step may write its output over its input's value: nobody reads that any more.
  bool can_overwrite(std::size_t step, std::size_t input) const {
    const NodeId u = steps_[step].inputs[input];
    const Value& x = value(u);
    if (u == 0 || u == output_ || !same_memory(x.desc, x_desc(step, input)) ||
        readers_[u].back() != step ||
        std::count(steps_[step].inputs.begin(), steps_[step].inputs.end(), u) > 1)
      return false;
    if (!training()) return true;
    if (runs_[x.step].op->needs().backward_reads_y) return false;
    return std::none_of(readers_[u].begin(), readers_[u].end(), [&](std::size_t reader) {
      return runs_[reader].op->needs().backward_reads_x;
    });
  }

  void place_forward() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      StepRun& run = runs_[i];
      Value& y = value(step.output);
      if (!run.op) {  // the input stays where it is from one set_input to the next
        y.buffer = memory_.add(bytes_of(y.desc), Kind::activation);
        memory_.use(y.buffer, 0);
        memory_.use(y.buffer, last_moment());
        continue;
      }
      const OpNeeds& needs = run.op->needs();
      const bool backward = training() && y.wants_gradient;
      for (std::size_t j = 0; j < step.inputs.size(); ++j) {
        run.x.push_back(in_layout(step.inputs[j], x_desc(i, j), i));
        if (backward && needs.backward_reads_x) memory_.use(run.x[j], backward_moment(i));
      }
      if (needs.y_over && can_overwrite(i, *needs.y_over))
        y.buffer = run.x[*needs.y_over];
      else
        y.buffer = memory_.add(bytes_of(y.desc), Kind::activation);
      memory_.use(y.buffer, i);
      if (backward && needs.backward_reads_y) memory_.use(y.buffer, backward_moment(i));
      if (needs.saved > 0) {
        run.saved = memory_.use(memory_.add(needs.saved, Kind::activation), i);
        if (backward) memory_.use(*run.saved, backward_moment(i));
      }
      if (needs.forward_scratch > 0)
        run.forward_scratch = memory_.use(memory_.add(needs.forward_scratch, Kind::activation), i);
    }
    memory_.use(value(output_).buffer, steps_.size());  // where the loss reads it
    memory_.use(value(output_).buffer, last_moment());
  }

  // The buffer of a value in this layout, needed at a step's moment; the first step that reads it
  // so converts it.
  BufferId in_layout(NodeId u, const TensorDesc& desc, std::size_t step) {
    const Value& v = value(u);
    if (same_memory(v.desc, desc)) return memory_.use(v.buffer, step);
    const auto [known, is_new] = converted_.try_emplace({u, desc.layout});
    if (is_new) {
      known->second = memory_.add(bytes_of(desc), Kind::activation);
      memory_.use(v.buffer, step);
      runs_[step].inputs.push_back({v.desc, desc, v.buffer, known->second});
    }
    return memory_.use(known->second, step);
  }

  void place_backward() {
    Value& last = value(output_);
    last.gradient = memory_.add(bytes_of(last.desc), Kind::gradient);
    memory_.use(last.gradient, steps_.size());
    for (std::size_t i = steps_.size(); i-- > 0;) {
      const Value& y = value(steps_[i].output);
      if (!runs_[i].op || !y.wants_gradient) continue;
      memory_.use(y.gradient, backward_moment(i));
      place_input_gradients(i, y);
      if (const std::size_t bytes = runs_[i].op->needs().backward_scratch; bytes > 0)
        runs_[i].backward_scratch =
            memory_.use(memory_.add(bytes, Kind::gradient), backward_moment(i));
    }
    if (options_.input_gradient) memory_.use(value(0).gradient, last_moment());
  }

  // Where the i-th step writes its inputs' gradients: into a value's gradient, or beside it where
  // the layout differs or the op cannot add.
  void place_input_gradients(std::size_t i, const Value& y) {
    StepRun& run = runs_[i];
    const OpNeeds& needs = run.op->needs();
    const std::size_t now = backward_moment(i);
    const auto temporary = [&](const TensorDesc& desc) {
      return memory_.use(memory_.add(bytes_of(desc), Kind::gradient), now);
    };
    const std::optional<std::size_t> over_dy = written_over_dy(i);
    run.dx.resize(steps_[i].inputs.size());
    for (std::size_t j = 0; j < run.dx.size(); ++j) {
      if (wanted_[i][j] == Gradient::none) continue;
      Value& u = value(steps_[i].inputs[j]);
      const TensorDesc x = x_desc(i, j);
      const bool first = wanted_[i][j] == Gradient::write;
      if (first)
        u.gradient = over_dy == j ? y.gradient : memory_.add(bytes_of(u.desc), Kind::gradient);
      memory_.use(u.gradient, now);
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
  std::optional<std::size_t> written_over_dy(std::size_t i) const {
    for (const std::size_t j : runs_[i].op->needs().dx_over)
      if (wanted_[i][j] == Gradient::write &&
          same_memory(x_desc(i, j), value(steps_[i].inputs[j]).desc))
        return j;
    return std::nullopt;
  }

  void add_sizes() {
    for (const StepRun& run : runs_) {
      if (!run.op) continue;
      sizes_.workspace = std::max(sizes_.workspace, run.op->needs().workspace);
      sizes_.constants += padded(run.op->needs().constants);
    }
    if (!has_loss()) return;
    const TensorDesc& y = value(output_).desc;
    sizes_.losses = std::size_t(y.n * size_of(plan_.dtype));
    if (options_.loss == Loss::cross_entropy) {
      validate_classes(y, "cross entropy");
      sizes_.targets = std::size_t(y.n) * sizeof(std::int32_t);
    } else {  // in the output's layout, and as they come if that is another
      const TensorDesc nchw{y.n, y.c, y.h, y.w, Layout::nchw};
      sizes_.targets = same_memory(nchw, y) ? bytes_of(y) : padded(bytes_of(y)) + bytes_of(nchw);
    }
  }

  // Activations and their gradients grow with the batch, the rest hardly does.
  void check_fits() const {
    const std::size_t rest = parameters_.value_bytes() +
                             (training() ? parameters_.trained_bytes() : 0) + sizes_.workspace +
                             sizes_.constants;
    const std::size_t memory = std::size_t(device_.info().memory_bytes);
    const std::size_t needed = memory_.bytes() + rest;
    if (needed <= memory) return;
    const std::int64_t batch = plan_.batch;
    const std::string problem =
        fmt::format("net {}: a batch of {} needs {:.2f} GB, the device has {:.2f} GB",
                    graph_.name(), batch, double(needed) / 1e9, double(memory) / 1e9);
    const std::int64_t fits =
        memory < rest
            ? 0
            : std::int64_t(double(memory - rest) / double(memory_.bytes()) * double(batch));
    if (fits < 1) throw OutOfMemory(problem);
    throw InputError(fmt::format("{}: a batch of {} would fit", problem, fits));
  }

  void bind() {
    std::byte* constants = constants_.data();
    const auto data = [&](const std::optional<BufferId>& id) {
      return id ? memory_.data(*id) : nullptr;
    };
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      StepRun& run = runs_[i];
      if (!run.op) continue;
      const Value& y = value(steps_[i].output);
      OpMemory at;
      for (const BufferId x : run.x) at.x.push_back(memory_.data(x));
      at.y = memory_.data(y.buffer);
      if (training() && y.wants_gradient) at.dy = memory_.data(y.gradient);
      for (const auto& dx : run.dx) at.dx.push_back(data(dx));
      at.saved = data(run.saved);
      at.forward_scratch = data(run.forward_scratch);
      at.backward_scratch = data(run.backward_scratch);
      at.constants = constants;
      at.workspace = workspace_.span();
      constants += padded(run.op->needs().constants);
      run.op->bind(std::move(at));
    }
  }

  // With everything but the arena's part.
  MemoryUse completed(MemoryUse use, std::size_t optimizer) const {
    const std::size_t gradients = training() ? parameters_.trained_bytes() : 0;
    use.weights = parameters_.value_bytes() + sizes_.constants;
    use.gradients += gradients;
    use.workspace = sizes_.workspace;
    use.optimizer = optimizer;
    use.total = use.weights + use.arena + gradients + use.workspace + use.optimizer +
                sizes_.losses + sizes_.targets;
    return use;
  }
  MemoryUse memory_during(std::size_t step, Phase phase) const {
    const std::size_t moment = phase == Phase::forward  ? step
                               : phase == Phase::update ? last_moment()
                                                        : backward_moment(step);
    MemoryUse use;
    memory_.report(use, moment);
    return completed(use, parameters_.state_bytes());
  }

  // ---- Running ----

  void convert(const Conversion& c) {
    ops_.convert_layout(plan_.dtype, c.from_desc, memory_.data(c.from), c.to_desc,
                        memory_.data(c.to), *stream_);
  }

  void loss_forward() {
    const Value& y = value(output_);
    std::byte* const scores = memory_.data(y.buffer);
    if (options_.loss == Loss::cross_entropy)
      ops_.cross_entropy_forward(plan_.dtype, y.desc, scores, targets_.as<std::int32_t>(),
                                 memory_.data(y.gradient), losses_.data(), *stream_);
    else
      ops_.squared_error_forward(plan_.dtype, y.desc, scores, targets_.data(), losses_.data(),
                                 *stream_);
  }

  // Of the mean over the batch. The probabilities of cross entropy wait where their gradient goes.
  void loss_backward() {
    const Value& y = value(output_);
    const double factor = 1.0 / double(y.desc.n);
    std::byte* const gradient = memory_.data(y.gradient);
    if (options_.loss == Loss::cross_entropy)
      ops_.cross_entropy_backward(plan_.dtype, y.desc, gradient, targets_.as<std::int32_t>(),
                                  factor, gradient, *stream_);
    else
      ops_.squared_error_backward(plan_.dtype, y.desc, memory_.data(y.buffer), targets_.data(),
                                  factor, gradient, *stream_);
  }

  template <class F>
  void observed(std::size_t step, Phase phase, F run) {
    if (!observer_) return run();
    const auto now = [&] {
      stream_->synchronize();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - observed_since_)
          .count();
    };
    const double begin = now();
    run();
    observer_(steps_[step], phase, begin, now());
  }

  // Runs what happens at this moment, for a test with everything around it NaN that it may not
  // read.
  template <class F>
  void at_moment(std::size_t moment, F run) {
    const auto poison_if = [&](auto condition) {
      for (BufferId id = 0; options_.poison && id < memory_.lifetimes().size(); ++id)
        if (id != value(0).buffer && condition(memory_.lifetimes()[id])) poison(memory_.span(id));
    };
    poison_if([&](const Lifetime& l) { return l.first == moment; });
    poison_workspace();
    run();
    poison_if([&](const Lifetime& l) { return l.last == moment && moment < last_moment(); });
  }
  void poison_workspace() {
    if (options_.poison) poison(workspace_.span());
  }
  void poison(Span span) {
    for (std::size_t at = 0; at < span.size(); at += nan_.size())
      device_.copy_to_device(span.data() + at,
                             ConstSpan(nan_).first(std::min(nan_.size(), span.size() - at)),
                             *stream_);
  }

  void expect_bytes(const char* what, std::size_t bytes, std::size_t expected) const {
    if (bytes != expected)
      throw InputError(fmt::format("net {}: {} has {} bytes, expected {}", graph_.name(), what,
                                   bytes, expected));
  }

  // The conversion happens on the host: after training steps there is no memory to spare here.
  void read_value(const TensorDesc& desc, BufferId buffer, const char* what, Span to) {
    const TensorDesc nchw{desc.n, desc.c, desc.h, desc.w, Layout::nchw};
    expect_bytes(what, to.size(), bytes_of(nchw));
    if (same_memory(desc, nchw)) return device_.copy_to_host(to, memory_.data(buffer), *stream_);
    std::vector<std::byte> host(bytes_of(desc));
    device_.copy_to_host(host, memory_.data(buffer), *stream_);
    const std::size_t size = std::size_t(size_of(plan_.dtype));
    for (std::int64_t n = 0, i = 0; n < desc.n; ++n)
      for (std::int64_t c = 0; c < desc.c; ++c)
        for (std::int64_t h = 0; h < desc.h; ++h)
          for (std::int64_t w = 0; w < desc.w; ++w, ++i)
            std::memcpy(to.data() + std::size_t(i) * size,
                        host.data() + std::size_t(desc.offset(n, c, h, w)) * size, size);
  }

  Graph graph_;
  NetPlan plan_;
  NetOptions options_;
  Device& device_;
  const LayerOps& ops_;
  std::unique_ptr<Stream> stream_;
  std::vector<Step> steps_;
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<Value> values_;  // by node
  NodeId output_ = 0;
  std::vector<std::vector<Gradient>> wanted_;  // by step and input
  std::map<std::pair<NodeId, Layout>, BufferId> converted_;

  Parameters parameters_;
  std::vector<std::size_t> first_parameter_;  // by step, and the end
  std::vector<StepRun> runs_;                 // by step
  NetMemory memory_;
  struct {
    std::size_t workspace = 0, constants = 0, losses = 0, targets = 0;
  } sizes_;
  Buffer workspace_, constants_;
  Buffer losses_, targets_;  // one loss an image; labels, or targets
  std::vector<std::byte> nan_;

  std::uint64_t iteration_ = 0;
  bool parameters_changed_ = true, ran_forward_ = false;
  StepObserver observer_;
  std::chrono::steady_clock::time_point observed_since_;
};

Net::Net(Graph graph, const NetPlan& plan, const AlgoRegistry& registry, Device& device,
         const NetOptions& options)
    : impl_(std::make_unique<Impl>(std::move(graph), plan, registry, device, options)) {
  impl_->allocate();
}
Net::~Net() = default;

const Graph& Net::graph() const { return impl_->graph_; }
const NetPlan& Net::plan() const { return impl_->plan_; }
const std::vector<Step>& Net::steps() const { return impl_->steps_; }
Stream& Net::stream() { return *impl_->stream_; }
MemoryUse Net::memory() const { return impl_->memory(impl_->parameters_.state_bytes()); }
MemoryUse Net::memory_during(std::size_t step, Phase phase) const {
  return impl_->memory_during(step, phase);
}
MemoryUse Net::memory_needed(const Graph& graph, const NetPlan& plan, const AlgoRegistry& registry,
                             Device& device, const NetOptions& options, const UpdateRule& rule) {
  const Impl net(graph, plan, registry, device, options);
  return net.memory(net.training() ? net.parameters_.state_bytes(rule) : 0);
}

void Net::initialise(std::uint64_t seed) {
  impl_->parameters_.initialise(seed, impl_->device_, *impl_->stream_);
  parameters_changed();
}
const std::vector<Parameter>& Net::parameters() const { return impl_->parameters_.list(); }
void Net::parameters_changed() { impl_->parameters_changed_ = true; }

void Net::set_input(ConstSpan from) { impl_->set_input(from); }
void Net::set_labels(std::span<const std::int32_t> labels) { impl_->set_labels(labels); }
void Net::set_targets(ConstSpan from) { impl_->set_targets(from); }

void Net::forward() { impl_->forward(); }
void Net::backward() { impl_->backward(); }
void Net::update(const UpdateRule& rule) { impl_->update(rule); }
double Net::loss() { return impl_->loss(); }
void Net::start_optimizer(const UpdateRule& rule) {
  impl_->parameters_.start_optimizer(rule, impl_->device_, *impl_->stream_);
}
NetCounters Net::counters() const { return {impl_->iteration_, impl_->parameters_.updates()}; }
void Net::set_counters(const NetCounters& counters) {
  impl_->iteration_ = counters.forwards;
  impl_->parameters_.set_updates(counters.updates);
}

void Net::read_output(Span to) { impl_->read_output(to); }
void Net::read_input_gradient(Span to) { impl_->read_input_gradient(to); }
void Net::read(const std::byte* from, Span to) {
  impl_->device_.copy_to_host(to, from, *impl_->stream_);
}
void Net::write(std::byte* to, ConstSpan from) {
  impl_->device_.copy_to_device(to, from, *impl_->stream_);
  impl_->stream_->synchronize();
}

void Net::observe(StepObserver observer) {
  impl_->observer_ = std::move(observer);
  impl_->observed_since_ = std::chrono::steady_clock::now();
}
bool Net::is_output_finite(const Step& step) { return impl_->is_output_finite(step); }

}  // namespace convlab
