#include "tests/nets/net_lab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <stdexcept>

#include "conv/reference.h"
#include "conv/transposed.h"
#include "kernels_cpu/cpu.h"
#include "nets/tensor.h"

namespace convlab::nets {
namespace {

Graph plain(std::int64_t batch) {
  Graph net("plain");
  input(net, {batch, 3, 9, 8})
      .conv("conv1", {.filters = 20, .kernel = 3, .pad = 1})
      .relu("relu1")
      .max_pool("pool1", 3, 2, 1, true)
      .conv("conv2", {.filters = 16, .kernel = 3, .pad = 1})
      .tanh("tanh2")
      .avg_pool("pool2", 2, 1)
      .linear("fc1", 12)
      .relu("relu3")
      .linear("fc2", 5);
  return net;
}

Graph residual(std::int64_t batch) {
  Graph net("residual");
  const auto conv_bn = [](Tensor x, const std::string& name, Conv layer) {
    layer.bias = false;
    return x.conv(name, layer).batch_norm(name + ".bn");
  };
  Tensor x = conv_bn(input(net, {batch, 3, 8, 8}), "conv1", {.filters = 16, .kernel = 3, .pad = 1})
                 .relu("relu1");
  Tensor y = conv_bn(x, "a1", {.filters = 16, .kernel = 3, .pad = 1}).relu("a1.relu");
  y = conv_bn(y, "a2", {.filters = 16, .kernel = 3, .pad = 1});
  x = add("a.add", y, x).relu("a.relu");
  y = conv_bn(x, "b1", {.filters = 24, .kernel = 3, .stride = 2, .pad = 1}).relu("b1.relu");
  y = conv_bn(y, "b2", {.filters = 24, .kernel = 3, .pad = 1});
  x = add("b.add", y, conv_bn(x, "b.down", {.filters = 24, .stride = 2})).relu("b.relu");
  x.global_avg_pool("pool").linear("fc", 6);
  return net;
}

// A shortcut without parameters; unfused additions, of three terms and of a value with itself.
Graph shortcuts(std::int64_t batch) {
  Graph net("shortcuts");
  Tensor x = input(net, {batch, 4, 8, 8}).conv("conv1", {.filters = 8, .kernel = 3, .pad = 1});
  x = x.relu("relu1");
  Tensor y = x.conv("conv2", {.filters = 24, .kernel = 3, .stride = 2, .pad = 1, .bias = false})
                 .batch_norm("bn2");
  y = add("add2", y, x.max_pool("subsample", 1, 2).pad_channels("widen", 24));
  Tensor z = y.conv("conv3", {.filters = 24});
  net.add("add3", Add{}, {z.id(), y.id(), y.id()});
  Tensor sum(net, net.nodes().size() - 1);
  sum.tanh("tanh3").conv("conv4", {.filters = 5}).global_avg_pool("pool");
  return net;
}

Graph branches(std::int64_t batch) {
  Graph net("branches");
  Tensor x = input(net, {batch, 3, 8, 7})
                 .conv("conv1", {.filters = 20, .kernel = 3, .stride = 2, .pad = 1})
                 .relu("relu1");
  for (const char* name : {"a", "b"}) {
    const auto branch = [&](const std::string& part) { return std::string(name) + "." + part; };
    x = concat(name, {x.conv(branch("1"), {.filters = 7}).relu(branch("1.relu")),
                      x.conv(branch("2"), {.filters = 9, .bias = false})
                          .batch_norm(branch("2.bn"), 1e-3)
                          .relu(branch("2.relu"))
                          .conv(branch("3"), {.filters = 11, .kernel = 3, .pad = 1}),
                      x.max_pool(branch("pool"), 3, 1, 1), x});
  }
  x.avg_pool("pool", 2, 2).linear("fc", 4);
  return net;
}

Graph old_style(std::int64_t batch) {
  Graph net("old_style");
  input(net, {batch, 2, 9, 9})
      .conv("conv1", {.filters = 32, .kernel = 3, .stride = 2})
      .relu("relu1")
      .lrn("norm1", {.alpha = 0.1})
      .conv("conv2", {.filters = 32, .kernel = 3, .pad = 1, .groups = 2})
      .apply("sigmoid2", Activation{Activation::Kind::sigmoid})
      .dropout("drop2", 0.3)
      .linear("fc1", 10)
      .relu("relu3")
      .dropout("drop3", 0.5)
      .linear("fc2", 4);
  return net;
}

// Steps of several channels and columns; a sequence that is converted and normalised on its way to
// the last layer.
Graph recurrent(std::int64_t batch) {
  Graph net("recurrent");
  input(net, {batch, 2, 6, 5})
      .conv("conv", {.filters = 3, .kernel = 3, .pad = 1})
      .recurrent(
          "lstm",
          {.cell = RecurrentCell::lstm, .hidden = 7, .bidirectional = true, .every_step = true})
      .batch_norm("bn")
      .relu("relu")
      .recurrent("gru", {.cell = RecurrentCell::gru, .hidden = 9, .layers = 2})
      .linear("fc", 4);
  return net;
}

// As mobile nets have them: depthwise convolutions with asymmetric and dilated filters, gates, the
// activations of their time, and a branch that is dropped as a whole.
Graph mobile(std::int64_t batch) {
  Graph net("mobile");
  Tensor x =
      input(net, {batch, 3, 9, 8})
          .conv("stem", {.filters = 18, .kernel = 3, .stride = {1, 2}, .pad = 1, .bias = false})
          .batch_norm("stem.bn", 1e-3, 0.01)
          .activation("stem.hardswish", ActivationKind::hardswish);
  Tensor y = x.conv("depthwise", {.filters = 18, .kernel = {3, 5}, .pad = {1, 2}, .groups = 18})
                 .activation("silu", ActivationKind::silu);
  y = y.conv("dilated",
             {.filters = 18, .kernel = {1, 2}, .pad = {0, 1}, .dilation = {1, 2}, .groups = 6})
          .activation("relu6", ActivationKind::relu6);
  const Tensor gate = y.global_avg_pool("squeeze")
                          .conv("fc1", {.filters = 5})
                          .activation("gelu1", ActivationKind::gelu)
                          .conv("fc2", {.filters = 18})
                          .activation("hardsigmoid", ActivationKind::hardsigmoid);
  y = gated("gate", y, gate).conv("project", {.filters = 18, .bias = false}).batch_norm("bn");
  x = add("add", x, y.stochastic_depth("depth", 0.4));
  x.activation("gelu2", ActivationKind::gelu).global_avg_pool("pool").linear("fc", 4);
  return net;
}

// As segmentation nets have them: transposed convolutions, of which one reads what another step
// reads too, other sizes of images, and layers over channels.
Graph decoder(std::int64_t batch) {
  Graph net("decoder");
  Tensor skipped = input(net, {batch, 3, 6, 5})
                       .conv("stem", {.filters = 8, .kernel = 3, .pad = 1})
                       .layer_norm("stem.norm", 1e-2);
  Tensor x = skipped.conv("down", {.filters = 12, .kernel = 2, .stride = 2}).relu("down.relu");
  const Tensor up =
      x.conv_transpose("up", {.filters = 8, .kernel = {2, 3}, .stride = 2, .output_pad = {0, 0}});
  x = concat("cat", {skipped, up}).scaled("scale", 0.5).shuffled("shuffle", 4);
  const Tensor kept = x.slice("kept", 0, 7), rest = x.slice("rest", 7, 9).relu("rest.relu");
  const Tensor wide = concat("again", {rest, kept});
  const Tensor grouped = wide.conv_transpose("grouped", {.filters = 6,
                                                         .kernel = 3,
                                                         .stride = {1, 2},
                                                         .pad = 1,
                                                         .output_pad = {0, 1},
                                                         .groups = 2,
                                                         .bias = false});
  const Tensor large = wide.conv("pointwise", {.filters = 6, .matrix = true})
                           .resized("bilinear", ResizeKind::bilinear, 6, 10);
  add("add", grouped, large)
      .layer_norm("norm", 1e-3)
      .resized("nearest", ResizeKind::nearest, 4, 7)
      .linear("fc", 4);
  return net;
}

// In three dimensions: windows and strides that differ along the axes, a shortcut, pooling of both
// kinds, a transposed convolution behind a concatenation, and filters that are of one slice.
Graph volumes(std::int64_t batch) {
  Graph net("volumes");
  const Tensor x = input(net, {batch, 3, 5, 6, 5})
                       .conv("stem", {.filters = 8,
                                      .kernel = {3, 2},
                                      .pad = 1,
                                      .depth = DepthWindow{.kernel = 3, .stride = 2, .pad = 1}})
                       .relu("stem.relu");
  const Tensor narrow = x.conv("narrow", {.filters = 8,
                                          .kernel = 3,
                                          .pad = 1,
                                          .bias = false,
                                          .depth = DepthWindow{.kernel = 3, .pad = 1}})
                            .batch_norm("narrow.bn");
  const Tensor sum = add("add", narrow, x).relu("relu");
  const Tensor small = sum.max_pool_3d("pool", 2, 1).avg_pool("mean", 2, 2, 1);
  const Tensor up =
      small.conv("slices", {.filters = 10, .kernel = 3, .pad = 1})
          .tanh("tanh")
          .conv_transpose("up", {.filters = 6,
                                 .kernel = {2, 3},
                                 .stride = 2,
                                 .pad = 1,
                                 .output_pad = {1, 0},
                                 .depth = DepthWindow{.kernel = 3, .stride = 2, .pad = 1}});
  concat("cat", {up, sum})
      .conv("wide", {.filters = 7, .depth = DepthWindow{.kernel = 2}})
      .global_avg_pool("gap")
      .linear("fc", 4);
  return net;
}

// As exporters of other frameworks write them: padding that differs between sides, means that leave
// it out or round up beyond it, windows that are no squares, and activations with numbers.
Graph windows(std::int64_t batch) {
  using Kind = LayerActivation::Kind;
  Graph net("windows");
  input(net, {batch, 3, 9, 8})
      .conv("same", {.filters = 8, .kernel = 3, .stride = {1, 2}, .pad_end = {{2, 1}}})
      .apply("leaky", LayerActivation{Kind::leaky_relu, 0.2})
      .apply("mean", Pool{.kind = Pool::Kind::average,
                          .kernel = {3, 2},
                          .stride = {2, 1},
                          .pad = {1, 0},
                          .count_padding = false,
                          .pad_end = {{0, 1}}})
      .conv("causal", {.filters = 8, .kernel = {2, 3}, .pad = {0, 2}, .bias = false, .pad_end = 0})
      .batch_norm("bn")
      .apply("prelu", PRelu{})
      .conv_transpose("up", {.filters = 8, .kernel = 3, .stride = 2, .pad_end = {{1, 2}}})
      .apply("elu", LayerActivation{Kind::elu, 0.7})
      .conv("depthwise",
            {.filters = 8, .kernel = 3, .pad = {0, 2}, .groups = 8, .bias = false, .pad_end = 1})
      .batch_norm("depthwise.bn")
      .activation("relu6", ActivationKind::relu6)
      .conv("pointwise", {.filters = 10})
      .apply("clip", LayerActivation{Kind::clip, -0.5, 1})
      .apply("round", Pool{.kind = Pool::Kind::average,
                           .kernel = {2, 3},
                           .stride = 2,
                           .pad = {0, 1},
                           .ceil_mode = true})
      .apply("mish", LayerActivation{Kind::mish})
      .apply("max", Pool{.kernel = {2, 1}, .stride = 1, .pad_end = {{1, 0}}})
      .apply("softplus", LayerActivation{Kind::softplus})
      .conv("expand", {.filters = 12})
      .apply("groups", GroupNorm{.groups = 3, .epsilon = 1e-2})
      .apply("spread", PixelShuffle{2})
      .apply("instances", GroupNorm{.groups = 3, .epsilon = 1e-3})
      .relu("last")
      .global_avg_pool("gap")
      .linear("fc", 4);
  return net;
}

// Begins with layers without parameters, and with a batch norm whose input needs no gradient.
Graph normalised_input(std::int64_t batch) {
  Graph net("normalised_input");
  input(net, {batch, 5, 6, 6})
      .max_pool("pool", 2, 1)
      .batch_norm("bn")
      .conv("conv", {.filters = 6, .kernel = 2})
      .relu("relu")
      .linear("fc", 3);
  return net;
}

}  // namespace

const AlgoRegistry& cpu_registry() {
  static const AlgoRegistry algos = [] {
    AlgoRegistry r;
    append_cpu_algos(r);
    return r;
  }();
  return algos;
}

const RecurrentRegistry& cpu_recurrent() {
  static const RecurrentRegistry algos = [] {
    RecurrentRegistry r;
    append_cpu_recurrent_algos(r);
    return r;
  }();
  return algos;
}

const NetAlgos& cpu_algos() {
  static const NetAlgos algos(cpu_registry(), cpu_recurrent());
  return algos;
}

const std::vector<SmallNet>& small_nets() {
  static const std::vector<SmallNet> nets{
      {"plain", plain},         {"residual", residual},   {"shortcuts", shortcuts},
      {"branches", branches},   {"old_style", old_style}, {"normalised_input", normalised_input},
      {"recurrent", recurrent}, {"mobile", mobile},       {"decoder", decoder},
      {"volumes", volumes},     {"windows", windows}};
  return nets;
}

const SmallNet& small_net(const std::string& name) {
  for (const SmallNet& net : small_nets())
    if (net.name == name) return net;
  throw std::logic_error("no small net " + name);
}

bool choose_algos(const Graph& graph, const Node& node, DType dtype, const std::string& algo,
                  Device& device, std::int64_t images, const AlgoRegistry& registry,
                  StepPlan& step) {
  ConvProblem p = graph.conv_problem(node);
  p.dtype = dtype;
  const bool turned = is_transposed(node.layer);
  p.x_layout = turned ? step.y_layout : step.x_layout;
  p.y_layout = turned ? step.x_layout : step.y_layout;
  if (images > 0) p.n = std::min(p.n, images);
  for (const Pass pass : all_passes) {
    p.pass = turned ? transposed(pass) : pass;
    auto& plan = step.passes[std::size_t(pass)];
    plan.reset();
    for (const std::string& name : {algo, std::string("direct"), std::string("im2col")})
      for (const ConvAlgo* candidate : registry.named(device.info().kind, name))
        if (!plan && !candidate->refuse(p, device))
          plan = {candidate->info().id, candidate->configs(p, device).front(), images};
    if (!plan) return false;
  }
  return true;
}

std::array<std::optional<PassPlan>, 3> recurrent_passes(RecurrentProblem problem,
                                                        const std::string& algo, Device& device,
                                                        const RecurrentRegistry& registry) {
  const DeviceKind kind = device.info().kind;
  const RecurrentAlgo* const named = registry.find(kind, algo);
  std::array<std::optional<PassPlan>, 3> passes;
  for (const Pass pass : all_passes) {
    problem.pass = pass;
    problem.training = pass == Pass::forward;
    const bool takes = named != nullptr && !named->refuse(problem, device);
    const RecurrentAlgo& used = takes ? *named : *registry.for_device(kind).front();
    passes[std::size_t(pass)] = {used.info().id, used.configs(problem, device).front()};
  }
  return passes;
}

NetPlan uniform_plan(const Graph& graph, Mode mode, DType dtype, const std::string& algo,
                     Layout layout, Device& device, std::int64_t images, const NetAlgos& algos) {
  NetPlan plan;
  plan.net = graph.name();
  plan.batch = graph.nodes().front().shape.n;
  plan.mode = mode;
  plan.dtype = dtype;
  plan.threads = device.info().threads;
  const auto choose = [&](const Node& node, StepPlan& step) {
    return choose_algos(graph, node, dtype, algo, device, images, algos.conv, step);
  };
  for (const Step& step : steps_of(graph, mode)) {
    const Node& node = graph.nodes()[step.node];
    StepPlan s;
    s.layer = node.name;
    s.x_layout = s.y_layout = layout;
    if (needs_nchw(node.layer)) s.x_layout = s.y_layout = Layout::nchw;
    if (std::holds_alternative<Recurrent>(node.layer)) {
      RecurrentProblem problem = graph.recurrent_problem(node);
      problem.dtype = dtype;
      s.passes = recurrent_passes(problem, algo, device, *algos.recurrent);
    }
    if (is_convolution(node.layer) && !choose(node, s)) {
      s.x_layout = Layout::nchw;
      if (!choose(node, s)) {
        s.y_layout = Layout::nchw;
        if (!choose(node, s)) throw std::logic_error("nothing takes " + node.name);
      }
    }
    plan.steps.push_back(s);
  }
  return plan;
}

Values random_values(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Values values(static_cast<std::size_t>(count));
  for (double& v : values) v = double(float(normal(random)));
  return values;
}

NetLab::NetLab(Graph graph, const NetPlan& plan, Device& device, NetOptions options,
               std::uint64_t seed, const NetAlgos& algos)
    : device_(device), options_(options), net_(std::move(graph), plan, algos, device, options) {
  net_.initialise(seed);
  // Biases, scales, shifts and running statistics that are not 0 and 1.
  std::uint64_t number = 0;
  for (const Parameter& p : net_.parameters()) {
    if (p.shape.size() > 1) continue;
    Values values = read(p.value, p.count);
    const Values noise = random_values(p.count, seed + ++number);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += std::clamp(0.2 * noise[i], -0.5, 0.5);
    write(p.value, values);
  }
  net_.parameters_changed();
  const Shape& x = net_.graph().nodes().front().shape;
  set_input(random_values(x.elements(), seed + 1));
  if (plan.mode == Mode::inference) return;
  const Shape& y = net_.graph().nodes().back().shape;
  std::mt19937_64 random(seed + 2);
  if (options.loss == Loss::cross_entropy) {
    std::vector<std::int32_t> labels(static_cast<std::size_t>(y.n));
    for (std::int32_t& label : labels) label = std::int32_t(random() % std::uint64_t(y.c));
    net_.set_labels(labels);
    net_.stream().synchronize();
  } else if (options.loss == Loss::squared_error) {
    set_targets(random_values(y.elements(), seed + 3));
  }
}

const Parameter& NetLab::parameter(const std::string& name) const {
  for (const Parameter& p : net_.parameters())
    if (p.name == name) return p;
  throw std::logic_error("no parameter " + name);
}

std::vector<std::byte> NetLab::to_bytes(const Values& values) const {
  if (net_.value_type() == DType::f64) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }
  const std::vector<float> floats(values.begin(), values.end());
  const auto bytes = std::as_bytes(std::span(floats));
  return {bytes.begin(), bytes.end()};
}

