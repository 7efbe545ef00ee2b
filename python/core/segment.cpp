#include "segment.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "conv/error.h"
#include "conv/text/names.h"
#include "conv/transposed.h"
#include "engine.h"
#include "nets/plan/choose.h"
#include "nets/separable.h"

namespace convlab::python {
namespace {

const char* axes_of(std::size_t dims) {
  return dims == 5 ? "N C D H W" : dims == 4 ? "N C H W" : "N C";
}

// The order of an image's elements in memory; nullopt: neither, so it must be copied.
std::optional<Layout> order_of(const InputArray& array) {
  if (array.is(Layout::nchw)) return Layout::nchw;
  if (array.shape().size() > 2 && array.is(Layout::nhwc)) return Layout::nhwc;
  return {};
}

// An array's memory, or a dense copy of it.
struct Dense {
  const std::byte* data;
  Layout layout;
  Buffer copy;

  Dense(const InputArray& array, Device& device) : data(array.data()) {
    const std::optional<Layout> order = order_of(array);
    layout = order.value_or(Layout::nchw);
    if (order) return;
    copy = device.allocate(std::size_t(array.elements() * size_of(array.dtype())));
    array.copy(layout, copy.data());
    data = copy.data();
  }
};

TensorDesc filter_desc(const Sizes& shape, Layout layout) {
  const std::int64_t depth = shape.size() == 5 ? shape[2] : 1;
  return {shape[0], shape[1], depth * shape[shape.size() - 2], shape.back(), layout};
}

int threads_of(std::int64_t wanted) {
  if (wanted < 0) throw InputError(fmt::format("threads is {}: expected 0 or more", wanted));
  return int(std::min<std::int64_t>(wanted > 0 ? wanted : omp_get_max_threads(), 1 << 20));
}

}  // namespace

Segment::Segment(const GraphBuilder& given, SegmentOptions options)
    : options_(std::move(options)),
      dtype_(parse_type(options_.dtype)),
      input_(given.shape(0)),
      output_(given.shape(std::int64_t(given.graph().nodes().size()) - 1)) {
  const GraphBuilder builder = given;  // which others may change meanwhile
  const nb::gil_scoped_release released;
  Engine& engine = Engine::get();
  Device& device = engine.device(threads_of(options_.threads));
  nets::ChooseOptions choose;
  choose.mode = options_.training ? nets::Mode::training : nets::Mode::inference;
  choose.dtype = dtype_;
  choose.max_error = options_.max_error;
  choose.input_gradient = options_.input_gradient;
  choose.input_layout = options_.channels_last ? Layout::nhwc : Layout::nchw;
  choose.output_layout = choose.input_layout;
  const nets::NetPlan plan = engine.with_store([&](const Store* store) {
    return nets::choose_plan(builder.graph(), choose, engine.algos(), device, store).plan;
  });
  const nets::NetOptions of_net{.loss = nets::Loss::none,
                                .input_gradient = options_.input_gradient,
                                .dropout_seed = options_.seed};
  net_ = std::make_unique<nets::Net>(builder.graph(), plan, engine.algos(), device, of_net);
  std::set<std::string> statistics;
  for (const nets::Node& node : builder.graph().nodes())
    if (std::holds_alternative<nets::BatchNorm>(node.layer))
      statistics.insert({node.name + ".running_mean", node.name + ".running_var"});
  for (std::size_t i = 0; i < net_->parameters().size(); ++i) {
    const std::string& name = net_->parameters()[i].name;
    if (builder.is_absent(name)) continue;
    visible_.push_back(i);
    trained_.push_back(!statistics.contains(name));
  }
  used_.resize(visible_.size());
}

// ---- Parameters ----

nb::list Segment::parameters() const {
  nb::list all;
  for (std::size_t i = 0; i < visible_.size(); ++i) {
    const nets::Parameter& p = net_->parameters()[visible_[i]];
    all.append(nb::make_tuple(p.name, nb::tuple(nb::cast(p.shape)), bool(trained_[i])));
  }
  return all;
}

const nets::Parameter& Segment::parameter(std::int64_t index) const {
  if (index < 0 || index >= std::int64_t(visible_.size()))
    throw InputError(fmt::format("there is no parameter {}: expected 0 to {}", index,
                                 std::int64_t(visible_.size()) - 1));
  return net_->parameters()[visible_[std::size_t(index)]];
}

std::size_t Segment::bytes(const Sizes& shape) const {
  std::size_t bytes = std::size_t(size_of(dtype_));
  for (const std::int64_t size : shape) bytes *= std::size_t(size);
  return bytes;
}

InputArray Segment::checked(const nets::Parameter& p, nb::handle object) const {
  InputArray array(object, p.name.c_str(), p.shape.size(), "as in parameters()");
  require_type(array, dtype_, "the segment");
  require_shape(array, p.shape, "as in parameters()");
  return array;
}

void Segment::set(std::int64_t index, nb::handle object) {
  const nets::Parameter& p = parameter(index);
  const InputArray array = checked(p, object);
  std::optional<InputArray> before;
  const nb::gil_scoped_release released;
  (void)Engine::get();  // throws in a forked process, whose threads are missing
  const std::lock_guard lock(mutex_);
  std::swap(used_[std::size_t(index)], before);
  if (before) net_->place_parameter(visible_[std::size_t(index)], nullptr);
  Device& device = net_->device();
  if (array.is(Layout::nchw))
    device.copy_to_device(p.value, {array.data(), bytes(p.shape)}, net_->stream());
  else if (p.shape.size() > 2 && array.is(Layout::nhwc))  // filters of a model in channels_last
    device.ops().convert_layout(dtype_, filter_desc(p.shape, Layout::nhwc), array.data(),
                                filter_desc(p.shape, Layout::nchw), p.value, net_->stream());
  else
    array.copy(Layout::nchw, p.value);
  net_->parameters_changed();
}

bool Segment::use(std::int64_t index, nb::handle object) {
  const nets::Parameter& p = parameter(index);
  std::optional<InputArray> array(checked(p, object));
  const bool written = options_.training && !trained_[std::size_t(index)];
  if (nb::ndarray<> writable; written && !nb::try_cast(object, writable, false))
    throw InputError(
        fmt::format("{} cannot be written: expected memory for the statistics", p.name));
  if (!array->is(Layout::nchw) || reinterpret_cast<std::uintptr_t>(array->data()) % 64 != 0)
    return false;
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  net_->place_parameter(visible_[std::size_t(index)], const_cast<std::byte*>(array->data()));
  std::swap(used_[std::size_t(index)], array);
  return true;
}

void Segment::changed() {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  net_->parameters_changed();
}

nb::object Segment::get(std::int64_t index, bool torch) {
  const nets::Parameter& p = parameter(index);
  Buffer copy;
  {
    const nb::gil_scoped_release released;
    (void)Engine::get();
    const std::lock_guard lock(mutex_);
    copy = net_->device().allocate(bytes(p.shape));
    net_->read(p.value, copy.span());
  }
  return to_python(std::move(copy), dtype_, p.shape, Layout::nchw, torch);
}

// ---- Running ----

// In inference: PyTorch does not count its changes of running statistics, so their values tell.
void Segment::notice_statistics() {
  bool moved = false;
  std::size_t at = 0;
  for (std::size_t i = 0; i < visible_.size(); ++i) {
    if (trained_[i] || !used_[i]) continue;
    const nets::Parameter& p = net_->parameters()[visible_[i]];
    const std::size_t count = bytes(p.shape);
    folded_.resize(std::max(folded_.size(), at + count));
    if (std::memcmp(folded_.data() + at, p.value, count) != 0) {
      std::memcpy(folded_.data() + at, p.value, count);
      moved = true;
    }
    at += count;
  }
  if (moved) net_->parameters_changed();
}

void Segment::compute(const std::byte* x, Layout x_order, std::byte* y, Layout y_order) {
  (void)Engine::get();
  if (!options_.training) notice_statistics();
  if (!net_->place_input(x, x_order)) net_->set_input({x, bytes(input_)}, x_order);
  const bool placed = !net_->backward_reads_output() && net_->place_output(y, y_order);
  if (!placed) net_->place_output(nullptr, y_order);
  net_->forward();
  if (!placed) net_->read_output({y, bytes(output_)}, y_order);
  order_ = x_order;
}

void Segment::compute_gradients(const std::byte* dy, Layout order, std::byte* dx) {
  (void)Engine::get();
  has_gradients_ = false;
  if (gradients_ == nullptr || gradients_.use_count() > 1) {
    Device& device = net_->device();
    auto fresh = std::make_shared<Buffer>(device.allocate(net_->gradients().size()));
    device.ops().zero(fresh->span(), net_->stream());
    net_->place_gradients(fresh->span());
    gradients_ = std::move(fresh);
  }
  net_->backward({dy, bytes(output_)}, order);
  has_gradients_ = true;
  if (dx != nullptr) net_->read_input_gradient({dx, bytes(input_)}, order_);
}

nb::object Segment::forward(nb::handle object, bool torch) {
  std::optional<InputArray> x(std::in_place, object, "x", input_.size(), axes_of(input_.size()));
  require_type(*x, dtype_, "the segment");
  require_shape(*x, input_, "as the segment was made for");
  Buffer y;
  Layout order;
  {
    const nb::gil_scoped_release released;
    Device& device = net_->device();
    const Dense from(*x, device);
    order = from.layout;
    y = device.allocate(bytes(output_));
    const std::lock_guard lock(mutex_);
    compute(from.data, order, y.data(), order);
    // A copy ends with this call, so the net keeps one of its own.
    if (options_.training && from.copy.data() != nullptr)
      net_->set_input({from.data, bytes(input_)}, order);
    if (options_.training) std::swap(held_, x);
  }
  return to_python(std::move(y), dtype_, output_, output_.size() > 2 ? order : Layout::nchw, torch);
}

nb::object Segment::backward(nb::handle object, bool torch) {
  const InputArray dy(object, "dy", output_.size(), axes_of(output_.size()));
  require_type(dy, dtype_, "the segment");
  require_shape(dy, output_, "what forward gave");
  std::optional<InputArray> held;
  Buffer dx;
  Layout order;
  {
    const nb::gil_scoped_release released;
    const Dense from(dy, net_->device());
    const std::lock_guard lock(mutex_);
    if (options_.input_gradient && options_.training) dx = net_->device().allocate(bytes(input_));
    compute_gradients(from.data, from.layout, dx.data());
    std::swap(held_, held);
    order = order_;
  }
  if (!options_.input_gradient) return nb::none();
  return to_python(std::move(dx), dtype_, input_, order, torch);
}

nb::list Segment::gradients(bool torch) {
  std::shared_ptr<Buffer> block;
  std::vector<std::byte*> at;
  {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    if (!has_gradients_) throw InputError("there are no gradients: expected backward() before");
    block = gradients_;
    for (const std::size_t i : visible_) at.push_back(net_->parameters()[i].gradient);
  }
  nb::list all;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const Sizes& shape = net_->parameters()[visible_[i]].shape;
    if (at[i] == nullptr)
      all.append(nb::none());
    else
      all.append(to_python(at[i], block, dtype_, shape, Layout::nchw, torch));
  }
  return all;
}

