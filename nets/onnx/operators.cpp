// Rules of the operators that compute: each becomes one layer, with the node's weights.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "conv/error.h"
#include "nets/onnx/attributes.h"
#include "nets/onnx/translation.h"

namespace convlab::nets::onnx_reader {
namespace {

// ---- Convolutions ----

// For Conv and ConvTranspose. `sizes`: the filter's groups and channels were compared already.
template <class Layer>
void add_convolution(Call& call, const NetValue& x, Layer layer, const Window& w, const Dims& more,
                     std::int64_t filters) {
  const Constant* const bias = call.has(2) ? &call.weight(2, "bias") : nullptr;
  if (bias && bias->elements() != filters)
    call.contradict(fmt::format("a bias of {} for {} filters", bias->elements(), filters));
  const Axes kernel(w.kernel, 1), stride(w.stride, 1), dilation(w.dilation, 1), pad(w.pad_begin, 0),
      pad_end(w.pad_end, 0), output_pad(more, 0);
  layer.filters = filters;
  layer.kernel = kernel.plane();
  layer.stride = stride.plane();
  layer.dilation = dilation.plane();
  layer.pad = pad.plane();
  layer.pad_end = pad_end.plane();
  layer.groups = integer(call.node, "group", 1);
  layer.bias = bias != nullptr;
  if (x.rank == 5)
    layer.depth = DepthWindow{kernel.d, stride.d, pad.d, dilation.d, output_pad.d, pad_end.d};
  if constexpr (std::is_same_v<Layer, ConvTranspose>) layer.output_pad = output_pad.plane();
  const NodeId id = call.add(layer, {x.id});
  const std::string& name = call.name_of_layer(id);
  call.source({.parameter = name + ".weight",
               .shape = call.graph().filter_shape(call.graph().nodes()[id]),
               .from = call.weight(1, "filter")});
  if (bias) call.source({.parameter = name + ".bias", .shape = {filters}, .from = *bias});
  call.put({.id = id, .rank = x.rank});
}

// The filter of a convolution of `channels`, whose axis `channel_axis` has those of a group.
const Constant& filter_for(Call& call, const NetValue& x, std::size_t channel_axis) {
  const Constant& filter = call.weight(1, "filter");
  const std::int64_t groups = integer(call.node, "group", 1), channels = call.shape(x).c;
  if (x.rank < 3 || filter.dims.size() != x.rank)
    call.contradict(
        fmt::format("an input of {} dimensions and a filter of {}: expected 3 to 5 in "
                    "both",
                    x.rank, filter.dims.size()));
  const bool fits =
      groups >= 1 && groups <= channels && channels % groups == 0 &&
      filter.dims[channel_axis] == (channel_axis == 1 ? channels / groups : channels) &&
      std::all_of(filter.dims.begin(), filter.dims.end(), [](auto d) { return d > 0; });
  if (!fits)
    call.contradict(fmt::format("{} channels, a filter of {} and {} groups do not go together",
                                channels, fmt::join(filter.dims, "x"), groups));
  return filter;
}

void convolution(Call& call) {
  const NetValue x = call.image(0);
  const Constant& filter = filter_for(call, x, 1);
  const Window w = window_with_padding(call, x, {filter.dims.begin() + 2, filter.dims.end()});
  add_convolution(call, x, Conv{}, w, {}, filter.dims[0]);
}

void transposed_convolution(Call& call) {
  const NetValue x = call.image(0);
  if (!x.pad_begin.empty()) throw Lacking{"of a padded image"};
  const Constant& filter = filter_for(call, x, 0);
  const Dims image = call.image_dims(x);
  Window w = window_of(call.node, image, {filter.dims.begin() + 2, filter.dims.end()});
  const Dims out = transposed_output(call.node, w, image);
  const bool to_same = text(call.node, "auto_pad").starts_with("SAME") &&
                       attribute(call.node, "output_shape") == nullptr;
  const Dims output_padding = integers(call.node, "output_padding");
  Dims more;
  for (std::size_t i = 0; i < image.size(); ++i) {
    const std::int64_t extent = (w.kernel[i] - 1) * w.dilation[i] + 1;
    w.pad_end[i] = std::max<std::int64_t>(w.pad_end[i], 0);
    more.push_back(out[i] -
                   ((image[i] - 1) * w.stride[i] - w.pad_begin[i] - w.pad_end[i] + extent));
    // ONNX says that the output has `stride` times the input's size, ONNX Runtime makes it less.
    if (to_same && more[i] > (output_padding.empty() ? 0 : output_padding[i]))
      throw Lacking{"with auto_pad and a filter smaller than its stride"};
    if (w.pad_begin[i] < 0 || more[i] < 0 || more[i] >= std::max(w.stride[i], w.dilation[i]))
      throw Lacking{"with padding of less than nothing"};
  }
  add_convolution(call, x, ConvTranspose{}, w, more,
                  filter.dims[1] * integer(call.node, "group", 1));
}

// ---- Products ----

// A weight of C K with what an Add behind the node adds to each of the K, if that is all it does.
// The layer's weight is K C, as PyTorch has it.
struct Product {
  Constant weight;
  std::optional<Constant> bias;
  const Node* last;
};

void add_product(Call& call, const NetValue& x, const Product& p, double weight_factor,
                 double bias_factor) {
  const std::int64_t inputs = p.weight.dims[1], outputs = p.weight.dims[0];
  const bool of_pixels = x.form == Form::channels_last && x.rank > 2;
  const Shape& s = call.shape(x);
  if (inputs != (of_pixels ? s.c : s.c * s.pixels()) || outputs < 1)
    call.contradict(
        fmt::format("a matrix of {}x{} on {}", inputs, outputs, fmt::join(call.dims(x), "x")));
  if (!of_pixels && x.form != Form::flat && s.pixels() > 1)
    throw Lacking{"over the last axis of an image"};
  const NodeId id =
      of_pixels
          ? call.add(Conv{.filters = outputs, .bias = p.bias.has_value(), .matrix = true}, {x.id})
          : call.add(Linear{outputs}, {x.id});
  const std::string& name = call.name_of_layer(id);
  call.source({.parameter = name + ".weight",
               .shape = {outputs, inputs},
               .from = p.weight,
               .factor = weight_factor});
  if (p.bias)
    call.source(
        {.parameter = name + ".bias", .shape = {outputs}, .from = *p.bias, .factor = bias_factor});
  else if (!of_pixels)
    call.source({.parameter = name + ".bias", .shape = {outputs}});
  if (p.last != &call.node) call.absorb(*p.last);
  call.put(p.last->output(0), {.id = id,
                               .form = of_pixels ? Form::channels_last : Form::plain,
                               .rank = of_pixels ? x.rank : 2});
}

Constant as_transposed(Constant c) {
  std::swap(c.dims[0], c.dims[1]);
  c.order = c.order.empty() ? std::vector<std::size_t>{1, 0}
                            : std::vector<std::size_t>{c.order[1], c.order[0]};
  return c;
}

void gemm(Call& call) {
  const NetValue& x = call.value(0);
  const Constant& b = call.weight(1, "matrix");
  if (integer(call.node, "transA", 0) != 0) throw Lacking{"with transA"};
  if (b.dims.size() != 2 || x.rank != 2)
    call.contradict(fmt::format("a matrix of {} dimensions: expected 2", b.dims.size()));
  Product p{integer(call.node, "transB", 0) != 0 ? b : as_transposed(b), {}, &call.node};
  if (call.has(2)) {
    p.bias = call.weight(2, "bias");
    if (p.bias->elements() != 1 &&
        (p.bias->elements() != p.weight.dims[0] || p.bias->dims.back() != p.weight.dims[0]))
      throw Lacking{"with another bias for each image"};
  }
  add_product(call, x, p, real(call.node, "alpha", 1), real(call.node, "beta", 1));
}

void matmul(Call& call) {
  const NetValue& x = call.value(0);
  const Constant& b = call.weight(1, "matrix");
  if (b.dims.size() != 2) throw Lacking{"with another matrix for each image"};
  if (x.rank > 2 && x.form != Form::channels_last) throw Lacking{"over the last axis of an image"};
  Product p{as_transposed(b), {}, &call.node};
  const Node* const next = call.only_reader(call.node.output(0));
  if (next && next->op_type() == "Add" && next->input_size() == 2 && next->output_size() == 1) {
    const Call after = call.at(*next);
    const int other = next->input(0) == call.node.output(0) ? 1 : 0;
    if (const Constant* const bias = after.find_constant(other);
        bias && bias->elements() == p.weight.dims[0] && !bias->dims.empty() &&
        bias->dims.back() == p.weight.dims[0]) {
      p.bias = *bias;
      p.last = next;
    }
  }
  add_product(call, x, p, 1, 1);
}

// ---- Normalisation, and arithmetic with a constant ----

NetValue add_batch_norm(Call& call, const NetValue& x, double epsilon, const Source& scale,
                        const Source& shift, const Source& mean, const Source& variance) {
  const std::int64_t channels = call.shape(x).c;
  const NodeId id = call.add(BatchNorm{.epsilon = epsilon}, {x.id});
  const std::string& name = call.name_of_layer(id);
  for (auto [suffix, source] : {std::pair{".weight", scale},
                                {".bias", shift},
                                {".running_mean", mean},
                                {".running_var", variance}}) {
    source.parameter = name + suffix;
    source.shape = {channels};
    if (source.from && source.from->elements() != channels && source.from->elements() != 1)
      call.contradict(fmt::format("{} values for {} channels", source.from->elements(), channels));
    call.source(std::move(source));
  }
  NetValue y = x;
  y.id = id;
  return y;
}

Source from(const Constant& c) { return {.parameter = "", .shape = {}, .from = c}; }
Source everywhere(double value) { return {.parameter = "", .shape = {}, .value = value}; }

void batch_norm(Call& call) {
  const NetValue& x = call.value(0);
  if (x.form != Form::plain && (x.form != Form::flat || call.shape(x).pixels() > 1))
    throw Lacking{"of an image in another order"};
  if (integer(call.node, "training_mode", 0) != 0) {
    // An export that keeps the training's graph.
    call.note(fmt::format("{} is in training mode: here it takes its statistics, not the batch's",
                          describe(call.node)));
    for (int i = 1; i < call.node.output_size(); ++i)
      if (call.is_read(call.node.output(i))) throw Lacking{"whose statistics are read"};
  }
  call.put(add_batch_norm(call, x, real(call.node, "epsilon", 1e-5), from(call.weight(1, "scale")),
                          from(call.weight(2, "shift")), from(call.weight(3, "mean")),
                          from(call.weight(4, "variance"))));
}

void layer_norm(Call& call) {
  const NetValue& x = call.value(0);
  const std::int64_t axis = integer(call.node, "axis", -1);
  const bool last = axis == -1 || axis == std::int64_t(x.rank) - 1;
  const bool of_channels =
      x.form == Form::channels_last || (x.rank == 2 && call.shape(x).pixels() == 1);
  if (!last || !of_channels) throw Lacking{"over more than the channels"};
  const Constant& scale = call.weight(1, "scale");
  const std::int64_t channels = call.shape(x).c;
  if (scale.elements() != channels)
    call.contradict(fmt::format("{} values for {} channels", scale.elements(), channels));
  const NodeId id = call.add(LayerNorm{.epsilon = real(call.node, "epsilon", 1e-5)}, {x.id});
  const std::string& name = call.name_of_layer(id);
  call.source({.parameter = name + ".weight", .shape = {channels}, .from = scale});
  Source shift{.parameter = name + ".bias", .shape = {channels}};
  if (call.has(2)) shift.from = call.weight(2, "shift");
  call.source(std::move(shift));
  NetValue y = x;
  y.id = id;
  call.put(std::move(y));
}

void add_group_norm(Call& call, const NetValue& x, std::int64_t groups) {
  const std::int64_t channels = call.shape(x).c;
  if (groups < 1 || channels % groups != 0)
    call.contradict(fmt::format("{} channels in {} groups", channels, groups));
  const Constant &scale = call.weight(1, "scale"), &shift = call.weight(2, "shift");
  NetValue y = x;
  y.id = call.add(GroupNorm{groups, real(call.node, "epsilon", 1e-5)}, {x.id});
  Source weight{.parameter = call.name_of_layer(y.id) + ".weight", .shape = {channels}, .value = 1},
      bias{.parameter = call.name_of_layer(y.id) + ".bias", .shape = {channels}};
  if (x.form != Form::grouped) {
    if (scale.elements() != channels || shift.elements() != channels)
      throw Lacking{"with a scale that is not one a channel"};
    weight.from = scale, bias.from = shift;
  } else {
    // One a group, which exporters leave to the channels behind.
    const auto is_all = [&](const Constant& c, double value) {
      const std::vector<double> elements = call.elements(c);
      return std::all_of(elements.begin(), elements.end(), [&](double v) { return v == value; });
    };
    if (!is_all(scale, 1) || !is_all(shift, 0))
      throw Lacking{"with a scale that is not one a channel"};
  }
  call.source(std::move(weight));
  call.source(std::move(bias));
  call.put(std::move(y));
}

void instance_norm(Call& call) {
  const NetValue& x = call.value(0);
  if (x.form == Form::grouped) return add_group_norm(call, x, x.groups);
  if (x.form != Form::plain || x.rank < 3) throw Lacking{"of an image in another order"};
  add_group_norm(call, x, call.shape(x).c);
}

void group_norm(Call& call) {
  add_group_norm(call, call.image(0), integer(call.node, "num_groups", 1));
}

void lrn(Call& call) {
  const NetValue& x = call.image(0);
  const std::int64_t size = integer(call.node, "size", 1);
  if (size % 2 == 0) throw Lacking{"over an even number of channels"};
  elementwise(call, x,
              LocalResponseNorm{.size = size,
                                .alpha = real(call.node, "alpha", 1e-4) / double(size),
                                .beta = real(call.node, "beta", 0.75),
                                .k = real(call.node, "bias", 1)});
}

// x times a constant, or divided by it.
void scale_channels(Call& call, const NetValue& x, const Constant& c, bool inverted) {
  const NodeId id = call.add(ChannelScale{}, {x.id});
  call.source({.parameter = call.name_of_layer(id),
               .shape = {call.shape(x).c, 1, 1},
               .from = c,
               .inverted = inverted});
  NetValue y = x;
  y.id = id;
  call.put(std::move(y));
}

// x plus a constant: batch norm without its statistics, which folds into a convolution before it.
void shift_channels(Call& call, const NetValue& x, const Constant& c, double factor) {
  Source shift = from(c);
  shift.factor = factor;
  call.put(add_batch_norm(call, x, 0, everywhere(1), shift, everywhere(0), everywhere(1)));
}

// The value and the constant of a node with one of each, if there are, in this order.
struct WithConstant {
  const NetValue* x = nullptr;
  const Constant* c = nullptr;
  bool value_first = true;
};
WithConstant with_constant(const Call& call) {
  if (call.node.input_size() != 2) return {};
  for (const int i : {0, 1})
    if (const Constant* const c = call.find_constant(i); c && call.find_value(1 - i)) {
      const NetValue& x = call.value(1 - i);
      if (!is_per_channel(call, x, *c)) throw Lacking{"of a constant that is not one a channel"};
      return {&x, &call.weight(i, "constant"), i == 1};
    }
  return {};
}

// Whether the channels of a pixel stand in the net's order.
bool in_one_order(const NetValue& v) { return v.form != Form::apart && v.form != Form::shuffled; }

void add_values(Call& call) {
  if (const auto [x, c, first] = with_constant(call); x) return shift_channels(call, *x, *c, 1);
  std::vector<NodeId> terms;
  const NetValue& one = call.value(0);
  for (int i = 0; i < call.node.input_size(); ++i) {
    const NetValue& term = call.value(i);
    if (call.dims(term) != call.dims(one)) throw Lacking{"of values of several sizes"};
    const bool alike = call.shape(term) == call.shape(one) &&
                       (term.form == one.form ||
                        (in_one_order(term) && in_one_order(one) && call.shape(one).pixels() == 1));
    if (!alike) throw Lacking{"of images in different orders"};
    terms.push_back(term.id);
  }
  NetValue y = one;
  if (terms.size() > 1) y.id = call.add(Add{}, std::move(terms));
  call.put(std::move(y));
}

void subtract(Call& call) {
  const auto [x, c, first] = with_constant(call);
  if (!x || !first) throw Lacking{"of anything but a constant from a value"};
  shift_channels(call, *x, *c, -1);
}

void divide(Call& call) {
  const auto [x, c, first] = with_constant(call);
  if (!x || !first) throw Lacking{"of anything but a value by a constant"};
  scale_channels(call, *x, *c, true);
}

void multiply(Call& call) {
  if (const auto [x, c, first] = with_constant(call); x) return scale_channels(call, *x, *c, false);
  const NetValue *x = &call.value(0), *gate = &call.value(1);
  if (call.shape(*gate).pixels() > 1) std::swap(x, gate);
  const Shape &image = call.shape(*x), &factors = call.shape(*gate);
  const bool goes = factors == Shape{image.n, image.c, 1, 1} && x->rank == gate->rank &&
                    (x->form == gate->form || x->rank == 2);
  if (!goes) throw Lacking{"of two images"};
  NetValue y = *x;
  y.id = call.add(Gate{}, {x->id, gate->id});
  call.put(std::move(y));
}

}  // namespace

NetValue affine(Call& call, const NetValue& x, double factor, double shift) {
  return add_batch_norm(call, x, 0, everywhere(factor), everywhere(shift), everywhere(0),
                        everywhere(1));
}

Window window_with_padding(const Call& call, const NetValue& x, const Dims& kernel) {
  const Dims image = call.image_dims(x);
  Dims padded = image;
  for (std::size_t i = 0; i < x.pad_begin.size(); ++i) padded[i] += x.pad_begin[i] + x.pad_end[i];
  Window w = window_of(call.node, padded, kernel);
  for (std::size_t i = 0; i < x.pad_begin.size(); ++i) {
    w.pad_begin[i] += x.pad_begin[i];
    w.pad_end[i] += x.pad_end[i];
  }
  // Less than nothing behind the image is nothing where no window reaches it.
  const Dims out = output_of(w, image);
  for (std::int64_t& pad : w.pad_end) pad = std::max<std::int64_t>(pad, 0);
  const bool in_front =
      std::any_of(w.pad_begin.begin(), w.pad_begin.end(), [](std::int64_t pad) { return pad < 0; });
  if (in_front || output_of(w, image) != out) throw Lacking{"with padding of less than nothing"};
  return w;
}

void elementwise(Call& call, const NetValue& x, Layer layer) {
  NetValue y = x;
  y.id = call.add(std::move(layer), {x.id});
  call.put(std::move(y));
}

bool is_per_channel(const Call& call, const NetValue& x, const Constant& c) {
  if (c.elements() == 1) return c.dims.size() <= x.rank;
  if (c.dims.size() > x.rank || x.form == Form::apart || x.form == Form::shuffled) return false;
  if (x.form == Form::flat && call.shape(x).pixels() > 1) return false;
  for (std::size_t i = 0; i < c.dims.size(); ++i) {
    const bool of_channels = x.rank - c.dims.size() + i == call.channel_axis(x);
    if (c.dims[i] != (of_channels ? call.shape(x).c : 1)) return false;
  }
  return true;
}

void add_layer_rules(Rules& rules) {
  const Rules mine{{"Conv", convolution},
                   {"ConvTranspose", transposed_convolution},
                   {"Gemm", gemm},
                   {"MatMul", matmul},
                   {"BatchNormalization", batch_norm},
                   {"LayerNormalization", layer_norm},
                   {"InstanceNormalization", instance_norm},
                   {"GroupNormalization", group_norm},
                   {"LRN", lrn},
                   {"Add", add_values},
                   {"Sum", add_values},
                   {"Sub", subtract},
                   {"Mul", multiply},
                   {"Div", divide}};
  rules.insert(mine.begin(), mine.end());
}

}  // namespace convlab::nets::onnx_reader
