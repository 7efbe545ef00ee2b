#include <fmt/format.h>

#include <array>

#include "conv/error.h"
#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {

// Simonyan & Zisserman 2014, "Very deep convolutional networks" (arXiv:1409.1556), table 1,
// columns A, B, D, E: five stages of 3x3 convolutions, each closed by a 2x2 pooling.
Graph vgg(int depth, bool batch_norm, std::int64_t batch) {
  constexpr std::array<std::int64_t, 5> channels{64, 128, 256, 512, 512};
  std::array<int, 5> convolutions{};
  switch (depth) {
    case 11:
      convolutions = {1, 1, 2, 2, 2};
      break;
    case 13:
      convolutions = {2, 2, 2, 2, 2};
      break;
    case 16:
      convolutions = {2, 2, 3, 3, 3};
      break;
    case 19:
      convolutions = {2, 2, 4, 4, 4};
      break;
    default:
      throw InputError(fmt::format("vgg has no depth {}: expected 11, 13, 16 or 19", depth));
  }

  Graph net(fmt::format("vgg{}{}", depth, batch_norm ? "_bn" : ""));
  Tensor x = input(net, {batch, 3, 224, 224});
  int index = 0;
  auto next = [&] { return fmt::format("features.{}", index++); };
  for (std::size_t stage = 0; stage < channels.size(); ++stage) {
    for (int i = 0; i < convolutions[stage]; ++i) {
      x = x.conv(next(), {.filters = channels[stage], .kernel = 3, .pad = 1});
      if (batch_norm) x = x.batch_norm(next());
      x = x.relu(next());
    }
    x = x.max_pool(next(), 2, 2);
  }
  x.linear("classifier.0", 4096)
      .relu("classifier.1")
      .dropout("classifier.2")
      .linear("classifier.3", 4096)
      .relu("classifier.4")
      .dropout("classifier.5")
      .linear("classifier.6", 1000);
  return net;
}

}  // namespace convlab::nets
