#include <fmt/format.h>

#include "nets/tensor.h"
#include "nets/zoo/parts.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {

// Tan & Le 2019, "EfficientNet" (arXiv:1905.11946), table 1, as torchvision has it. Deeper blocks
// are dropped more often.
Graph efficientnet_b0(std::int64_t batch) {
  struct Stage {
    std::int64_t expansion, kernel, stride, channels;
    int blocks;
  };
  constexpr Stage stages[]{{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                           {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
  constexpr auto silu = ActivationKind::silu;
  int total = 0, done = 0;
  for (const Stage& stage : stages) total += stage.blocks;

  const auto block = [&](Tensor x, const std::string& name, const Stage& stage,
                         std::int64_t stride) {
    const std::int64_t expanded = x.shape().c * stage.expansion;
    int part = 0;
    const auto next = [&] { return fmt::format("{}.block.{}", name, part++); };
    Tensor y = x;
    if (stage.expansion != 1) y = conv_norm(y, next(), {.filters = expanded}, silu);
    y = conv_norm(
        y, next(),
        {.filters = expanded, .kernel = stage.kernel, .stride = stride, .groups = expanded}, silu);
    y = squeeze_excitation(y, next(), x.shape().c / 4, silu, ActivationKind::sigmoid);
    y = conv_norm(y, next(), {.filters = stage.channels}, std::nullopt);
    const double p = 0.2 * done++ / total;
    if (y.shape() != x.shape()) return y;
    return add(name + ".add", y.stochastic_depth(name + ".stochastic_depth", p), x);
  };

  Graph net("efficientnet_b0");
  Tensor x = conv_norm(input(net, {batch, 3, 224, 224}), "features.0",
                       {.filters = 32, .kernel = 3, .stride = 2}, silu);
  int feature = 1;
  for (const Stage& stage : stages) {
    for (int i = 0; i < stage.blocks; ++i)
      x = block(x, fmt::format("features.{}.{}", feature, i), stage, i == 0 ? stage.stride : 1);
    ++feature;
  }
  x = conv_norm(x, fmt::format("features.{}", feature), {.filters = 1280}, silu);
  x.global_avg_pool("avgpool").dropout("classifier.0", 0.2).linear("classifier.1", 1000);
  return net;
}

}  // namespace convlab::nets
