// Parts that several of torchvision's nets share, with the names of its modules.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "nets/tensor.h"

namespace convlab::nets {

// Conv2dNormActivation: NAME.0 is a convolution without bias, padded so that stride 1 keeps the
// size (for an odd kernel), NAME.1 batch norm, NAME.2 the activation, if there is one.
inline Tensor conv_norm(Tensor x, const std::string& name, Conv layer,
                        std::optional<ActivationKind> activation, BatchNorm norm = {}) {
  layer.bias = false;
  layer.pad = {(layer.kernel.h - 1) / 2, (layer.kernel.w - 1) / 2};
  x = x.conv(name + ".0", layer).batch_norm(name + ".1", norm.epsilon, norm.momentum);
  return activation ? x.activation(name + ".2", *activation) : x;
}

// SqueezeExcitation (Hu et al. 2018, arXiv:1709.01507): each channel of an image times a number
// from 0 to 1, which two fully connected layers compute from the channels' means.
inline Tensor squeeze_excitation(Tensor x, const std::string& name, std::int64_t squeezed,
                                 ActivationKind activation, ActivationKind gate) {
  const Tensor scale = x.global_avg_pool(name + ".avgpool")
                           .conv(name + ".fc1", {.filters = squeezed})
                           .activation(name + ".activation", activation)
                           .conv(name + ".fc2", {.filters = x.shape().c})
                           .activation(name + ".scale_activation", gate);
  return gated(name, x, scale);
}

// ResNet-50 without its scores, and dilated in place of the last two strides: an eighth of the
// image's size (replace_stride_with_dilation=[False, True, True]).
Tensor dilated_resnet50(Tensor x, const std::string& prefix);

// The nearest multiple of 8 that is at least 90% of the channels.
constexpr std::int64_t multiple_of_8(std::int64_t channels) {
  const std::int64_t nearest = std::max<std::int64_t>(8, (channels + 4) / 8 * 8);
  return 10 * nearest < 9 * channels ? nearest + 8 : nearest;
}

}  // namespace convlab::nets
