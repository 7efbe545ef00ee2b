#include <fmt/format.h>

#include <array>

#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {

// Huang et al. 2017, "Densely connected convolutional networks" (arXiv:1608.06993), table 1, as
// torchvision has it. Each layer reads the channels of all before it, so its own are appended to
// theirs.
Graph densenet121(std::int64_t batch) {
  constexpr std::array<int, 4> layers{6, 12, 24, 16};
  constexpr std::int64_t growth = 32;
  Graph net("densenet121");
  Tensor x = input(net, {batch, 3, 224, 224})
                 .conv("features.conv0",
                       {.filters = 64, .kernel = 7, .stride = 2, .pad = 3, .bias = false})
                 .batch_norm("features.norm0")
                 .relu("features.relu0")
                 .max_pool("features.pool0", 3, 2, 1);
  for (int block = 1; block <= 4; ++block) {
    for (int layer = 1; layer <= layers[block - 1]; ++layer) {
      const std::string name = fmt::format("features.denseblock{}.denselayer{}", block, layer);
      const Tensor added =
          x.batch_norm(name + ".norm1")
              .relu(name + ".relu1")
              .conv(name + ".conv1", {.filters = 4 * growth, .bias = false})
              .batch_norm(name + ".norm2")
              .relu(name + ".relu2")
              .conv(name + ".conv2", {.filters = growth, .kernel = 3, .pad = 1, .bias = false});
      x = concat(name, {x, added});
    }
    if (block == 4) break;
    const std::string name = fmt::format("features.transition{}", block);
    x = x.batch_norm(name + ".norm")
            .relu(name + ".relu")
            .conv(name + ".conv", {.filters = x.shape().c / 2, .bias = false})
            .avg_pool(name + ".pool", 2, 2);
  }
  x.batch_norm("features.norm5").relu("relu").global_avg_pool("avgpool").linear("classifier", 1000);
  return net;
}

}  // namespace convlab::nets