Values NetLab::from_bytes(const std::vector<std::byte>& bytes) const {
  const auto values = [&]<class T>(T) {
    const T* const data = reinterpret_cast<const T*>(bytes.data());
    return Values(data, data + bytes.size() / sizeof(T));
  };
  return net_.value_type() == DType::f64 ? values(double()) : values(float());
}

Values NetLab::read(const std::byte* from, std::int64_t count) {
  std::vector<std::byte> bytes(std::size_t(count * size_of(net_.value_type())));
  net_.read(from, bytes);
  return from_bytes(bytes);
}

void NetLab::write(std::byte* to, const Values& values) {
  const std::vector<std::byte> bytes = to_bytes(values);
  device_.copy_to_device(to, bytes, net_.stream());
  net_.stream().synchronize();
}

void NetLab::set_input(const Values& values) {
  input_ = values;
  const std::vector<std::byte> bytes = to_bytes(values);
  net_.set_input(bytes);
  net_.stream().synchronize();
}

void NetLab::set_targets(const Values& values) {
  const std::vector<std::byte> bytes = to_bytes(values);
  net_.set_targets(bytes);
  net_.stream().synchronize();
}

double NetLab::forward() {
  net_.forward();
  return net_.plan().mode == Mode::training && options_.loss != Loss::none ? net_.loss() : 0;
}

