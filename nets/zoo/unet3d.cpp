#include <fmt/format.h>

#include <vector>

#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

Tensor conv_norm_relu(Tensor x, const std::string& name, int index, std::int64_t filters) {
  const auto named = [&](const char* what) { return fmt::format("{}.{}{}", name, what, index); };
  return x
      .conv(named("conv"), {.filters = filters,
                            .kernel = 3,
                            .pad = 1,
                            .bias = false,
                            .depth = DepthWindow{.kernel = 3, .pad = 1}})
      .batch_norm(named("bn"))
      .relu(named("relu"));
}

}  // namespace

// Cicek et al. 2016, "3D U-Net" (arXiv:1606.06650), figure 2, with padded convolutions. The paper
// counts a bias for each 3x3x3 filter; batch norm has two numbers in its place.
Graph unet3d(std::int64_t batch) {
  constexpr std::int64_t side = 64, levels = 4;
  Graph net("unet3d");
  Tensor x = input(net, {batch, 3, side, side, side});
  std::vector<Tensor> skipped;
  for (std::int64_t level = 0; level < levels; ++level) {
    const std::string name = fmt::format("analysis{}", level + 1);
    if (level > 0) {
      skipped.push_back(x);
      x = x.max_pool_3d(name + ".pool", 2, 2);
    }
    // The channels double before the pooling, so that it is not a bottleneck.
    x = conv_norm_relu(x, name, 1, 32 << level);
    x = conv_norm_relu(x, name, 2, 64 << level);
  }
  for (std::int64_t level = levels - 2; level >= 0; --level) {
    const std::string name = fmt::format("synthesis{}", level + 1);
    const Tensor up =
        x.conv_transpose(name + ".up", {.filters = x.shape().c,
                                        .kernel = 2,
                                        .stride = 2,
                                        .bias = false,
                                        .depth = DepthWindow{.kernel = 2, .stride = 2}});
    x = concat(name + ".cat", {skipped.back(), up});
    skipped.pop_back();
    x = conv_norm_relu(x, name, 1, 64 << level);
    x = conv_norm_relu(x, name, 2, 64 << level);
  }
  x.conv("scores", {.filters = 3, .depth = DepthWindow{}});
  return net;
}

}  // namespace convlab::nets
