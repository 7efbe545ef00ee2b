#include "nets/net.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "conv/error.h"
#include "conv/optional/profiled_device.h"
#include "nets/run/assembly.h"
#include "nets/run/finite.h"
#include "nets/run/half_values.h"
#include "nets/run/step_work.h"

namespace convlab::nets {

std::string_view to_string(Phase phase) {
  constexpr std::array<std::string_view, 4> names{"fwd", "bwd_d", "bwd_w", "update"};
  return names[std::size_t(phase)];
}

class Net::Impl {
 public:
  Impl(Graph graph, const NetPlan& plan, const NetAlgos& algos, Device& device,
       const NetOptions& options)
      : device_(device),
        profiled_(dynamic_cast<ProfiledDevice*>(&device)),
        ops_(device.ops()),
        stream_(device.make_stream()),
        net_(std::move(graph), plan, algos, device, options) {
    net_.allocate(*stream_);
    if (!options.poison) return;
    nan_.assign(1 << 20, std::byte{0xFF});
    poison(net_.constants.span());
    for (BufferId id = 0; id < net_.memory.lifetimes().size(); ++id) poison(net_.memory.span(id));
  }

  // ---- Running ----

  void forward() {
    require_before(has_input_, "forward", "set_input");
    const ProfiledRange range(profiled_, "forward");
    if (parameters_changed_ && !net_.training()) {
      for (StepRun& run : net_.runs)
        if (run.op) run.op->parameters_changed(*stream_);
      parameters_changed_ = false;
    }
    ++iteration_;
    ran_forward_ = false;
    for (std::size_t i = 0; i < net_.runs.size(); ++i) {
      if (!net_.runs[i].op) continue;
      at_moment(i, [&] {
        observed(i, Phase::forward, [&] {
          for (const Conversion& c : net_.runs[i].inputs) convert(c);
          net_.runs[i].op->forward(iteration_, *stream_);
        });
      });
    }
    if (net_.has_loss()) at_moment(net_.runs.size(), [&] { loss_forward(); });
    ran_forward_ = has_output_ = true;
  }

  void backward() {
    require_training("backward");
    if (!net_.has_loss())
      throw InputError(fmt::format("net {}: backward needs a loss, or the gradient of the output",
                                   net_.graph.name()));
    require_before(has_targets_, "backward", set_targets_name());
    run_backward([this] { loss_backward(); });
  }

  void backward(ConstSpan from, Layout layout) {
    require_training("backward");
    const Value& y = net_.value(net_.output);
    const TensorDesc given = given_as(y.desc, layout);
    expect_bytes("the output's gradient", from.size(), net_.bytes_outside(given));
    run_backward([&] { write_value(given, from, y.desc, net_.memory.data(y.gradient)); });
  }

  // `begin` writes the output's gradient to the place where the last step reads it.
  template <class Begin>
  void run_backward(Begin begin) {
    require_before(ran_forward_, "backward", "forward");
    ran_forward_ = false;
    has_gradients_ = true;
    const ProfiledRange range(profiled_, "backward");
    begin();
    for (std::size_t i = net_.runs.size(); i-- > 0;) {
      StepRun& run = net_.runs[i];
      if (run.op && net_.value(net_.steps[i].output).wants_gradient) backward_step(i, run);
      if (gradient_observer_) gradient_observer_(net_.first_parameter[i]);
    }
  }

  void backward_step(std::size_t i, StepRun& run) {
    at_moment(net_.backward_moment(i), [&] {
      const OpNeeds& needs = run.op->needs();
      if (needs.backward_filter && !needs.filter_last) backward_filter(i, run);
      if (needs.backward_data) backward_data(i, run);
      if (needs.backward_filter && needs.filter_last) backward_filter(i, run);
    });
  }

  void backward_filter(std::size_t i, StepRun& run) {
    poison_backward_workspace(run);
    observed(i, Phase::backward_filter, [&] { run.op->backward_filter(*stream_); });
  }

  void backward_data(std::size_t i, StepRun& run) {
    poison_backward_workspace(run);
    observed(i, Phase::backward_data, [&] {
      run.op->backward_data(iteration_, *stream_);
      for (const Conversion& c : run.gradients) convert(c);
      for (const Addition& a : run.additions)
        ops_.add(net_.plan.dtype, a.desc, net_.memory.data(a.to), net_.memory.data(a.term),
                 net_.memory.data(a.to), *stream_);
    });
  }

