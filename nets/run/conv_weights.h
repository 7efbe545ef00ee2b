// A convolution's parameters, and in inference those of the batch norm that is folded into them:
//   scale * (conv(x, w) + b - mean) / sqrt(variance + epsilon) + shift
//     = conv(x, w * f) + (b - mean) * f + shift,  f = scale / sqrt(variance + epsilon)
#pragma once

#include <optional>
#include <vector>

#include "nets/run/op.h"

namespace convlab::nets {

class ConvWeights {
 public:
  // Adds them to the context's parameters. The context outlives this.
  ConvWeights(const OpContext&, NodeId convolution, std::optional<NodeId> batch_norm);

  bool folds() const { return batch_norm_.has_value(); }
  bool has_bias() const { return own_bias_ || folds(); }
  const Parameter& weight() const { return context_.parameters[weight_]; }
  const Parameter* own_bias() const { return own_bias_ ? &context_.parameters[bias_] : nullptr; }
  std::size_t weight_index() const { return weight_; }
  // Without the filter.
  std::vector<std::size_t> indices_of_rest() const;

  // Writes the folded filter (KCRS) and the folded biases to the device, in the type of parameters,
  // and waits.
  void fold(std::byte* filter, std::byte* biases, Stream&) const;

 private:
  template <class T>
  void fold_as(std::byte* filter, std::byte* biases, Stream&) const;

  const OpContext& context_;
  std::optional<NodeId> batch_norm_;
  bool own_bias_ = false;
  std::size_t weight_ = 0, bias_ = 0;
  std::size_t norm_ = 0;  // index of the first of a folded batch norm's four parameters
};

}  // namespace convlab::nets
