#include <fmt/format.h>

#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {

// Iandola et al. 2016, "SqueezeNet" (arXiv:1602.07360), version 1.1, as torchvision has it: the
// scores are the means of a last convolution's channels.
Graph squeezenet1_1(std::int64_t batch) {
  Graph net("squeezenet1_1");
  Tensor x = input(net, {batch, 3, 224, 224})
                 .conv("features.0", {.filters = 64, .kernel = 3, .stride = 2})
                 .relu("features.1");
  const auto pool = [&](int at) { x = x.max_pool(fmt::format("features.{}", at), 3, 2, 0, true); };
  const auto fire = [&](int at, std::int64_t squeeze, std::int64_t expand) {
    const std::string name = fmt::format("features.{}", at);
    const auto conv = [&](Tensor from, const std::string& part, Conv layer) {
      return from.conv(name + "." + part, layer).relu(name + "." + part + "_activation");
    };
    const Tensor squeezed = conv(x, "squeeze", {.filters = squeeze});
    x = concat(name, {conv(squeezed, "expand1x1", {.filters = expand}),
                      conv(squeezed, "expand3x3", {.filters = expand, .kernel = 3, .pad = 1})});
  };
  pool(2);
  fire(3, 16, 64);
  fire(4, 16, 64);
  pool(5);
  fire(6, 32, 128);
  fire(7, 32, 128);
  pool(8);
  fire(9, 48, 192);
  fire(10, 48, 192);
  fire(11, 64, 256);
  fire(12, 64, 256);
  x.dropout("classifier.0")
      .conv("classifier.1", {.filters = 1000})
      .relu("classifier.2")
      .global_avg_pool("classifier.3");
  return net;
}

}  // namespace convlab::nets