  void update(const UpdateRule& rule) {
    require_training("update");
    require_before(has_gradients_, "update", "backward");
    const ProfiledRange range(profiled_, "update");
    net_.parameters.begin_update(rule, device_, *stream_);
    for (std::size_t i = 0; i < net_.runs.size(); ++i) {
      if (net_.first_parameter[i] == net_.first_parameter[i + 1]) continue;
      observed(i, Phase::update, [&] {
        for (std::size_t p = net_.first_parameter[i]; p < net_.first_parameter[i + 1]; ++p)
          net_.parameters.update(rule, p, device_, *stream_);
      });
    }
  }

  double loss() {
    if (!net_.has_loss()) throw InputError(fmt::format("net {}: has no loss", net_.graph.name()));
    require_before(has_targets_, "loss", set_targets_name());
    require_before(has_output_, "loss", "forward");
    const std::size_t count = net_.losses.bytes() / std::size_t(size_of(net_.value_type()));
    const std::vector<double> losses = [&] {
      std::vector<std::byte> host(net_.losses.bytes());
      device_.copy_to_host(host, net_.losses.data(), *stream_);
      std::vector<double> values(count);
      for (std::size_t i = 0; i < count; ++i)
        values[i] = net_.value_type() == DType::f64
                        ? reinterpret_cast<const double*>(host.data())[i]
                        : double(reinterpret_cast<const float*>(host.data())[i]);
      return values;
    }();
    double sum = 0;
    for (const double value : losses) sum += value;
    return sum / double(count);
  }

  void start_optimizer(const UpdateRule& rule) {
    require_training("start_optimizer");
    net_.parameters.start_optimizer(rule, device_, *stream_);
  }
  void set_counters(const NetCounters& counters) {
    if (counters.updates < 0)
      throw InputError(fmt::format("net {}: {} updates: expected 0 or more", net_.graph.name(),
                                   counters.updates));
    iteration_ = counters.forwards;
    net_.parameters.set_updates(counters.updates);
  }

  bool is_output_finite(const Step& step) {
    if (step.output >= net_.values.size() || net_.value(step.output).desc.n == 0)
      throw InputError(fmt::format("net {}: has no step whose output is of node {}",
                                   net_.graph.name(), step.output));
    const Value& y = net_.value(step.output);
    std::vector<std::byte> host(net_.bytes_of(y.desc));
    device_.copy_to_host(host, net_.memory.data(y.buffer), *stream_);
    return all_finite(host, net_.plan.dtype);
  }

  [[noreturn]] void refuse_frozen() const {
    throw InputError(
        fmt::format("net {}: is frozen: its weights are folded, packed, and cannot "
                    "be read or changed",
                    net_.graph.name()));
  }
  void place_parameter(std::size_t index, std::byte* value) {
    const std::size_t count = net_.parameters.list().size();
    if (index >= count)
      throw InputError(fmt::format("net {}: has {} parameters, there is no {}", net_.graph.name(),
                                   count, index));
    parameters_changed();
    net_.parameters.place(index, value, device_);
  }
  void place_gradients(Span gradients) {
    require_training("place_gradients");
    expect_bytes("the gradients' memory", gradients.size(), net_.parameters.gradients().size());
    net_.parameters.place_gradients(gradients);
  }
  void parameters_changed() {
    if (frozen_) refuse_frozen();
    parameters_changed_ = true;
  }

  // One step after another, so that the net never holds all filters in both forms.
  void freeze() {
    if (net_.training())
      throw InputError(
          fmt::format("net {}: only a net for inference can be frozen", net_.graph.name()));
    if (frozen_) return;
    for (StepRun& run : net_.runs) {
      if (!run.op) continue;
      run.op->parameters_changed(*stream_);
      stream_->synchronize();
      for (const std::size_t p : run.op->needs().folded) net_.parameters.release(p);
    }
    frozen_ = true;
    parameters_changed_ = false;
  }

  // ---- In and out ----

