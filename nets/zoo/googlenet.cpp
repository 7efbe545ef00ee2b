#include <fmt/format.h>

#include <array>
#include <string_view>

#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

// Szegedy et al. 2014, "Going deeper with convolutions" (arXiv:1409.4842), table 1. The columns
// "3x3 reduce" and "5x5 reduce" are the 1x1 convolutions before the larger ones.
struct Inception {
  std::string_view name;
  std::int64_t c1, c3_reduce, c3, c5_reduce, c5, pool_proj;
};
constexpr std::array<Inception, 9> modules{{{"3a", 64, 96, 128, 16, 32, 32},
                                            {"3b", 128, 128, 192, 32, 96, 64},
                                            {"4a", 192, 96, 208, 16, 48, 64},
                                            {"4b", 160, 112, 224, 24, 64, 64},
                                            {"4c", 128, 128, 256, 24, 64, 64},
                                            {"4d", 112, 144, 288, 32, 64, 64},
                                            {"4e", 256, 160, 320, 32, 128, 128},
                                            {"5a", 256, 160, 320, 32, 128, 128},
                                            {"5b", 384, 192, 384, 48, 128, 128}}};

}  // namespace

// As torchvision has it: batch norm instead of biases, 3x3 convolutions where the paper has 5x5,
// without the auxiliary classifiers.
Graph googlenet(std::int64_t batch) {
  auto conv = [](Tensor x, const std::string& name, Conv layer) {
    layer.bias = false;
    return x.conv(name + ".conv", layer).batch_norm(name + ".bn", 1e-3).relu(name + ".relu");
  };
  auto inception = [&](Tensor x, const Inception& m) {
    const std::string name = fmt::format("inception{}", m.name);
    const Tensor b1 = conv(x, name + ".branch1", {.filters = m.c1});
    const Tensor b2 = conv(conv(x, name + ".branch2.0", {.filters = m.c3_reduce}),
                           name + ".branch2.1", {.filters = m.c3, .kernel = 3, .pad = 1});
    const Tensor b3 = conv(conv(x, name + ".branch3.0", {.filters = m.c5_reduce}),
                           name + ".branch3.1", {.filters = m.c5, .kernel = 3, .pad = 1});
    const Tensor b4 = conv(x.max_pool(name + ".branch4.0", 3, 1, 1, true), name + ".branch4.1",
                           {.filters = m.pool_proj});
    return concat(name, {b1, b2, b3, b4});
  };

  Graph net("googlenet");
  Tensor x = input(net, {batch, 3, 224, 224});
  x = conv(x, "conv1", {.filters = 64, .kernel = 7, .stride = 2, .pad = 3});
  x = x.max_pool("maxpool1", 3, 2, 0, true);
  x = conv(x, "conv2", {.filters = 64});
  x = conv(x, "conv3", {.filters = 192, .kernel = 3, .pad = 1});
  x = x.max_pool("maxpool2", 3, 2, 0, true);
  for (const Inception& m : modules) {
    if (m.name == "4a") x = x.max_pool("maxpool3", 3, 2, 0, true);
    if (m.name == "5a") x = x.max_pool("maxpool4", 2, 2, 0, true);
    x = inception(x, m);
  }
  x.global_avg_pool("avgpool").dropout("dropout", 0.2).linear("fc", 1000);
  return net;
}

// The paper's own: biases, 5x5 convolutions, response normalisation; parts named by its table.
// The auxiliary classifiers, which only training uses, are left out.
Graph googlenet2014(std::int64_t batch) {
  auto conv = [](Tensor x, const std::string& name, Conv layer) {
    return x.conv(name, layer).relu(name + ".relu");
  };
  auto inception = [&](Tensor x, const Inception& m) {
    const std::string name = fmt::format("inception{}", m.name);
    const Tensor b1 = conv(x, name + ".1x1", {.filters = m.c1});
    const Tensor b2 = conv(conv(x, name + ".3x3_reduce", {.filters = m.c3_reduce}), name + ".3x3",
                           {.filters = m.c3, .kernel = 3, .pad = 1});
    const Tensor b3 = conv(conv(x, name + ".5x5_reduce", {.filters = m.c5_reduce}), name + ".5x5",
                           {.filters = m.c5, .kernel = 5, .pad = 2});
    const Tensor b4 =
        conv(x.max_pool(name + ".pool", 3, 1, 1), name + ".pool_proj", {.filters = m.pool_proj});
    return concat(name, {b1, b2, b3, b4});
  };

  Graph net("googlenet2014");
  Tensor x = input(net, {batch, 3, 224, 224});
  x = conv(x, "conv1.7x7", {.filters = 64, .kernel = 7, .stride = 2, .pad = 3});
  x = x.max_pool("pool1", 3, 2, 0, true).lrn("norm1");
  x = conv(x, "conv2.3x3_reduce", {.filters = 64});
  x = conv(x, "conv2.3x3", {.filters = 192, .kernel = 3, .pad = 1});
  x = x.lrn("norm2").max_pool("pool2", 3, 2, 0, true);
  for (const Inception& m : modules) {
    if (m.name == "4a") x = x.max_pool("pool3", 3, 2, 0, true);
    if (m.name == "5a") x = x.max_pool("pool4", 3, 2, 0, true);
    x = inception(x, m);
  }
  x.global_avg_pool("pool5").dropout("dropout", 0.4).linear("fc", 1000);
  return net;
}

}  // namespace convlab::nets
