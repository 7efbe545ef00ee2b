#include "nets/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "conv/error.h"
#include "conv/layer_ops.h"
#include "conv/math/saturating.h"

namespace convlab::nets {
namespace {

std::string text(const Shape& s) {
  const std::string depth = s.d == 1 ? "" : fmt::format("{}x", s.d);
  return fmt::format("{}x{}x{}{}x{}", s.n, s.c, depth, s.h, s.w);
}
// With the number along the depth in front if there is a window along it.
std::string text(const PerAxis& a, const std::optional<DepthWindow>& window,
                 std::int64_t DepthWindow::*depth) {
  if (window) return fmt::format("{}x{}x{}", (*window).*depth, a.h, a.w);
  return a.h == a.w ? fmt::format("{}", a.h) : fmt::format("{}x{}", a.h, a.w);
}

// Above any valid window, stride or padding, so that their sums do not overflow.
constexpr std::int64_t most_axis = std::int64_t{1} << 31;

// Whether the numbers are from 0 to `most`, those along the depth included.
bool in_range(std::initializer_list<PerAxis> sizes, const std::optional<DepthWindow>& depth,
              std::int64_t most) {
  const auto fits = [most](std::int64_t size) { return size >= 0 && size <= most; };
  const DepthWindow& d = depth.value_or(DepthWindow{});
  return std::all_of(sizes.begin(), sizes.end(),
                     [&](const PerAxis& size) { return fits(size.h) && fits(size.w); }) &&
         fits(d.kernel) && fits(d.stride) && fits(d.pad) && fits(d.end()) && fits(d.dilation) &&
         fits(d.output_pad);
}

// A layer's output for its inputs' shapes. Throws InputError without saying which layer.
struct Inference {
  const std::vector<Shape>& inputs;

  const Shape& only() const {
    if (inputs.size() != 1) throw InputError(fmt::format("takes one input, has {}", inputs.size()));
    return inputs[0];
  }