  void set_input(ConstSpan from, Layout layout) {
    const Value& x = net_.value(0);
    const TensorDesc given = given_as(x.desc, layout);
    expect_bytes("the input", from.size(), net_.bytes_outside(given));
    net_.place(x.buffer, nullptr);
    write_value(given, from, x.desc, net_.memory.data(x.buffer));
    has_input_ = true;
  }
  bool place_input(const std::byte* x, Layout layout) {
    // Nothing writes to the input's buffer.
    return has_input_ = place(net_.value(0), const_cast<std::byte*>(x), layout);
  }
  bool place_output(std::byte* y, Layout layout) {
    has_output_ = false;
    return place(net_.value(net_.output), y, layout);
  }
  bool backward_reads_output() const {
    const Value& y = net_.value(net_.output);
    return net_.training() && y.wants_gradient && net_.runs[y.step].op->needs().backward_reads_y;
  }
  void set_labels(std::span<const std::int32_t> labels) {
    if (net_.options.loss != Loss::cross_entropy || !net_.training())
      throw InputError(
          fmt::format("net {}: without cross entropy there are no labels", net_.graph.name()));
    expect_bytes("the labels", labels.size_bytes(), net_.targets.bytes());
    const std::int64_t classes = net_.value(net_.output).desc.c;
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (labels[i] != no_label && (labels[i] < 0 || labels[i] >= classes))
        throw InputError(
            fmt::format("net {}: the label of image {} is {}: expected a class from 0 to {}",
                        net_.graph.name(), i, labels[i], classes - 1));
    copy_in(net_.targets.data(), std::as_bytes(labels));
    has_targets_ = true;
  }
  void set_targets(ConstSpan from) {
    if (net_.options.loss != Loss::squared_error || !net_.training())
      throw InputError(
          fmt::format("net {}: without squared error there are no targets", net_.graph.name()));
    const TensorDesc& y = net_.value(net_.output).desc;
    const TensorDesc nchw = plain(y);
    expect_bytes("the targets", from.size(), net_.bytes_outside(nchw));
    std::byte* const plain = same_memory(nchw, y)
                                 ? net_.targets.data()
                                 : net_.targets.data() + padded(net_.bytes_outside(y));
    copy_in(plain, from);
    if (plain != net_.targets.data())
      ops_.convert_layout(net_.value_type(), nchw, plain, y, net_.targets.data(), *stream_);
    has_targets_ = true;
  }

  void read(const std::byte* from, Span to) const {
    require_parameter(from, to.size());
    device_.copy_to_host(to, from, *stream_);
  }
  void write(std::byte* to, ConstSpan from) {
    require_parameter(to, from.size());
    copy_in(to, from);
  }

  void read_output(Span to, Layout layout) {
    require_before(has_output_, "read_output", "forward");
    read_value(net_.value(net_.output).desc, net_.value(net_.output).buffer, "the output", to,
               layout);
  }
  void read_input_gradient(Span to, Layout layout) {
    if (!net_.options.input_gradient || !net_.training())
      throw InputError(fmt::format("net {}: was not made with input_gradient", net_.graph.name()));
    read_value(net_.value(0).desc, net_.value(0).gradient, "the input's gradient", to, layout);
  }

 private:
  friend class Net;

  static TensorDesc plain(const TensorDesc& d) { return {d.n, d.c, d.h, d.w, Layout::nchw}; }
  // A value as the caller has it.
  TensorDesc given_as(TensorDesc desc, Layout layout) const {
    if (is_blocked(layout))
      throw InputError(fmt::format("net {}: a value in {}: expected nchw or nhwc",
                                   net_.graph.name(), to_string(layout)));
    desc.layout = layout;
    return desc;
  }

  void require_training(const char* what) const {
    if (!net_.training())
      throw InputError(
          fmt::format("net {}: {} needs a plan for training", net_.graph.name(), what));
  }

  void require_before(bool happened, const char* what, const char* needed) const {
    if (!happened)
      throw InputError(
          fmt::format("net {}: {} needs {} before it", net_.graph.name(), what, needed));
  }
  const char* set_targets_name() const {
    return net_.options.loss == Loss::cross_entropy ? "set_labels" : "set_targets";
  }

