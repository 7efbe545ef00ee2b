#include <fmt/format.h>

#include <array>

#include "conv/error.h"
#include "nets/tensor.h"
#include "nets/zoo/parts.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

Tensor conv_bn(Tensor x, const std::string& conv, const std::string& bn, Conv layer) {
  layer.bias = false;
  return x.conv(conv, layer).batch_norm(bn);
}

// The shortcut of a block that changes shape: a 1x1 convolution (option B).
Tensor projection(Tensor x, const std::string& name, const Shape& to, std::int64_t stride) {
  if (x.shape() == to) return x;
  return conv_bn(x, name + ".downsample.0", name + ".downsample.1",
                 {.filters = to.c, .stride = stride});
}

// The shortcut without parameters (option A): every stride-th pixel, new channels zero.
Tensor zero_padding(Tensor x, const std::string& name, const Shape& to, std::int64_t stride) {
  if (x.shape() == to) return x;
  return x.max_pool(name + ".subsample", 1, stride).pad_channels(name + ".pad_channels", to.c);
}

using Shortcut = Tensor (*)(Tensor, const std::string&, const Shape&, std::int64_t);

Tensor basic_block(Tensor x, const std::string& name, std::int64_t channels, std::int64_t stride,
                   Shortcut shortcut) {
  Tensor y = conv_bn(x, name + ".conv1", name + ".bn1",
                     {.filters = channels, .kernel = 3, .stride = stride, .pad = 1})
                 .relu(name + ".relu1");
  y = conv_bn(y, name + ".conv2", name + ".bn2", {.filters = channels, .kernel = 3, .pad = 1});
  return add(name + ".add", y, shortcut(x, name, y.shape(), stride)).relu(name + ".relu");
}

// `width` channels in `groups` groups between two 1x1 convolutions.
struct Bottleneck {
  std::int64_t width, groups, channels, dilation = 1;
};

// With the stride in the 3x3 convolution, as torchvision has it; the paper strides in the first.
Tensor bottleneck(Tensor x, const std::string& name, const Bottleneck& b, std::int64_t stride) {
  Tensor y = conv_bn(x, name + ".conv1", name + ".bn1", {.filters = b.width}).relu(name + ".relu1");
  y = conv_bn(y, name + ".conv2", name + ".bn2",
              {.filters = b.width,
               .kernel = 3,
               .stride = stride,
               .pad = b.dilation,
               .dilation = b.dilation,
               .groups = b.groups})
          .relu(name + ".relu2");
  y = conv_bn(y, name + ".conv3", name + ".bn3", {.filters = b.channels});
  return add(name + ".add", y, projection(x, name, y.shape(), stride)).relu(name + ".relu");
}

Tensor stem(Tensor x, const std::string& prefix) {
  return conv_bn(x, prefix + "conv1", prefix + "bn1",
                 {.filters = 64, .kernel = 7, .stride = 2, .pad = 3})
      .relu(prefix + "relu")
      .max_pool(prefix + "maxpool", 3, 2, 1);
}

// The nets of both papers below: a stem, four stages of block(x, name, stage, stride), the scores.
template <class Block>
Graph imagenet_resnet(const std::string& name, const std::array<int, 4>& blocks, std::int64_t batch,
                      const Block& block) {
  Graph net(name);
  Tensor x = stem(input(net, {batch, 3, 224, 224}), "");
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < blocks[stage]; ++i)
      x = block(x, fmt::format("layer{}.{}", stage + 1, i), stage, stage > 0 && i == 0 ? 2 : 1);
  x.global_avg_pool("avgpool").linear("fc", 1000);
  return net;
}

}  // namespace

Tensor dilated_resnet50(Tensor x, const std::string& prefix) {
  constexpr std::array<int, 4> blocks{3, 4, 6, 3};
  x = stem(x, prefix);
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < blocks[stage]; ++i) {
      const std::int64_t width = 64 << stage;
      // The first block still reads the pixels of the stage before.
      const std::int64_t dilation = stage < 2 ? 1 : std::int64_t{1} << (stage - 1 - (i == 0));
      x = bottleneck(x, fmt::format("{}layer{}.{}", prefix, stage + 1, i),
                     {width, 1, 4 * width, dilation}, stage == 1 && i == 0 ? 2 : 1);
    }
  return x;
}

// He et al. 2015, "Deep residual learning" (arXiv:1512.03385), table 1, named as in torchvision.
Graph resnet(int depth, std::int64_t batch) {
  std::array<int, 4> blocks{};
  switch (depth) {
    case 18:
      blocks = {2, 2, 2, 2};
      break;
    case 34:
    case 50:
      blocks = {3, 4, 6, 3};
      break;
    case 101:
      blocks = {3, 4, 23, 3};
      break;
    case 152:
      blocks = {3, 8, 36, 3};
      break;
    default:
      throw InputError(
          fmt::format("resnet has no depth {}: expected 18, 34, 50, 101 or 152", depth));
  }

  return imagenet_resnet(fmt::format("resnet{}", depth), blocks, batch,
                         [&](Tensor x, const std::string& name, int stage, std::int64_t stride) {
                           const std::int64_t channels = 64 << stage;
                           return depth < 50
                                      ? basic_block(x, name, channels, stride, projection)
                                      : bottleneck(x, name, {channels, 1, 4 * channels}, stride);
                         });
}

// Xie et al. 2017, "Aggregated residual transformations" (arXiv:1611.05431), table 1: 32 groups, of
// 4 channels in the first stage.
Graph resnext50_32x4d(std::int64_t batch) {
  return imagenet_resnet("resnext50_32x4d", {3, 4, 6, 3}, batch,
                         [](Tensor x, const std::string& name, int stage, std::int64_t stride) {
                           const std::int64_t width = 128 << stage;
                           return bottleneck(x, name, {width, 32, 2 * width}, stride);
                         });
}

// Section 4.2 of the same paper, for CIFAR-10: three stages of n blocks, shortcuts of option A.
Graph cifar_resnet(int depth, std::int64_t batch) {
  if (depth < 8 || depth % 6 != 2)
    throw InputError(fmt::format("CIFAR resnet has no depth {}: expected 6 n + 2, n >= 1", depth));
  Graph net(fmt::format("resnet{}", depth));
  Tensor x = conv_bn(input(net, {batch, 3, 32, 32}), "conv1", "bn1",
                     {.filters = 16, .kernel = 3, .pad = 1})
                 .relu("relu");
  for (int stage = 0; stage < 3; ++stage)
    for (int i = 0; i < (depth - 2) / 6; ++i)
      x = basic_block(x, fmt::format("layer{}.{}", stage + 1, i), 16 << stage,
                      stage > 0 && i == 0 ? 2 : 1, zero_padding);
  x.global_avg_pool("avgpool").linear("fc", 10);
  return net;
}

}  // namespace convlab::nets
