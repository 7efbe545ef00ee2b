#include <fmt/format.h>

#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

Tensor conv_norm_3d(Tensor x, const std::string& name, Conv layer) {
  layer.bias = false;
  return x.conv(name + ".0", layer).batch_norm(name + ".1");
}

// 3x3x3 if padded by 1, 1x1x1 if not.
Conv cube(std::int64_t filters, std::int64_t stride, std::int64_t pad) {
  const std::int64_t kernel = 2 * pad + 1;
  return {.filters = filters,
          .kernel = kernel,
          .stride = stride,
          .pad = pad,
          .depth = DepthWindow{.kernel = kernel, .stride = stride, .pad = pad}};
}

Tensor block(Tensor x, const std::string& name, std::int64_t channels, std::int64_t stride) {
  Tensor y = conv_norm_3d(x, name + ".conv1", cube(channels, stride, 1)).relu(name + ".conv1.2");
  y = conv_norm_3d(y, name + ".conv2", cube(channels, 1, 1));
  if (x.shape() != y.shape()) x = conv_norm_3d(x, name + ".downsample", cube(channels, stride, 0));
  return add(name + ".add", y, x).relu(name + ".relu");
}

}  // namespace

// Tran et al. 2018, "A closer look at spatiotemporal convolutions" (arXiv:1711.11248), R3D, named
// as in torchvision (models.video).
Graph r3d_18(std::int64_t batch) {
  Graph net("r3d_18");
  Tensor x = conv_norm_3d(input(net, {batch, 3, 112, 112, 16}), "stem",
                          {.filters = 64,
                           .kernel = 7,
                           .stride = 2,
                           .pad = 3,
                           .depth = DepthWindow{.kernel = 3, .pad = 1}})
                 .relu("stem.2");
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < 2; ++i)
      x = block(x, fmt::format("layer{}.{}", stage + 1, i), 64 << stage,
                stage > 0 && i == 0 ? 2 : 1);
  x.global_avg_pool("avgpool").linear("fc", 400);
  return net;
}

}  // namespace convlab::nets