std::uint64_t Segment::forwards() const {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  return net_->counters().forwards;
}

void Segment::run(std::uintptr_t x, std::uintptr_t y, bool channels_last) {
  const Layout order = channels_last ? Layout::nhwc : Layout::nchw;
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  compute(reinterpret_cast<const std::byte*>(x), order, reinterpret_cast<std::byte*>(y), order);
}

void Segment::run_backward(std::uintptr_t dy, std::uintptr_t dx, bool channels_last) {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  compute_gradients(reinterpret_cast<const std::byte*>(dy),
                    channels_last ? Layout::nhwc : Layout::nchw, reinterpret_cast<std::byte*>(dx));
}

// ---- What it does ----

nb::list Segment::plan() const {
  nb::list all;
  const nets::NetPlan& plan = net_->plan();
  const nets::Graph& graph = net_->graph();
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const nets::Node& node = graph.nodes()[net_->steps()[i].node];
    if (!nets::is_convolution(node.layer)) continue;
    const ConvProblem problem = graph.conv_problem(node);
    const std::string text =
        nets::is_transposed(node.layer) ? to_transposed_text(problem) : to_text(problem);
    for (const Pass pass : all_passes)
      if (const auto& p = plan.steps[i].passes[std::size_t(pass)])
        all.append(nb::make_tuple(node.name, std::string(to_string(pass)), text, p->algo,
                                  p->config.text(), p->ms, p->measured));
  }
  return all;
}

nb::list Segment::problems() const {
  nb::list all;
  for (const nets::ConvLayer& layer : nets::merge_equal(nets::conv_layers(net_->graph()))) {
    nb::list passes;
    passes.append(std::string(to_string(Pass::forward)));
    if (options_.training) {
      if (options_.input_gradient || !layer.first)
        passes.append(std::string(to_string(Pass::backward_data)));
      passes.append(std::string(to_string(Pass::backward_filter)));
    }
    std::string text = to_text(layer.layer);
    if (layer.transposed) {
      const std::string sizes = to_text(layer.layer.problem);
      text = to_transposed_text(layer.layer.problem) + text.substr(sizes.size());
    }
    all.append(nb::make_tuple(text, passes));
  }
  return all;
}

}  // namespace convlab::python
