#include <fmt/format.h>

#include <vector>

#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

// Two 3x3 convolutions, each with batch norm and ReLU.
Tensor double_conv(Tensor x, const std::string& name, std::int64_t channels) {
  const auto layer = [&](Tensor from, int index) {
    const auto named = [&](int i) { return fmt::format("{}.double_conv.{}", name, i); };
    return from.conv(named(index), {.filters = channels, .kernel = 3, .pad = 1, .bias = false})
        .batch_norm(named(index + 1))
        .relu(named(index + 2));
  };
  return layer(layer(x, 0), 3);
}

}  // namespace

// Ronneberger et al. 2015, "U-Net" (arXiv:1505.04597), figure 1, with padded convolutions and batch
// norm, as PyTorch's users write it (github.com/milesial/Pytorch-UNet, whose names these are).
Graph unet(std::int64_t batch) {
  Graph net("unet");
  Tensor x = double_conv(input(net, {batch, 3, 256, 256}), "inc", 64);
  std::vector<Tensor> skipped;
  for (int i = 1; i <= 4; ++i) {
    skipped.push_back(x);
    const std::string name = fmt::format("down{}.maxpool_conv", i);
    x = double_conv(x.max_pool(name + ".0", 2, 2), name + ".1", 64 << i);
  }
  for (int i = 1; i <= 4; ++i) {
    const std::string name = fmt::format("up{}", i);
    const std::int64_t channels = 1024 >> i;
    const Tensor up =
        x.conv_transpose(name + ".up", {.filters = channels, .kernel = 2, .stride = 2});
    x = double_conv(concat(name + ".cat", {skipped.back(), up}), name + ".conv", channels);
    skipped.pop_back();
  }
  x.conv("outc.conv", {.filters = 2});
  return net;
}

}  // namespace convlab::nets
