#include <fmt/format.h>

#include "nets/tensor.h"
#include "nets/zoo/parts.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

// A row of MobileNetV3's table.
struct Block {
  std::int64_t kernel, expanded, channels;
  bool squeeze;
  ActivationKind activation;
  std::int64_t stride;
};

constexpr BatchNorm norm_v3{.epsilon = 1e-3, .momentum = 0.01};

Tensor inverted_residual_v2(Tensor x, const std::string& name, std::int64_t expansion,
                            std::int64_t channels, std::int64_t stride) {
  const std::int64_t expanded = x.shape().c * expansion;
  const std::string conv = name + ".conv.";
  int part = 0;
  Tensor y = x;
  if (expansion != 1)
    y = conv_norm(y, fmt::format("{}{}", conv, part++), {.filters = expanded},
                  ActivationKind::relu6);
  y = conv_norm(y, fmt::format("{}{}", conv, part++),
                {.filters = expanded, .kernel = 3, .stride = stride, .groups = expanded},
                ActivationKind::relu6);
  y = y.conv(fmt::format("{}{}", conv, part), {.filters = channels, .bias = false})
          .batch_norm(fmt::format("{}{}", conv, part + 1));
  return y.shape() == x.shape() ? add(name + ".add", x, y) : y;
}

Tensor inverted_residual_v3(Tensor x, const std::string& name, const Block& b) {
  const std::string block = name + ".block.";
  int part = 0;
  const auto next = [&] { return fmt::format("{}{}", block, part++); };
  Tensor y = x;
  if (b.expanded != x.shape().c)
    y = conv_norm(y, next(), {.filters = b.expanded}, b.activation, norm_v3);
  y = conv_norm(
      y, next(),
      {.filters = b.expanded, .kernel = b.kernel, .stride = b.stride, .groups = b.expanded},
      b.activation, norm_v3);
  if (b.squeeze)
    y = squeeze_excitation(y, next(), multiple_of_8(b.expanded / 4), ActivationKind::relu,
                           ActivationKind::hardsigmoid);
  y = conv_norm(y, next(), {.filters = b.channels}, std::nullopt, norm_v3);
  return y.shape() == x.shape() ? add(name + ".add", x, y) : y;
}

}  // namespace

// Sandler et al. 2018, "MobileNetV2" (arXiv:1801.04381), table 2, as torchvision has it.
Graph mobilenet_v2(std::int64_t batch) {
  struct Stage {
    std::int64_t expansion, channels, blocks, stride;
  };
  constexpr Stage stages[]{{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                           {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  Graph net("mobilenet_v2");
  int feature = 0;
  const auto next = [&] { return fmt::format("features.{}", feature++); };
  Tensor x = conv_norm(input(net, {batch, 3, 224, 224}), next(),
                       {.filters = 32, .kernel = 3, .stride = 2}, ActivationKind::relu6);
  for (const Stage& stage : stages)
    for (std::int64_t i = 0; i < stage.blocks; ++i)
      x = inverted_residual_v2(x, next(), stage.expansion, stage.channels,
                               i == 0 ? stage.stride : 1);
  x = conv_norm(x, next(), {.filters = 1280}, ActivationKind::relu6);
  x.global_avg_pool("avgpool").dropout("classifier.0", 0.2).linear("classifier.1", 1000);
  return net;
}

// Howard et al. 2019, "Searching for MobileNetV3" (arXiv:1905.02244), table 1, as torchvision has
// it.
Graph mobilenet_v3_large(std::int64_t batch) {
  constexpr auto re = ActivationKind::relu, hs = ActivationKind::hardswish;
  constexpr Block blocks[]{
      {3, 16, 16, false, re, 1},  {3, 64, 24, false, re, 2},  {3, 72, 24, false, re, 1},
      {5, 72, 40, true, re, 2},   {5, 120, 40, true, re, 1},  {5, 120, 40, true, re, 1},
      {3, 240, 80, false, hs, 2}, {3, 200, 80, false, hs, 1}, {3, 184, 80, false, hs, 1},
      {3, 184, 80, false, hs, 1}, {3, 480, 112, true, hs, 1}, {3, 672, 112, true, hs, 1},
      {5, 672, 160, true, hs, 2}, {5, 960, 160, true, hs, 1}, {5, 960, 160, true, hs, 1}};
  Graph net("mobilenet_v3_large");
  int feature = 0;
  const auto next = [&] { return fmt::format("features.{}", feature++); };
  Tensor x = conv_norm(input(net, {batch, 3, 224, 224}), next(),
                       {.filters = 16, .kernel = 3, .stride = 2}, hs, norm_v3);
  for (const Block& block : blocks) x = inverted_residual_v3(x, next(), block);
  x = conv_norm(x, next(), {.filters = 960}, hs, norm_v3);
  x.global_avg_pool("avgpool")
      .linear("classifier.0", 1280)
      .activation("classifier.1", hs)
      .dropout("classifier.2", 0.2)
      .linear("classifier.3", 1000);
  return net;
}

}  // namespace convlab::nets
