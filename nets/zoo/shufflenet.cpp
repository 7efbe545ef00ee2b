#include <fmt/format.h>

#include <array>

#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

// torchvision's branches are numbered sequences of convolution, batch norm and, where it says so,
// ReLU.
class Branch {
 public:
  Branch(Tensor x, std::string name) : x_(x), name_(std::move(name)) {}

  Branch& pointwise(std::int64_t channels) {
    conv({.filters = channels});
    x_ = x_.relu(next());
    return *this;
  }
  Branch& depthwise(std::int64_t stride) {
    const std::int64_t channels = x_.shape().c;
    conv({.filters = channels, .kernel = 3, .stride = stride, .pad = 1, .groups = channels});
    return *this;
  }
  Tensor end() const { return x_; }

 private:
  std::string next() { return fmt::format("{}.{}", name_, index_++); }
  void conv(Conv layer) {
    layer.bias = false;
    x_ = x_.conv(next(), layer);
    x_ = x_.batch_norm(next());
  }

  Tensor x_;
  std::string name_;
  int index_ = 0;
};

// Half of the channels go on as they are; with a stride both halves are computed.
Tensor unit(Tensor x, const std::string& name, std::int64_t channels, std::int64_t stride) {
  const std::int64_t half = channels / 2;
  const std::string first = name + ".branch1", second = name + ".branch2";
  const Tensor kept = stride > 1 ? Branch(x, first).depthwise(stride).pointwise(half).end()
                                 : x.slice(first, 0, half);
  const Tensor read = stride > 1 ? x : x.slice(second, half, half);
  const Tensor made = Branch(read, second).pointwise(half).depthwise(stride).pointwise(half).end();
  return concat(name + ".cat", {kept, made}).shuffled(name + ".shuffle", 2);
}

}  // namespace

// Ma et al. 2018, "ShuffleNet V2" (arXiv:1807.11164), table 5, 1x, named as in torchvision.
Graph shufflenet_v2_x1_0(std::int64_t batch) {
  Graph net("shufflenet_v2_x1_0");
  const auto conv = [](Tensor x, const std::string& name, Conv layer) {
    layer.bias = false;
    return x.conv(name + ".0", layer).batch_norm(name + ".1").relu(name + ".2");
  };
  Tensor x = conv(input(net, {batch, 3, 224, 224}), "conv1",
                  {.filters = 24, .kernel = 3, .stride = 2, .pad = 1})
                 .max_pool("maxpool", 3, 2, 1);
  constexpr std::array<int, 3> repeats{4, 8, 4};
  for (int stage = 0; stage < 3; ++stage)
    for (int i = 0; i < repeats[std::size_t(stage)]; ++i)
      x = unit(x, fmt::format("stage{}.{}", stage + 2, i), 116 << stage, i == 0 ? 2 : 1);
  conv(x, "conv5", {.filters = 1024}).global_avg_pool("avgpool").linear("fc", 1000);
  return net;
}

}  // namespace convlab::nets
