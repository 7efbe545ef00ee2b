#include "graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arrays.h"
#include "conv/error.h"

namespace convlab::python {
namespace {

constexpr std::int64_t largest = (std::int64_t{1} << 31) - 1;

[[noreturn]] void fail(const std::string& layer, const std::string& what) {
  throw InputError(fmt::format("layer {}: {}", layer, what));
}

bool keeps_form(const nets::Layer& layer) {
  return std::holds_alternative<nets::Activation>(layer) ||
         std::holds_alternative<nets::Dropout>(layer) ||
         std::holds_alternative<nets::BatchNorm>(layer) ||
         std::holds_alternative<LayerActivation>(layer) ||
         std::holds_alternative<nets::PRelu>(layer) ||
         std::holds_alternative<nets::LayerNorm>(layer) ||
         std::holds_alternative<nets::Add>(layer) || std::holds_alternative<nets::Concat>(layer);
}

}  // namespace

GraphBuilder::GraphBuilder(const std::string& name, const Sizes& shape)
    : graph_(name), dims_(shape.size() == 5 ? 3 : 2) {
  bool sound = shape.size() == 4 || shape.size() == 5;
  for (const std::int64_t size : shape) sound = sound && size >= 1 && size <= largest;
  if (!sound)
    throw InputError(
        fmt::format("the input's shape is {}: expected sizes from 1 to {}, N C H W or N C D H W",
                    shown(shape), largest));
  const std::size_t last = shape.size() - 1;
  const std::int64_t depth = shape.size() == 5 ? shape[2] : 1;
  add("input", nets::Input{{shape[0], shape[1], shape[last - 1], shape[last], depth}}, {});
}

std::vector<nets::NodeId> GraphBuilder::ids(const Sizes& nodes, const std::string& of) const {
  std::vector<nets::NodeId> ids;
  for (const std::int64_t node : nodes) {
    if (node < 0 || node >= std::int64_t(flat_.size()))
      fail(of, fmt::format("reads node {}: expected 0 to {}", node, flat_.size() - 1));
    ids.push_back(nets::NodeId(node));
  }
  return ids;
}

std::int64_t GraphBuilder::add(const std::string& name, nets::Layer layer, const Sizes& inputs) {
  const std::vector<nets::NodeId> from = ids(inputs, name);
  const bool flat = std::holds_alternative<nets::Linear>(layer) ||
                    (keeps_form(layer) && !from.empty() && flat_[from.front()]);
  const nets::NodeId id = graph_.add(name, std::move(layer), from);
  flat_.push_back(flat);
  return std::int64_t(id);
}

GraphBuilder::Axes GraphBuilder::axes(const Sizes& sizes, std::int64_t otherwise, const char* what,
                                      const std::string& layer) const {
  if (sizes.size() != 1 && sizes.size() != dims_)
    fail(layer, fmt::format("{} is {}: expected one number, or {}", what, shown(sizes), dims_));
  for (const std::int64_t size : sizes)
    if (size < 0 || size > largest)
      fail(layer,
           fmt::format("{} is {}: expected numbers from 0 to {}", what, shown(sizes), largest));
  const auto at = [&](std::size_t axis) { return sizes.size() == 1 ? sizes[0] : sizes[axis]; };
  return {dims_ == 3 ? at(0) : otherwise, at(dims_ - 2), at(dims_ - 1)};
}

template <class L>
L GraphBuilder::window(L conv, const Sizes& kernel, const Sizes& stride, const Sizes& pad,
                       const Sizes& dilation, const std::string& layer) const {
  const Axes k = axes(kernel, 1, "kernel", layer), s = axes(stride, 1, "stride", layer),
             p = axes(pad, 0, "pad", layer), d = axes(dilation, 1, "dilation", layer);
  conv.kernel = {k.h, k.w};
  conv.stride = {s.h, s.w};
  conv.pad = {p.h, p.w};
  conv.dilation = {d.h, d.w};
  if (dims_ == 3) conv.depth = nets::DepthWindow{k.d, s.d, p.d, d.d};
  return conv;
}

std::int64_t GraphBuilder::conv(std::int64_t x, const std::string& name, std::int64_t filters,
                                const Sizes& kernel, const Sizes& stride, const Sizes& pad,
                                const Sizes& dilation, std::int64_t groups, bool bias, bool matrix,
                                const Sizes& pad_end) {
  nets::Conv layer{.filters = filters, .groups = groups, .bias = bias, .matrix = matrix};
  layer = window(layer, kernel, stride, pad, dilation, name);
  if (!pad_end.empty()) {
    const Axes end = axes(pad_end, 0, "pad_end", name);
    layer.pad_end = {end.h, end.w};
    if (layer.depth) layer.depth->pad_end = end.d;
  }
  return add(name, layer, {x});
}

std::int64_t GraphBuilder::conv_transpose(std::int64_t x, const std::string& name,
                                          std::int64_t filters, const Sizes& kernel,
                                          const Sizes& stride, const Sizes& pad,
                                          const Sizes& output_pad, const Sizes& dilation,
                                          std::int64_t groups, bool bias) {
  nets::ConvTranspose layer{.filters = filters, .groups = groups, .bias = bias};
  layer = window(layer, kernel, stride, pad, dilation, name);
  const Axes more = axes(output_pad, 0, "output_pad", name);
  layer.output_pad = {more.h, more.w};
  if (layer.depth) layer.depth->output_pad = more.d;
  return add(name, layer, {x});
}

std::int64_t GraphBuilder::linear(std::int64_t x, const std::string& name, std::int64_t outputs,
                                  bool bias) {
  const std::int64_t id = add(name, nets::Linear{outputs}, {x});
  if (!bias) absent_.insert(name + ".bias");
  return id;
}

std::int64_t GraphBuilder::pool(std::int64_t x, const std::string& name, const std::string& kind,
                                const Sizes& kernel, const Sizes& stride, const Sizes& pad,
                                bool ceil_mode, bool count_padding) {
  const Axes k = axes(kernel, 1, "kernel", name), s = axes(stride, 1, "stride", name),
             p = axes(pad, 0, "pad", name);
  nets::Pool layer{.kind = kind == "max" ? nets::Pool::Kind::max : nets::Pool::Kind::average,
                   .kernel = {k.h, k.w},
                   .stride = {s.h, s.w},
                   .pad = {p.h, p.w},
                   .ceil_mode = ceil_mode,
                   .count_padding = count_padding};
  if (dims_ == 3) layer.depth = {k.d, s.d, p.d};
  return add(name, layer, {x});
}

std::int64_t GraphBuilder::activation(std::int64_t x, const std::string& name,
                                      const std::string& kind, std::optional<double> a,
                                      std::optional<double> b) {
  std::vector<std::string_view> known;
  for (const ActivationKind k : all_activations) {
    if (to_string(k) == kind) {
      if (a || b) fail(name, fmt::format("activation '{}' has no numbers", kind));
      return add(name, nets::Activation{k}, {x});
    }
    known.push_back(to_string(k));
  }
  using Kind = LayerActivation::Kind;
  for (const Kind k : {Kind::leaky_relu, Kind::elu, Kind::clip, Kind::softplus, Kind::mish}) {
    if (to_string(k) == kind)
      return add(name, LayerActivation{.kind = k, .a = a.value_or(0), .b = b.value_or(0)}, {x});
    known.push_back(to_string(k));
  }
  fail(name, fmt::format("activation '{}': expected one of {}", kind, fmt::join(known, ", ")));
}

std::int64_t GraphBuilder::resize(std::int64_t x, const std::string& name, const std::string& kind,
                                  std::int64_t h, std::int64_t w) {
  if (kind != "nearest" && kind != "bilinear")
    fail(name, fmt::format("resizing by '{}': expected nearest or bilinear", kind));
  return add(name,
             nets::Resize{kind == "nearest" ? ResizeKind::nearest : ResizeKind::bilinear, h, w},
             {x});
}

Sizes GraphBuilder::shape(std::int64_t node) const {
  const nets::NodeId id = ids({node}, "shape").front();
  const nets::Shape& s = graph_.nodes()[id].shape;
  if (flat_[id]) return {s.n, s.c};
  if (dims_ == 3) return {s.n, s.c, s.d, s.h, s.w};
  return {s.n, s.c, s.h, s.w};
}

}  // namespace convlab::python
