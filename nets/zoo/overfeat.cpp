#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {

// Sermanet et al. 2013, "OverFeat" (arXiv:1312.6229), table 1: the fast model, at 231x231.
Graph overfeat(std::int64_t batch) {
  Graph net("overfeat");
  input(net, {batch, 3, 231, 231})
      .conv("conv1", {.filters = 96, .kernel = 11, .stride = 4})
      .relu("relu1")
      .max_pool("pool1", 2, 2)
      .conv("conv2", {.filters = 256, .kernel = 5})
      .relu("relu2")
      .max_pool("pool2", 2, 2)
      .conv("conv3", {.filters = 512, .kernel = 3, .pad = 1})
      .relu("relu3")
      .conv("conv4", {.filters = 1024, .kernel = 3, .pad = 1})
      .relu("relu4")
      .conv("conv5", {.filters = 1024, .kernel = 3, .pad = 1})
      .relu("relu5")
      .max_pool("pool5", 2, 2)
      .linear("fc6", 3072)
      .relu("relu6")
      .dropout("drop6")
      .linear("fc7", 4096)
      .relu("relu7")
      .dropout("drop7")
      .linear("fc8", 1000);
  return net;
}

}  // namespace convlab::nets
