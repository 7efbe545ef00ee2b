#include "nets/run/conv_weights.h"

#include <cmath>

namespace convlab::nets {

ConvWeights::ConvWeights(const OpContext& context, NodeId convolution,
                         std::optional<NodeId> batch_norm)
    : context_(context), batch_norm_(batch_norm) {
  const Node& node = context.graph.nodes()[convolution];
  const std::int64_t filters = node.shape.c;
  Parameters& parameters = context.parameters;
  weight_ = parameters.add(node.name + ".weight", context.graph.filter_shape(node),
                           initial_weights(context.graph, convolution));
  own_bias_ = std::get<Conv>(node.layer).bias;
  if (own_bias_) bias_ = parameters.add(node.name + ".bias", {filters}, {});
  if (!batch_norm) return;
  const std::string& name = context.graph.nodes()[*batch_norm].name;
  norm_ = parameters.add(name + ".weight", {filters}, {Initial::Kind::one});
  parameters.add(name + ".bias", {filters}, {});
  parameters.add(name + ".running_mean", {filters}, {}, false);
  parameters.add(name + ".running_var", {filters}, {Initial::Kind::one}, false);
}

std::vector<std::size_t> ConvWeights::indices_of_rest() const {
  std::vector<std::size_t> indices;
  if (own_bias_) indices.push_back(bias_);
  if (folds())
    for (std::size_t i = 0; i < 4; ++i) indices.push_back(norm_ + i);
  return indices;
}

void ConvWeights::fold(std::byte* filter, std::byte* biases, Stream& stream) const {
  if (arithmetic_type(context_.dtype) == DType::f64)
    fold_as<double>(filter, biases, stream);
  else
    fold_as<float>(filter, biases, stream);
}

// Processes the filter in pieces, so that the host need not hold all of it.
template <class T>
void ConvWeights::fold_as(std::byte* filter, std::byte* biases, Stream& stream) const {
  Device& device = context_.device;
  const auto values = [&](std::size_t i) {
    const Parameter& parameter = context_.parameters[i];
    std::vector<T> host(static_cast<std::size_t>(parameter.count));
    device.copy_to_host(std::as_writable_bytes(std::span(host)), parameter.value, stream);
    return host;
  };
  std::vector<T> shift = values(norm_ + 1);
  const std::vector<T> scale = values(norm_), mean = values(norm_ + 2),
                       variance = values(norm_ + 3);
  const std::vector<T> bias = own_bias_ ? values(bias_) : std::vector<T>(scale.size(), T(0));
  const double epsilon = std::get<BatchNorm>(context_.graph.nodes()[*batch_norm_].layer).epsilon;
  const std::size_t filter_size = std::size_t(weight().count) / scale.size();
  std::vector<T> piece(std::max<std::size_t>(1, (1 << 16) / filter_size) * filter_size);
  for (std::size_t k = 0, i = 0; k < scale.size(); ++k) {
    if (i == piece.size()) i = 0;
    if (i == 0) {
      piece.resize(std::min(piece.size(), (scale.size() - k) * filter_size));
      device.copy_to_host(std::as_writable_bytes(std::span(piece)),
                          weight().value + k * filter_size * sizeof(T), stream);
    }
    const double factor = double(scale[k]) / std::sqrt(double(variance[k]) + epsilon);
    shift[k] = T((double(bias[k]) - double(mean[k])) * factor + double(shift[k]));
    for (const std::size_t end = i + filter_size; i < end; ++i)
      piece[i] = T(double(piece[i]) * factor);
    if (i < piece.size()) continue;
    device.copy_to_device(filter, std::as_bytes(std::span(piece)), stream);
    stream.synchronize();
    filter += piece.size() * sizeof(T);
  }
  device.copy_to_device(biases, std::as_bytes(std::span(shift)), stream);
  stream.synchronize();
}

}  // namespace convlab::nets
