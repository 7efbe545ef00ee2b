// Rules of the operators that pool, and of those that reduce whole images.
#include <fmt/format.h>

#include <algorithm>

#include "nets/onnx/attributes.h"
#include "nets/onnx/translation.h"

namespace convlab::nets::onnx_reader {
namespace {

bool all(const Dims& sizes, std::int64_t v) {
  return std::all_of(sizes.begin(), sizes.end(), [v](auto s) { return s == v; });
}

// An index of a maximum has one byte.
void expect_small(const Axes& kernel) {
  constexpr std::int64_t most = 256;
  if (kernel.d > most || kernel.h > most || kernel.w > most ||
      kernel.d * kernel.h * kernel.w > most)
    throw Lacking{"with a window of more than 256 elements"};
}

// Whether no element can be below zero, so that zeros around an image change no maximum.
bool is_rectified(const Graph& graph, NodeId id) {
  const nets::Node& node = graph.nodes()[id];
  if (const auto* const activation = std::get_if<Activation>(&node.layer))
    return activation->kind == ActivationKind::relu || activation->kind == ActivationKind::relu6 ||
           activation->kind == ActivationKind::sigmoid ||
           activation->kind == ActivationKind::hardsigmoid;
  if (const auto* const clip = std::get_if<LayerActivation>(&node.layer))
    return clip->kind == LayerActivation::Kind::clip && clip->a >= 0;
  return false;
}

// ONNX says that auto_pad pads by less than nothing where windows leave elements out, and ONNX
// Runtime does so for averages: the first window would begin inside of the image.
void expect_windows_to_meet(const Call& call, const NetValue& x, const Window& w) {
  if (!text(call.node, "auto_pad").starts_with("SAME")) return;
  const Dims image = call.image_dims(x), out = output_of(w, image);
  for (std::size_t i = 0; i < image.size(); ++i)
    if ((out[i] - 1) * w.stride[i] + w.kernel[i] < image[i] + w.pad_begin[i] + w.pad_end[i])
      throw Lacking{"with auto_pad and windows that leave elements out"};
}

void pool(Call& call, Pool::Kind kind) {
  const NetValue& x = call.image(0);
  for (int i = 1; i < call.node.output_size(); ++i)
    if (call.is_read(call.node.output(i))) throw Lacking{"whose indices are read"};
  const bool mean = kind == Pool::Kind::average;
  const Dims image = call.image_dims(x);
  const Window w = window_with_padding(call, x, integers(call.node, "kernel_shape"));
  expect_windows_to_meet(call, x, w);
  if (!all(w.dilation, 1)) throw Lacking{"with dilation"};
  const bool is_padded = !all(w.pad_begin, 0) || !all(w.pad_end, 0);
  if (all(w.kernel, 1) && all(w.stride, 1) && !is_padded) return call.put(x);
  const Dims out = output_of(w, image, integer(call.node, "ceil_mode", 0) != 0);
  if (mean && w.kernel == image && !is_padded && all(out, 1))
    return elementwise(call, x, GlobalAvgPool{});
  const Axes kernel(w.kernel, 1), stride(w.stride, 1), pad(w.pad_begin, 0), pad_end(w.pad_end, 0);
  if (!mean) expect_small(kernel);
  for (std::size_t i = 0; i < w.kernel.size(); ++i)
    if (std::max(w.pad_begin[i], w.pad_end[i]) >= w.kernel[i])
      throw Lacking{"with windows in the padding alone"};
  Pool layer{.kind = kind,
             .kernel = kernel.plane(),
             .stride = stride.plane(),
             .pad = pad.plane(),
             .ceil_mode = integer(call.node, "ceil_mode", 0) != 0,
             .count_padding = integer(call.node, "count_include_pad", 0) != 0,
             .pad_end = pad_end.plane()};
  if (x.rank == 5)
    layer.depth = {.kernel = kernel.d, .stride = stride.d, .pad = pad.d, .pad_end = pad_end.d};
  // A Pad's zeros are elements like others.
  if (!x.pad_begin.empty()) {
    if (layer.ceil_mode) throw Lacking{"of a padded image, with ceil_mode"};
    if (!mean && !is_rectified(call.graph(), x.id)) throw Lacking{"of a padded image"};
    const bool adds_none = w.pad_begin == x.pad_begin && w.pad_end == x.pad_end;
    if (mean && !adds_none && !layer.count_padding) throw Lacking{"of a padded image"};
    if (mean) layer.count_padding = true;
  }
  NetValue y{.id = call.add(layer, {x.id}), .rank = x.rank};
  call.put(std::move(y));
}

void max_pool(Call& call) { pool(call, Pool::Kind::max); }
void average_pool(Call& call) { pool(call, Pool::Kind::average); }
void global_average_pool(Call& call) { elementwise(call, call.image(0), GlobalAvgPool{}); }

Pool whole_maximum(const Shape& image) {
  const Axes kernel({image.d, image.h, image.w}, 1);
  expect_small(kernel);
  return {.kind = Pool::Kind::max,
          .kernel = kernel.plane(),
          .stride = 1,
          .depth = {.kernel = kernel.d}};
}

void global_max_pool(Call& call) {
  const NetValue& x = call.image(0);
  elementwise(call, x, whole_maximum(call.shape(x)));
}

// Of all pixels of an image.
void reduce(Call& call, const Layer& layer) {
  const NetValue& x = call.value(0);
  const auto rank = std::int64_t(x.rank);
  std::vector<bool> gone(x.rank, false);
  for (const std::int64_t axis : call.sizes("axes", 1)) {
    if (axis < -rank || axis >= rank) call.contradict(fmt::format("axis {} of {}", axis, rank));
    gone[std::size_t(axis < 0 ? axis + rank : axis)] = true;
  }
  for (std::size_t i = 0; i < gone.size(); ++i)
    if (gone[i] != (i != 0 && i != call.channel_axis(x)))
      throw Lacking{"over other axes than those of the image"};
  if ((x.form != Form::plain && x.form != Form::channels_last) || x.rank < 3)
    throw Lacking{"over other axes than those of the image"};
  NetValue y = x;
  y.id = call.add(layer, {x.id});
  if (integer(call.node, "keepdims", 1) == 0) y = {.id = y.id, .rank = 2};
  call.put(std::move(y));
}

void reduce_mean(Call& call) { reduce(call, GlobalAvgPool{}); }
void reduce_max(Call& call) { reduce(call, whole_maximum(call.shape(call.value(0)))); }

}  // namespace

void add_pooling_rules(Rules& rules) {
  const Rules mine{{"MaxPool", max_pool},
                   {"AveragePool", average_pool},
                   {"GlobalAveragePool", global_average_pool},
                   {"GlobalMaxPool", global_max_pool},
                   {"ReduceMean", reduce_mean},
                   {"ReduceMax", reduce_max}};
  rules.insert(mine.begin(), mine.end());
}

}  // namespace convlab::nets::onnx_reader