  Shape operator()(const Input& input) const {
    if (!inputs.empty()) throw InputError(fmt::format("takes no input, has {}", inputs.size()));
    return input.shape;
  }
  Shape operator()(const Conv& conv) const;
  Shape operator()(const ConvTranspose& conv) const;
  Shape operator()(const Linear& linear) const { return {only().n, linear.outputs, 1, 1}; }
  Shape operator()(const Pool& pool) const {
    const Shape& x = only();
    const DepthWindow& depth = pool.depth;
    const PerAxis end = pool.end();
    const PoolAxis rows{pool.kernel.h, pool.stride.h, pool.pad.h, end.h, pool.ceil_mode},
        columns{pool.kernel.w, pool.stride.w, pool.pad.w, end.w, pool.ceil_mode},
        slices{depth.kernel, depth.stride, depth.pad, depth.end(), pool.ceil_mode};
    if (depth.dilation != 1 || depth.output_pad != 0)
      throw InputError("pooling has neither a dilation nor an output padding");
    return {x.n, x.c, rows.pooled(x.h), columns.pooled(x.w), slices.pooled(x.d)};
  }
  Shape operator()(const GlobalAvgPool&) const { return {only().n, only().c, 1, 1}; }
  Shape operator()(const BatchNorm& norm) const {
    if (!(norm.epsilon >= 0) || std::isinf(norm.epsilon))
      throw InputError(fmt::format("epsilon is {}: expected a number from 0 on", norm.epsilon));
    if (!(norm.momentum >= 0 && norm.momentum <= 1))
      throw InputError(fmt::format("momentum is {}: expected a number from 0 to 1", norm.momentum));
    return only();
  }
  Shape operator()(const LocalResponseNorm& lrn) const {
    validate(LrnDesc{.x = {}, .size = lrn.size, .alpha = lrn.alpha, .beta = lrn.beta, .k = lrn.k});
    return only();
  }
  Shape operator()(const LayerNorm& norm) const {
    validate(LayerNormDesc{.x = {}, .epsilon = norm.epsilon});
    return only();
  }
  Shape operator()(const GroupNorm& norm) const {
    validate(LayerNormDesc{.x = {}, .epsilon = norm.epsilon});
    validate_groups({1, only().c, 1, 1}, norm.groups);
    return only();
  }
  Shape operator()(const PixelShuffle& shuffle) const {
    const Shape& x = without_depth("a pixel shuffle");
    const std::int64_t f = shuffle.factor;
    constexpr std::int64_t most = 1 << 15;
    if (f < 1 || f > most || x.c % (f * f) != 0)
      throw InputError(fmt::format("cannot spread {} channels over {}x{} pixels", x.c, f, f));
    return {x.n, x.c / (f * f), saturating_mul(x.h, f), saturating_mul(x.w, f)};
  }
  Shape operator()(const ChannelScale& scale) const {
    if (!std::isfinite(scale.initial))
      throw InputError(fmt::format("the first factor is {}: expected a number", scale.initial));
    return only();
  }
  Shape operator()(const Slice& slice) const {
    const Shape& x = only();
    if (slice.first < 0 || slice.channels < 1 || slice.first > x.c - slice.channels)
      throw InputError(fmt::format("cannot take {} channels from channel {} on: there are {}",
                                   slice.channels, slice.first, x.c));
    return {x.n, slice.channels, x.h, x.w, x.d};
  }
  Shape operator()(const ChannelShuffle& shuffle) const {
    validate_groups({1, only().c, 1, 1}, shuffle.groups);
    return only();
  }
  Shape operator()(const Resize& resize) const {
    const Shape &x = without_depth("resizing"), y{x.n, x.c, resize.h, resize.w};
    validate(ResizeDesc{resize.kind, {x.n, x.c, x.h, x.w}, {y.n, y.c, y.h, y.w}});
    return y;
  }
  Shape operator()(const Activation&) const { return only(); }
  Shape operator()(const LayerActivation& activation) const {
    validate(activation);
    return only();
  }
  Shape operator()(const PRelu& prelu) const {
    if (!std::isfinite(prelu.initial))
      throw InputError(fmt::format("the first slope is {}: expected a number", prelu.initial));
    return only();
  }
  Shape operator()(const Dropout& dropout) const {
    validate(DropoutDesc{.x = {}, .p = dropout.p});
    return only();
  }
  Shape operator()(const Gate&) const {
    if (inputs.size() != 2)
      throw InputError(fmt::format("takes two inputs, has {}", inputs.size()));
    const Shape &x = inputs[0], gate{x.n, x.c, 1, 1};
    if (inputs[1] != gate)
      throw InputError(
          fmt::format("the gate of {} is {}, not {}", text(x), text(gate), text(inputs[1])));
    return x;
  }
  Shape operator()(const PadChannels& pad) const {
    const Shape& x = only();
    if (pad.channels < x.c)
      throw InputError(fmt::format("cannot pad {} channels to {}", x.c, pad.channels));
    return {x.n, pad.channels, x.h, x.w, x.d};
  }
  Shape operator()(const Recurrent& recurrent) const;
  Shape operator()(const Add&) const {
    for (const Shape& s : inputs)
      if (s != first())
        throw InputError(fmt::format("cannot add {} to {}", text(s), text(first())));
    return first();
  }
  Shape operator()(const Concat&) const {
    Shape sum = first();
    sum.c = 0;
    for (const Shape& s : inputs) {
      if (s.n != sum.n || s.d != sum.d || s.h != sum.h || s.w != sum.w)
        throw InputError(fmt::format("cannot concatenate {} with {}", text(s), text(first())));
      sum.c += s.c;
    }
    return sum;
  }

 private:
  const Shape& first() const {
    if (inputs.size() < 2)
      throw InputError(fmt::format("takes two or more inputs, has {}", inputs.size()));
    return inputs[0];
  }

  const Shape& without_depth(std::string_view what) const {
    const Shape& x = only();
    if (x.d != 1) throw InputError(fmt::format("{} needs depth 1, has {}", what, x.d));
    return x;
  }

  struct PoolAxis {
    std::int64_t kernel, stride, pad, end;
    bool ceil_mode;

