#include <fmt/format.h>

#include <array>

#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

// torchvision computes the pointwise layers as fully connected ones of each pixel.
Tensor block(Tensor x, const std::string& name, double drop) {
  const std::int64_t channels = x.shape().c;
  Tensor y =
      x.conv(name + ".block.0", {.filters = channels, .kernel = 7, .pad = 3, .groups = channels})
          .layer_norm(name + ".block.2")
          .conv(name + ".block.3", {.filters = 4 * channels, .matrix = true})
          .activation(name + ".block.4", ActivationKind::gelu)
          .conv(name + ".block.5", {.filters = channels, .matrix = true})
          .scaled(name + ".layer_scale", 1e-6);
  if (drop > 0) y = y.stochastic_depth(name + ".stochastic_depth", drop);
  return add(name + ".add", y, x);
}

}  // namespace

// Liu et al. 2022, "A ConvNet for the 2020s" (arXiv:2201.03545), named as in torchvision.
Graph convnext_tiny(std::int64_t batch) {
  constexpr std::array<int, 4> blocks{3, 3, 9, 3};
  constexpr double most_drop = 0.1;
  Graph net("convnext_tiny");
  Tensor x = input(net, {batch, 3, 224, 224})
                 .conv("features.0.0", {.filters = 96, .kernel = 4, .stride = 4})
                 .layer_norm("features.0.1");
  int number = 0;
  for (int stage = 0; stage < 4; ++stage) {
    if (stage > 0) {
      const std::string name = fmt::format("features.{}", 2 * stage);
      x = x.layer_norm(name + ".0")
              .conv(name + ".1", {.filters = 96 << stage, .kernel = 2, .stride = 2});
    }
    for (int i = 0; i < blocks[std::size_t(stage)]; ++i)
      x = block(x, fmt::format("features.{}.{}", 2 * stage + 1, i), most_drop * number++ / 17);
  }
  x.global_avg_pool("avgpool").layer_norm("classifier.0").linear("classifier.2", 1000);
  return net;
}

}  // namespace convlab::nets