  // Requires that this many bytes from `p` lie in this net's parameters.
  void require_parameter(const std::byte* p, std::size_t bytes) const {
    if (p == nullptr && frozen_) refuse_frozen();
    for (const Parameter& known : net_.parameters.list()) {
      const std::size_t size = std::size_t(known.count * size_of(net_.value_type()));
      for (const std::byte* begin : {known.value, known.gradient, known.state[0], known.state[1]})
        if (begin != nullptr && begin <= p && p <= begin + size &&
            bytes <= std::size_t(begin + size - p))
          return;
    }
    throw InputError(
        fmt::format("net {}: {} bytes that are not within a parameter's value, "
                    "gradient or state",
                    net_.graph.name(), bytes));
  }

  void convert(const Conversion& c) {
    ops_.convert_layout(net_.plan.dtype, c.from_desc, net_.memory.data(c.from), c.to_desc,
                        net_.memory.data(c.to), *stream_);
  }

  void loss_forward() {
    const Value& y = net_.value(net_.output);
    std::byte* const scores = net_.memory.data(y.buffer);
    if (net_.options.loss == Loss::cross_entropy)
      ops_.cross_entropy_forward(net_.plan.dtype, y.desc, scores, net_.targets.as<std::int32_t>(),
                                 net_.memory.data(net_.probabilities), net_.losses.data(),
                                 *stream_);
    else
      ops_.squared_error_forward(net_.plan.dtype, y.desc, scores, net_.targets.data(),
                                 net_.losses.data(), *stream_);
  }

  // Gradient of the mean over the batch.
  void loss_backward() {
    const Value& y = net_.value(net_.output);
    const double factor = 1.0 / double(y.desc.n);
    std::byte* const gradient = net_.memory.data(y.gradient);
    if (net_.options.loss == Loss::cross_entropy)
      ops_.cross_entropy_backward(net_.plan.dtype, y.desc, net_.memory.data(net_.probabilities),
                                  net_.targets.as<std::int32_t>(), factor, gradient, *stream_);
    else
      ops_.squared_error_backward(net_.plan.dtype, y.desc, net_.memory.data(y.buffer),
                                  net_.targets.data(), factor, gradient, *stream_);
  }

  // "layer1.0.conv1 fwd"
  std::string range_name(std::size_t step, Phase phase) const {
    return fmt::format("{} {}", net_.graph.nodes()[net_.steps[step].node].name, to_string(phase));
  }

  template <class F>
  void observed(std::size_t step, Phase phase, F run) {
    const ProfiledRange range(profiled_, profiled_ ? range_name(step, phase) : "");
    if (!observer_) return run();
    const auto now = [&] {
      stream_->synchronize();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - observed_since_)
          .count();
    };
    const double begin = now();
    run();
    observer_(net_.steps[step], phase, begin, now());
  }

  // Runs the work of this moment. In a test, everything around it that it may not read is NaN.
  template <class F>
  void at_moment(std::size_t moment, F run) {
    if (stop_ != nullptr && *stop_) throw Interrupted{};
    const auto poison_if = [&](auto condition) {
      for (BufferId id = 0; net_.options.poison && id < net_.memory.lifetimes().size(); ++id)
        if (id != net_.value(0).buffer && condition(net_.memory.lifetimes()[id]))
          poison(net_.memory.span(id));
    };
    poison_if([&](const Lifetime& l) { return l.first == moment; });
    run();
    poison_if([&](const Lifetime& l) { return l.last == moment && moment < net_.last_moment(); });
  }
  void poison_backward_workspace(const StepRun& run) {
    if (net_.options.poison && run.backward_workspace)
      poison(net_.memory.span(*run.backward_workspace));
  }
  void poison(Span span) {
    for (std::size_t at = 0; at < span.size(); at += nan_.size())
      device_.copy_to_device(span.data() + at,
                             ConstSpan(nan_).first(std::min(nan_.size(), span.size() - at)),
                             *stream_);
  }

  void copy_in(std::byte* to, ConstSpan from) {
    device_.copy_to_device(to, from, *stream_);
    stream_->synchronize();
  }

  bool place(const Value& v, std::byte* at, Layout layout) {
    constexpr std::uintptr_t alignment = 64;  // as of Device::allocate
    const bool fits = reinterpret_cast<std::uintptr_t>(at) % alignment == 0 &&
                      same_memory(given_as(v.desc, layout), v.desc) &&
                      !has_16_bits(net_.plan.dtype);
    net_.place(v.buffer, fits ? at : nullptr);
    return fits && at != nullptr;
  }

