#include "net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "arrays.h"
#include "conv/error.h"
#include "engine.h"
#include "nets/onnx/net.h"
#include "nets/plan/choose.h"
#include "nets/weights/notes.h"
#include "nets/weights/weights.h"
#include "nets/zoo/zoo.h"

namespace convlab::python {
namespace {

std::vector<std::int64_t> shape_of(const nets::Shape& s, bool has_depth) {
  if (has_depth) return {s.n, s.c, s.d, s.h, s.w};
  return {s.n, s.c, s.h, s.w};
}

}  // namespace

InferenceNet::InferenceNet(const std::string& name, std::optional<std::int64_t> batch,
                           const std::string& dtype,
                           const std::map<std::string, std::int64_t>& dims)
    : dtype_(parse_type(dtype)), graph_(name) {
  const nb::gil_scoped_release released;
  if (name.ends_with(".onnx")) {
    const nets::OnnxNet model = nets::read_onnx_net(name, {dims, batch});
    file_ = name;
    notes_ = model.notes();
    become(model.graph(), [&](nets::Net& net) { nets::load_weights(net, model.weights(), name); });
  } else {
    if (!dims.empty())
      throw InputError(fmt::format("dims: {} has no symbolic sizes: expected an .onnx file", name));
    graph_ = nets::make_net(name, batch.value_or(1));
  }
  const nets::Shape& input = graph_.nodes().front().shape;
  batch_ = input.n;
  input_shape_ = shape_of(input, input.d > 1);
}

void InferenceNet::become(nets::Graph graph, const std::function<void(nets::Net&)>& load) {
  Engine& engine = Engine::get();
  const nets::NetPlan plan = engine.with_store([&](const Store* store) {
    const nets::ChooseOptions options{.mode = nets::Mode::inference, .dtype = dtype_};
    return nets::choose_plan(graph, options, engine.algos(), engine.device(), store).plan;
  });
  auto net = std::make_unique<nets::Net>(graph, plan, engine.algos(), engine.device(),
                                         nets::NetOptions{.loss = nets::Loss::none});
  load(*net);
  net->freeze();
  net_ = std::move(net);
  graph_ = std::move(graph);
}

void InferenceNet::load_weights(const std::string& path) {
  const nb::gil_scoped_release released;
  if (!file_.empty())
    throw InputError(fmt::format("{}: has weights of its own: expected no others", file_));
  const std::lock_guard lock(mutex_);
  const nets::ArrayReader file(path);
  const nets::WeightsNotes notes = nets::notes_of(file.header().metadata, path);
  nets::Graph graph = [&] {
    try {  // the number of classes is part of the net's name
      return nets::make_net(graph_.name(), batch_, nets::outputs_of(file.header(), graph_));
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}", path, error.what()));
    }
  }();
  if (!notes.net.empty() && notes.net != graph.name())
    throw InputError(
        fmt::format("{}: the weights of {}, not of {}", path, notes.net, graph.name()));
  become(std::move(graph), [&](nets::Net& net) { nets::load_weights(net, file); });
}

std::string InferenceNet::name() const {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  return graph_.name();
}

nb::object InferenceNet::scores(nb::handle images, bool torch) {
  const bool deep = input_shape_.size() == 5;
  const InputArray x(images, "images", deep ? 5 : 4, deep ? "N C D H W" : "N C H W");
  const std::int64_t count = x.shape()[0];
  std::vector<std::int64_t> expected = input_shape_;
  expected[0] = count;
  require_shape(x, expected, fmt::format("images of {}", name()));
  require_type(x, dtype_, "the net");
  Buffer out;
  std::vector<std::int64_t> shape;
  {
    const nb::gil_scoped_release released;
    Engine& engine = Engine::get();
    const std::lock_guard lock(mutex_);
    if (!net_)
      throw InputError(
          fmt::format("{} has no weights: expected load_weights(path) before", graph_.name()));
    const nets::Shape& y = graph_.nodes().back().shape;
    shape = y.pixels() == 1 ? std::vector{y.n, y.c} : shape_of(y, deep);
    shape[0] = count;
    const auto bytes = std::size_t(size_of(dtype_));
    const std::size_t image_in = std::size_t(x.elements() / count) * bytes,
                      image_out = std::size_t(y.elements() / y.n) * bytes;
    const auto batch = std::size_t(batch_);
    out = engine.device().allocate(std::size_t(count) * image_out);
    const std::byte* from = x.data();
    Buffer dense;
    if (!x.is(Layout::nchw)) {
      dense = engine.device().allocate(std::size_t(count) * image_in);
      x.copy(Layout::nchw, dense.data());
      from = dense.data();
    }
    // Images do not depend on one another, so the last batch may be filled up with anything.
    std::vector<std::byte> last_in(batch * image_in), last_out(batch * image_out);
    for (std::size_t first = 0; first < std::size_t(count); first += batch) {
      const std::size_t here = std::min(batch, std::size_t(count) - first);
      const bool whole = here == batch;
      if (!whole) std::memcpy(last_in.data(), from + first * image_in, here * image_in);
      net_->set_input(whole ? ConstSpan(from + first * image_in, batch * image_in)
                            : ConstSpan(last_in));
      net_->forward();
      std::byte* const to = out.data() + first * image_out;
      net_->read_output(whole ? Span(to, batch * image_out) : Span(last_out));
      if (!whole) std::memcpy(to, last_out.data(), here * image_out);
      const nb::gil_scoped_acquire held;  // for Ctrl-C
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }
  return to_python(std::move(out), dtype_, shape, Layout::nchw, torch);
}

}  // namespace convlab::python
