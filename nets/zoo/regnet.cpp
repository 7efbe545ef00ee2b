#include <fmt/format.h>

#include "nets/tensor.h"
#include "nets/zoo/parts.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {

// Radosavovic et al. 2020, "Designing network design spaces" (arXiv:2003.13678), RegNetY-400MF, as
// torchvision has it: groups of 8 channels, and the widths that the paper's rule gives for w_0 =
// 48, w_a = 27.89, w_m = 2.09.
Graph regnet_y_400mf(std::int64_t batch) {
  struct Stage {
    std::int64_t width;
    int blocks;
  };
  constexpr Stage stages[]{{48, 1}, {104, 3}, {208, 6}, {440, 6}};
  constexpr std::int64_t group_width = 8;
  constexpr auto relu = ActivationKind::relu;

  const auto block = [&](Tensor x, const std::string& name, std::int64_t width,
                         std::int64_t stride) {
    const std::string f = name + ".f.";
    Tensor y = conv_norm(x, f + "a", {.filters = width}, relu);
    y = conv_norm(y, f + "b",
                  {.filters = width, .kernel = 3, .stride = stride, .groups = width / group_width},
                  relu);
    y = squeeze_excitation(y, f + "se", x.shape().c / 4, relu, ActivationKind::sigmoid);
    y = conv_norm(y, f + "c", {.filters = width}, std::nullopt);
    if (y.shape() != x.shape())
      x = conv_norm(x, name + ".proj", {.filters = width, .stride = stride}, std::nullopt);
    return add(name + ".add", x, y).relu(name + ".activation");
  };

  Graph net("regnet_y_400mf");
  Tensor x = conv_norm(input(net, {batch, 3, 224, 224}), "stem",
                       {.filters = 32, .kernel = 3, .stride = 2}, relu);
  int number = 1;
  for (const Stage& stage : stages) {
    for (int i = 0; i < stage.blocks; ++i)
      x = block(x, fmt::format("trunk_output.block{0}.block{0}-{1}", number, i), stage.width,
                i == 0 ? 2 : 1);
    ++number;
  }
  x.global_avg_pool("avgpool").linear("fc", 1000);
  return net;
}

}  // namespace convlab::nets