void NetLab::backward(const Values& output_gradient) { net_.backward(to_bytes(output_gradient)); }

Values NetLab::output() {
  const Shape& y = net_.graph().nodes().back().shape;
  std::vector<std::byte> bytes(std::size_t(y.elements() * size_of(net_.value_type())));
  net_.read_output(bytes);
  return from_bytes(bytes);
}

Values NetLab::input_gradient() {
  std::vector<std::byte> bytes(input_.size() * std::size_t(size_of(net_.value_type())));
  net_.read_input_gradient(bytes);
  return from_bytes(bytes);
}

std::map<std::string, Values> NetLab::gradients() {
  std::map<std::string, Values> all;
  for (const Parameter& p : net_.parameters())
    if (p.gradient != nullptr) all[p.name] = read(p.gradient, p.count);
  if (options_.input_gradient) all["input"] = input_gradient();
  return all;
}

void check_gradients(const Graph& graph, const NetPlan& plan, Device& device,
                     const NetOptions& options, const TestedLoss& tested) {
  NetLab lab(graph, plan, device, options);
  tested.forward(lab);
  tested.backward(lab);
  const auto gradients = lab.gradients();
  for (const auto& [name, gradient] : gradients) {
    double norm = 0;
    for (const double g : gradient) norm += g * g;
    norm = std::sqrt(norm / double(gradient.size()));
    const auto loss = [&, tensor = name](std::size_t i, double change) {
      NetLab changed(graph, plan, device, options);
      if (tensor == "input") {
        Values x = changed.input();
        x[i] += change;
        changed.set_input(x);
      } else {
        const Parameter& p = changed.parameter(tensor);
        Values values = changed.read(p.value, p.count);
        values[i] += change;
        changed.write(p.value, values);
      }
      return tested.forward(changed);
    };
    const std::size_t stride = std::max<std::size_t>(1, gradient.size() / 3);
    for (std::size_t i = gradient.size() / 7; i < gradient.size(); i += stride) {
      const double step = 1e-5;
      const double slope = (loss(i, step) - loss(i, -step)) / (2 * step);
      EXPECT_NEAR(gradient[i], slope, 1e-5 * (norm + std::abs(slope)) + 1e-10)
          << name << "[" << i << "]";
    }
  }
}

double relative_error(const Values& got, const Values& expected) {
  return rel_error(got, expected);
}

}  // namespace convlab::nets