  // Writes the caller's values, in the layout of `given`, to a buffer in that of `desc`.
  void write_value(const TensorDesc& given, ConstSpan from, const TensorDesc& desc, std::byte* to) {
    if (has_16_bits(net_.plan.dtype)) return write_rounded(given, from, desc, to);
    if (same_memory(given, desc)) return copy_in(to, from);
    Buffer staged;
    if (device_.info().kind != DeviceKind::cpu) {
      staged = device_.allocate(from.size());
      copy_in(staged.data(), from);
    }
    const std::byte* const there = staged.data() != nullptr ? staged.data() : from.data();
    ops_.convert_layout(net_.plan.dtype, given, there, desc, to, *stream_);
    stream_->synchronize();
  }

  // On a CPU, where nets of 16 bits are (nets/run/half_values.h).
  void write_rounded(const TensorDesc& given, ConstSpan from, const TensorDesc& desc,
                     std::byte* to) {
    const bool same = same_memory(given, desc);
    const Buffer rounded = device_.allocate(same ? 0 : net_.bytes_of(given));
    std::byte* const there = same ? to : rounded.data();
    round_values(ops_, net_.plan.dtype, from.data(), there, given.elements(), *stream_);
    if (!same) ops_.convert_layout(net_.plan.dtype, given, there, desc, to, *stream_);
    stream_->synchronize();
  }
  void read_widened(const TensorDesc& desc, const std::byte* from, const TensorDesc& wanted,
                    std::byte* to) {
    const bool same = same_memory(desc, wanted);
    const Buffer converted = device_.allocate(same ? 0 : net_.bytes_of(wanted));
    if (!same) ops_.convert_layout(net_.plan.dtype, desc, from, wanted, converted.data(), *stream_);
    widen_values(ops_, net_.plan.dtype, same ? from : converted.data(), to, wanted.elements(),
                 *stream_);
    stream_->synchronize();
  }

  void expect_bytes(const char* what, std::size_t bytes, std::size_t expected) const {
    if (bytes != expected)
      throw InputError(fmt::format("net {}: {} has {} bytes, expected {}", net_.graph.name(), what,
                                   bytes, expected));
  }

  // A card's values are converted on the host: after training steps the card has no memory to
  // spare.
  void read_value(const TensorDesc& desc, BufferId buffer, const char* what, Span to,
                  Layout layout) {
    const TensorDesc wanted = given_as(desc, layout);
    expect_bytes(what, to.size(), net_.bytes_outside(wanted));
    if (has_16_bits(net_.plan.dtype))
      return read_widened(desc, net_.memory.data(buffer), wanted, to.data());
    if (same_memory(desc, wanted))
      return device_.copy_to_host(to, net_.memory.data(buffer), *stream_);
    if (device_.info().kind == DeviceKind::cpu)
      return ops_.convert_layout(net_.plan.dtype, desc, net_.memory.data(buffer), wanted, to.data(),
                                 *stream_);
    std::vector<std::byte> host(net_.bytes_of(desc));
    device_.copy_to_host(host, net_.memory.data(buffer), *stream_);
    const std::size_t size = std::size_t(size_of(net_.plan.dtype));
    for (std::int64_t n = 0; n < desc.n; ++n)
      for (std::int64_t c = 0; c < desc.c; ++c)
        for (std::int64_t h = 0; h < desc.h; ++h)
          for (std::int64_t w = 0; w < desc.w; ++w)
            std::memcpy(to.data() + std::size_t(wanted.offset(n, c, h, w)) * size,
                        host.data() + std::size_t(desc.offset(n, c, h, w)) * size, size);
  }

  Device& device_;
  ProfiledDevice* profiled_;  // null: no profiler
  const LayerOps& ops_;
  std::unique_ptr<Stream> stream_;
  Assembly net_;
  std::vector<std::byte> nan_;

  std::uint64_t iteration_ = 0;
  bool parameters_changed_ = true, frozen_ = false;
  bool has_input_ = false, has_targets_ = false, has_output_ = false, has_gradients_ = false;
  bool ran_forward_ = false;  // and no backward since
  const std::atomic<bool>* stop_ = nullptr;
  StepObserver observer_;
  GradientObserver gradient_observer_;
  std::chrono::steady_clock::time_point observed_since_;
};

