// Building a graph as a paper writes it: a Tensor is the output of a node, and each layer applied
// to it appends a node and gives the next Tensor.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "conv/error.h"
#include "nets/graph.h"

namespace convlab::nets {

// A plain handle; the graph must outlive it and must not move. Names are the nodes', unique in a
// graph. Throws InputError as Graph::add does.
class Tensor {
 public:
  Tensor(Graph& graph, NodeId id) : graph_(&graph), id_(id) {}

  Tensor apply(std::string name, Layer layer) const {
    return {*graph_, graph_->add(std::move(name), std::move(layer), {id_})};
  }
  Tensor conv(std::string name, Conv layer) const { return apply(std::move(name), layer); }
  Tensor conv_transpose(std::string name, ConvTranspose layer) const {
    return apply(std::move(name), layer);
  }
  Tensor linear(std::string name, std::int64_t outputs) const {
    return apply(std::move(name), Linear{outputs});
  }
  Tensor max_pool(std::string name, std::int64_t kernel, std::int64_t stride, std::int64_t pad = 0,
                  bool ceil_mode = false) const {
    return apply(std::move(name), Pool{Pool::Kind::max, kernel, stride, pad, ceil_mode});
  }
  Tensor avg_pool(std::string name, std::int64_t kernel, std::int64_t stride,
                  std::int64_t pad = 0) const {
    return apply(std::move(name), Pool{Pool::Kind::average, kernel, stride, pad});
  }
  // The same window along the depth too.
  Tensor max_pool_3d(std::string name, std::int64_t kernel, std::int64_t stride,
                     std::int64_t pad = 0) const {
    return apply(
        std::move(name),
        Pool{.kernel = kernel, .stride = stride, .pad = pad, .depth = {kernel, stride, pad}});
  }
  Tensor global_avg_pool(std::string name) const { return apply(std::move(name), GlobalAvgPool{}); }
  Tensor batch_norm(std::string name, double epsilon = 1e-5, double momentum = 0.1) const {
    return apply(std::move(name), BatchNorm{epsilon, momentum});
  }
  Tensor lrn(std::string name, LocalResponseNorm layer = {}) const {
    return apply(std::move(name), layer);
  }
  Tensor activation(std::string name, ActivationKind kind) const {
    return apply(std::move(name), Activation{kind});
  }
  Tensor relu(std::string name) const { return activation(std::move(name), ActivationKind::relu); }
  Tensor tanh(std::string name) const { return activation(std::move(name), ActivationKind::tanh); }
  Tensor dropout(std::string name, double p = 0.5) const {
    return apply(std::move(name), Dropout{p});
  }
  Tensor stochastic_depth(std::string name, double p) const {
    return apply(std::move(name), Dropout{p, true});
  }
  Tensor layer_norm(std::string name, double epsilon = 1e-6) const {
    return apply(std::move(name), LayerNorm{epsilon});
  }
  Tensor scaled(std::string name, double initial) const {
    return apply(std::move(name), ChannelScale{initial});
  }
  Tensor slice(std::string name, std::int64_t first, std::int64_t channels) const {
    return apply(std::move(name), Slice{first, channels});
  }
  Tensor shuffled(std::string name, std::int64_t groups) const {
    return apply(std::move(name), ChannelShuffle{groups});
  }
  Tensor resized(std::string name, ResizeKind kind, std::int64_t h, std::int64_t w) const {
    return apply(std::move(name), Resize{kind, h, w});
  }
  Tensor recurrent(std::string name, Recurrent layer) const {
    return apply(std::move(name), layer);
  }
  Tensor pad_channels(std::string name, std::int64_t channels) const {
    return apply(std::move(name), PadChannels{channels});
  }

  // By value: adding a layer may move the nodes.
  Shape shape() const {
    if (id_ >= graph_->nodes().size())
      throw InputError(fmt::format("net {}: there is no node {}", graph_->name(), id_));
    return graph_->nodes()[id_].shape;
  }

  Graph& graph() const { return *graph_; }
  NodeId id() const { return id_; }

 private:
  Graph* graph_;
  NodeId id_;
};

// The graph's input, named "input".
inline Tensor input(Graph& graph, Shape shape) {
  return {graph, graph.add("input", Input{shape}, {})};
}

// Applies a layer with several inputs from one graph. Throws InputError for no inputs or inputs of
// different graphs.
inline Tensor join(std::string name, Layer layer, const std::vector<Tensor>& parts) {
  if (parts.empty()) throw InputError(fmt::format("layer {}: has no inputs", name));
  Graph& graph = parts.front().graph();
  std::vector<NodeId> ids;
  for (const Tensor& part : parts) {
    if (&part.graph() != &graph)
      throw InputError(fmt::format("net {}, layer {}: an input is of another net, {}", graph.name(),
                                   name, part.graph().name()));
    ids.push_back(part.id());
  }
  return {graph, graph.add(std::move(name), std::move(layer), std::move(ids))};
}

// Elementwise; both have one shape.
inline Tensor add(std::string name, Tensor a, Tensor b) {
  return join(std::move(name), Add{}, {a, b});
}

// x times a gate of N C 1 1.
inline Tensor gated(std::string name, Tensor x, Tensor gate) {
  return join(std::move(name), Gate{}, {x, gate});
}

// Along the channels; all have one n, d, h and w.
inline Tensor concat(std::string name, const std::vector<Tensor>& parts) {
  return join(std::move(name), Concat{}, parts);
}

}  // namespace convlab::nets