    std::string padding() const {
      return pad == end ? fmt::format("{}", pad) : fmt::format("{} and {}", pad, end);
    }
    // Padding of less than the window, on either side, leaves no window in the padding alone.
    std::int64_t pooled(std::int64_t size) const {
      if (kernel < 1 || kernel > most_axis || stride < 1 || stride > most_axis ||
          std::min(pad, end) < 0 || std::max(pad, end) >= kernel)
        throw InputError(fmt::format("window {} with stride {} and padding {} makes no sense",
                                     kernel, stride, padding()));
      const std::int64_t room = size + pad + end - kernel;
      if (room < 0)
        throw InputError(
            fmt::format("window {} does not fit into {} with padding {}", kernel, size, padding()));
      if (!ceil_mode) return room / stride + 1;
      const std::int64_t out = ceil_div(room, stride) + 1;
      return (out - 1) * stride >= size + pad ? out - 1 : out;
    }
  };
};

void set_depth(ConvProblem& p, const std::optional<DepthWindow>& depth) {
  const DepthWindow d = depth.value_or(DepthWindow{});
  p.t = d.kernel, p.stride_d = d.stride, p.pad_d = d.pad, p.dilation_d = d.dilation;
}

ConvProblem problem_of(const Conv& conv, const Shape& x) {
  ConvProblem p;
  p.n = x.n, p.c = x.c, p.d = x.d, p.h = x.h, p.w = x.w;
  p.k = conv.filters, p.r = conv.kernel.h, p.s = conv.kernel.w;
  set_depth(p, conv.depth);
  p.stride_h = conv.stride.h, p.stride_w = conv.stride.w;
  p.pad_h = conv.pad.h, p.pad_w = conv.pad.w;
  p.dilation_h = conv.dilation.h, p.dilation_w = conv.dilation.w;
  p.groups = conv.groups;
  const auto positions = [](std::int64_t size, std::int64_t kernel, std::int64_t stride,
                            std::int64_t padding, std::int64_t dilation) -> std::int64_t {
    if (stride < 1) return 1;  // the stride itself will be refused
    const std::int64_t room = size + padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
  };
  const std::int64_t end = conv.depth.value_or(DepthWindow{}).end();
  p.z = positions(x.d, p.t, p.stride_d, p.pad_d + end, p.dilation_d);
  p.p = positions(x.h, p.r, p.stride_h, p.pad_h + conv.end().h, p.dilation_h);
  p.q = positions(x.w, p.s, p.stride_w, p.pad_w + conv.end().w, p.dilation_w);
  return p;
}

Shape Inference::operator()(const Conv& conv) const {
  const auto& depth = conv.depth;
  const std::string kernel = text(conv.kernel, depth, &DepthWindow::kernel);
  if (!in_range({conv.kernel, conv.stride, conv.pad, conv.dilation, conv.end()}, depth, most_axis))
    throw InputError(fmt::format(
        "window {} with stride {}, padding {} and dilation {} makes no sense", kernel,
        text(conv.stride, depth, &DepthWindow::stride), text(conv.pad, depth, &DepthWindow::pad),
        text(conv.dilation, depth, &DepthWindow::dilation)));
  if (conv.matrix && (conv.kernel != PerAxis(1) || depth))
    throw InputError(fmt::format("window {} has no matrix as its weight: expected 1", kernel));
  if (depth && depth->output_pad != 0)
    throw InputError("only a transposed convolution has an output padding");
  const ConvProblem p = problem_of(conv, only());
  validate(p);
  return {p.n, p.k, p.p, p.q, p.z};
}

ConvProblem problem_of(const ConvTranspose& conv, const Shape& x) {
  ConvProblem p;
  p.n = x.n, p.k = x.c, p.z = x.d, p.p = x.h, p.q = x.w;
  set_depth(p, conv.depth);
  p.c = conv.filters, p.r = conv.kernel.h, p.s = conv.kernel.w;
  p.stride_h = conv.stride.h, p.stride_w = conv.stride.w;
  p.pad_h = conv.pad.h, p.pad_w = conv.pad.w;
  p.dilation_h = conv.dilation.h, p.dilation_w = conv.dilation.w;
  p.groups = conv.groups;
  const DepthWindow depth = conv.depth.value_or(DepthWindow{});
  p.d = saturating_mul(p.z - 1, p.stride_d) - p.pad_d - depth.end() + p.dilation_d * (p.t - 1) + 1 +
        depth.output_pad;
  p.h = saturating_mul(p.p - 1, p.stride_h) - p.pad_h - conv.end().h + p.dilation_h * (p.r - 1) +
        1 + conv.output_pad.h;
  p.w = saturating_mul(p.q - 1, p.stride_w) - p.pad_w - conv.end().w + p.dilation_w * (p.s - 1) +
        1 + conv.output_pad.w;
  return p;
}

Shape Inference::operator()(const ConvTranspose& conv) const {
  constexpr std::int64_t most = std::int64_t{1} << 15;
  const auto& depth = conv.depth;
  const std::string stride = text(conv.stride, depth, &DepthWindow::stride),
                    dilation = text(conv.dilation, depth, &DepthWindow::dilation),
                    output_pad = text(conv.output_pad, depth, &DepthWindow::output_pad);
  if (!in_range({conv.kernel, conv.stride, conv.pad, conv.dilation, conv.output_pad, conv.end()},
                depth, most))
    throw InputError(fmt::format(
        "window {} with stride {}, padding {}, dilation {} and output padding {} makes no sense",
        text(conv.kernel, depth, &DepthWindow::kernel), stride,
        text(conv.pad, depth, &DepthWindow::pad), dilation, output_pad));
  if (conv.output_pad.h >= std::max(conv.stride.h, conv.dilation.h) ||
      conv.output_pad.w >= std::max(conv.stride.w, conv.dilation.w) ||
      (depth && depth->output_pad >= std::max(depth->stride, depth->dilation)))
    throw InputError(fmt::format("output padding {} is not less than stride {} or dilation {}",
                                 output_pad, stride, dilation));
  const ConvProblem p = problem_of(conv, only());
  validate(p);
  return {p.n, p.c, p.h, p.w, p.d};
}

RecurrentProblem problem_of(const Recurrent& recurrent, const Shape& x) {
  RecurrentProblem p;
  p.cell = recurrent.cell;
  p.t = x.h, p.n = x.n, p.i = saturating_mul(x.c, x.w), p.h = recurrent.hidden;
  p.layers = recurrent.layers;
  p.bidirectional = recurrent.bidirectional;
  return p;
}

Shape Inference::operator()(const Recurrent& recurrent) const {
  RecurrentProblem p = problem_of(recurrent, without_depth("a recurrent layer"));
  p.dtype = DType::f64;  // as in infer_shape
  validate(p);
  return {p.n, p.directions() * p.h, recurrent.every_step ? p.t : 1, 1};
}

}  // namespace

bool is_convolution(const Layer& layer) {
  return std::holds_alternative<Conv>(layer) || is_transposed(layer);
}
bool is_transposed(const Layer& layer) { return std::holds_alternative<ConvTranspose>(layer); }

bool needs_nchw(const Layer& layer) {
  return std::holds_alternative<Input>(layer) || std::holds_alternative<Linear>(layer) ||
         std::holds_alternative<Recurrent>(layer) || std::holds_alternative<GroupNorm>(layer) ||
         std::holds_alternative<PixelShuffle>(layer);
}

NodeId Graph::add(std::string name, Layer layer, std::vector<NodeId> inputs) {
  Node node{std::move(name), layer, std::move(inputs), {}};
  try {
    for (const Node& other : nodes_)
      if (other.name == node.name) throw InputError("the name is taken");
    for (NodeId id : node.inputs)
      if (id >= nodes_.size()) throw InputError(fmt::format("there is no input node {}", id));
    node.shape = infer_shape(node);
  } catch (const InputError& error) {
    throw InputError(fmt::format("net {}, layer {}: {}", name_, node.name, error.what()));
  }
  nodes_.push_back(std::move(node));
  return nodes_.size() - 1;
}

Shape Graph::infer_shape(const Node& node) const {
  std::vector<Shape> inputs;
  for (NodeId id : node.inputs) inputs.push_back(nodes_[id].shape);
  const Shape shape = std::visit(Inference{inputs}, node.layer);
  // As an f64 tensor, so that sizes in bytes never overflow.
  std::int64_t bytes = 8;
  for (std::int64_t size : {shape.n, shape.c, shape.d, shape.h, shape.w})
    if (size < 1 || __builtin_mul_overflow(bytes, size, &bytes))
      throw InputError(fmt::format("its output would be {}", text(shape)));
  return shape;
}

std::int64_t Graph::batch() const {
  if (nodes_.empty()) throw InputError(fmt::format("net {}: has no layers", name_));
  return nodes_.front().shape.n;
}

const Shape& Graph::input_shape(const Node& node) const {
  if (node.inputs.empty() || node.inputs[0] >= nodes_.size())
    throw InputError(fmt::format("net {}: '{}' is none of its layers", name_, node.name));
  return nodes_[node.inputs[0]].shape;
}

ConvProblem Graph::conv_problem(const Node& node) const {
  if (const auto* const transposed = std::get_if<ConvTranspose>(&node.layer))
    return problem_of(*transposed, input_shape(node));
  const auto* const conv = std::get_if<Conv>(&node.layer);
  if (conv == nullptr)
    throw InputError(fmt::format("net {}, layer {}: is no convolution", name_, node.name));
  return problem_of(*conv, input_shape(node));
}

RecurrentProblem Graph::recurrent_problem(const Node& node) const {
  const auto* const recurrent = std::get_if<Recurrent>(&node.layer);
  if (recurrent == nullptr)
    throw InputError(fmt::format("net {}, layer {}: is no recurrent layer", name_, node.name));
  return problem_of(*recurrent, input_shape(node));
}

std::int64_t Graph::parameters(const Node& node) const {
  if (const auto* conv = std::get_if<Conv>(&node.layer))
    return conv_problem(node).filter_elements() + (conv->bias ? conv->filters : 0);
  if (const auto* conv = std::get_if<ConvTranspose>(&node.layer))
    return conv_problem(node).filter_elements() + (conv->bias ? conv->filters : 0);
  if (const auto* linear = std::get_if<Linear>(&node.layer))
    return multiply_adds(node) + linear->outputs;
  if (std::holds_alternative<LayerNorm>(node.layer)) return 2 * node.shape.c;
  if (std::holds_alternative<GroupNorm>(node.layer)) return 2 * node.shape.c;
  if (std::holds_alternative<ChannelScale>(node.layer)) return node.shape.c;
  if (std::holds_alternative<PRelu>(node.layer)) return node.shape.c;
  if (std::holds_alternative<BatchNorm>(node.layer)) return 2 * node.shape.c;
  if (std::holds_alternative<Recurrent>(node.layer))
    return recurrent_problem(node).weights_elements();
  return 0;
}

std::vector<std::int64_t> Graph::filter_shape(const Node& node) const {
  const ConvProblem p = conv_problem(node);
  const auto* const conv = std::get_if<Conv>(&node.layer);
  if (conv != nullptr && conv->matrix) return {p.k, p.c};
  const bool depth = conv != nullptr ? conv->depth.has_value()
                                     : std::get<ConvTranspose>(node.layer).depth.has_value();
  if (depth) return {p.k, p.c / p.groups, p.t, p.r, p.s};
  return {p.k, p.c / p.groups, p.r, p.s};
}

std::int64_t Graph::multiply_adds(const Node& node) const {
  if (is_convolution(node.layer)) {
    const ConvProblem p = conv_problem(node);
    return p.filter_elements() * p.z * p.p * p.q;
  }
  if (const auto* linear = std::get_if<Linear>(&node.layer)) {
    const Shape& x = input_shape(node);
    return x.c * x.pixels() * linear->outputs;
  }
  if (std::holds_alternative<Recurrent>(node.layer)) {
    const RecurrentProblem p = recurrent_problem(node);
    const std::int64_t biases = 2 * p.layers * p.directions() * p.gates() * p.h;
    return p.t * (p.weights_elements() - biases);
  }
  return 0;
}

std::int64_t Graph::parameters() const {
  std::int64_t sum = 0;
  for (const Node& node : nodes_) sum += parameters(node);
  return sum;
}

std::int64_t Graph::multiply_adds() const {
  std::int64_t sum = 0;
  for (const Node& node : nodes_) sum += multiply_adds(node);
  return sum;
}

NodeId Graph::head() const {
  for (NodeId id = nodes_.size(); id-- > 0;)
    if (std::holds_alternative<Conv>(nodes_[id].layer) ||
        std::holds_alternative<Linear>(nodes_[id].layer))
      return id;
  throw InputError(fmt::format("net {}: no layer of it computes scores", name_));
}

std::vector<ConvLayer> conv_layers(const Graph& graph) {
  std::vector<ConvLayer> layers;
  std::vector<bool> trained;  // per node: does a parameter precede its output?
  for (const Node& node : graph.nodes()) {
    const bool before =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](NodeId id) { return trained[id]; });
    trained.push_back(before || graph.parameters(node) > 0);
    if (!is_convolution(node.layer)) continue;
    layers.emplace_back();
    layers.back().layer = {graph.conv_problem(node), node.name, 1};
    layers.back().first = !before;
    layers.back().transposed = is_transposed(node.layer);
  }
  return layers;
}

