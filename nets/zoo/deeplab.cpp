#include <fmt/format.h>

#include <vector>

#include "nets/tensor.h"
#include "nets/zoo/parts.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

// NAME.0 is the convolution, NAME.1 batch norm, NAME.2 the ReLU.
Tensor conv_bn_relu(Tensor x, const std::string& name, Conv layer) {
  layer.bias = false;
  return x.conv(name + ".0", layer).batch_norm(name + ".1").relu(name + ".2");
}

// Atrous spatial pyramid pooling: parallel views of each pixel's neighbourhood and the image's
// mean.
Tensor pyramid(Tensor x, const std::string& name) {
  constexpr std::int64_t channels = 256;
  std::vector<Tensor> views{conv_bn_relu(x, name + ".convs.0", {.filters = channels})};
  for (const std::int64_t rate : {12, 24, 36})
    views.push_back(
        conv_bn_relu(x, fmt::format("{}.convs.{}", name, views.size()),
                     {.filters = channels, .kernel = 3, .pad = rate, .dilation = rate}));
  const Shape shape = x.shape();
  const std::string pooling = name + ".convs.4";
  views.push_back(x.global_avg_pool(pooling + ".0")
                      .conv(pooling + ".1", {.filters = channels, .bias = false})
                      .batch_norm(pooling + ".2")
                      .relu(pooling + ".3")
                      .resized(pooling + ".resize", ResizeKind::bilinear, shape.h, shape.w));
  return conv_bn_relu(concat(name + ".cat", views), name + ".project", {.filters = channels})
      .dropout(name + ".project.3");
}

}  // namespace

// Chen et al. 2017, "Rethinking atrous convolution" (arXiv:1706.05587), as torchvision has it,
// without the auxiliary classifier.
Graph deeplabv3_resnet50(std::int64_t batch) {
  Graph net("deeplabv3_resnet50");
  const Tensor image = input(net, {batch, 3, 224, 224});
  pyramid(dilated_resnet50(image, "backbone."), "classifier.0")
      .conv("classifier.1", {.filters = 256, .kernel = 3, .pad = 1, .bias = false})
      .batch_norm("classifier.2")
      .relu("classifier.3")
      .conv("classifier.4", {.filters = 21})
      .resized("out", ResizeKind::bilinear, image.shape().h, image.shape().w);
  return net;
}

}  // namespace convlab::nets