Net::Net(Graph graph, const NetPlan& plan, const NetAlgos& algos, Device& device,
         const NetOptions& options)
    : impl_(std::make_unique<Impl>(std::move(graph), plan, algos, device, options)) {}
Net::~Net() = default;

const Graph& Net::graph() const { return impl_->net_.graph; }
const NetPlan& Net::plan() const { return impl_->net_.plan; }
DType Net::value_type() const { return impl_->net_.value_type(); }
const std::vector<Step>& Net::steps() const { return impl_->net_.steps; }
Stream& Net::stream() { return *impl_->stream_; }
Device& Net::device() { return impl_->device_; }
Span Net::gradients() { return impl_->net_.parameters.gradients(); }
MemoryUse Net::memory() const {
  return impl_->net_.memory_use(impl_->net_.parameters.state_bytes());
}
MemoryUse Net::memory_during(std::size_t step, Phase phase) const {
  return impl_->net_.memory_during(step, phase);
}
MemoryUse Net::memory_needed(const Graph& graph, const NetPlan& plan, const NetAlgos& algos,
                             Device& device, const NetOptions& options, const UpdateRule& rule) {
  const Assembly net(graph, plan, algos, device, options);
  MemoryUse use = net.memory_use(net.training() ? net.parameters.state_bytes(rule) : 0);
  for (const StepRun& run : net.runs) {
    if (!run.op) continue;
    for (const std::size_t p : run.op->needs().folded) {
      use.weights -= net.parameters.value_bytes(p);
      use.total -= net.parameters.value_bytes(p);
    }
  }
  return use;
}

void Net::initialise(std::uint64_t seed) {
  parameters_changed();
  impl_->net_.parameters.initialise(seed, impl_->device_, *impl_->stream_);
}
const std::vector<Parameter>& Net::parameters() const { return impl_->net_.parameters.list(); }
void Net::place_parameter(std::size_t index, std::byte* value) {
  impl_->place_parameter(index, value);
}
void Net::place_gradients(Span gradients) { impl_->place_gradients(gradients); }
void Net::parameters_changed() { impl_->parameters_changed(); }
void Net::freeze() { impl_->freeze(); }

void Net::set_input(ConstSpan from, Layout layout) { impl_->set_input(from, layout); }
void Net::set_labels(std::span<const std::int32_t> labels) { impl_->set_labels(labels); }
void Net::set_targets(ConstSpan from) { impl_->set_targets(from); }

void Net::forward() { impl_->forward(); }
void Net::backward() { impl_->backward(); }
void Net::backward(ConstSpan output_gradient, Layout layout) {
  impl_->backward(output_gradient, layout);
}
void Net::update(const UpdateRule& rule) { impl_->update(rule); }
double Net::loss() { return impl_->loss(); }
void Net::start_optimizer(const UpdateRule& rule) { impl_->start_optimizer(rule); }
NetCounters Net::counters() const { return {impl_->iteration_, impl_->net_.parameters.updates()}; }
void Net::set_counters(const NetCounters& counters) { impl_->set_counters(counters); }

void Net::read_output(Span to, Layout layout) { impl_->read_output(to, layout); }
void Net::read_input_gradient(Span to, Layout layout) { impl_->read_input_gradient(to, layout); }
bool Net::place_input(const std::byte* x, Layout layout) { return impl_->place_input(x, layout); }
bool Net::place_output(std::byte* y, Layout layout) { return impl_->place_output(y, layout); }
bool Net::backward_reads_output() const { return impl_->backward_reads_output(); }
void Net::read(const std::byte* from, Span to) { impl_->read(from, to); }
void Net::write(std::byte* to, ConstSpan from) { impl_->write(to, from); }

void Net::observe(StepObserver observer) {
  impl_->observer_ = std::move(observer);
  impl_->observed_since_ = std::chrono::steady_clock::now();
}
void Net::observe_gradients(GradientObserver observer) {
  impl_->gradient_observer_ = std::move(observer);
}
bool Net::is_output_finite(const Step& step) { return impl_->is_output_finite(step); }

void Net::stop_when(const std::atomic<bool>* stop) { impl_->stop_ = stop; }

}  // namespace convlab::nets