std::vector<ConvLayer> merge_equal(const std::vector<ConvLayer>& layers) {
  std::vector<ConvLayer> merged;
  for (const ConvLayer& next : layers) {
    auto same = std::find_if(merged.begin(), merged.end(), [&](const ConvLayer& seen) {
      return seen.first == next.first && seen.transposed == next.transposed &&
             seen.layer.problem == next.layer.problem;
    });
    if (same == merged.end())
      merged.push_back(next);
    else
      same->layer.count += next.layer.count;
  }
  return merged;
}

std::vector<NamedRecurrentProblem> recurrent_layers(const Graph& graph) {
  std::vector<NamedRecurrentProblem> layers;
  for (const Node& node : graph.nodes())
    if (std::holds_alternative<Recurrent>(node.layer))
      layers.push_back({graph.recurrent_problem(node), node.name, 1});
  return layers;
}

std::vector<NamedRecurrentProblem> merge_equal(const std::vector<NamedRecurrentProblem>& layers) {
  std::vector<NamedRecurrentProblem> merged;
  for (const NamedRecurrentProblem& next : layers) {
    auto same = std::find_if(merged.begin(), merged.end(), [&](const NamedRecurrentProblem& seen) {
      return seen.problem == next.problem;
    });
    if (same == merged.end())
      merged.push_back(next);
    else
      same->count += next.count;
  }
  return merged;
}

}  // namespace convlab::nets
