#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {

// Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks"
// (arXiv:1404.5997), as torchvision has it. Its adaptive pooling to 6x6 does nothing at 224x224.
Graph alexnet(std::int64_t batch) {
  Graph net("alexnet");
  input(net, {batch, 3, 224, 224})
      .conv("features.0", {.filters = 64, .kernel = 11, .stride = 4, .pad = 2})
      .relu("features.1")
      .max_pool("features.2", 3, 2)
      .conv("features.3", {.filters = 192, .kernel = 5, .pad = 2})
      .relu("features.4")
      .max_pool("features.5", 3, 2)
      .conv("features.6", {.filters = 384, .kernel = 3, .pad = 1})
      .relu("features.7")
      .conv("features.8", {.filters = 256, .kernel = 3, .pad = 1})
      .relu("features.9")
      .conv("features.10", {.filters = 256, .kernel = 3, .pad = 1})
      .relu("features.11")
      .max_pool("features.12", 3, 2)
      .dropout("classifier.0")
      .linear("classifier.1", 4096)
      .relu("classifier.2")
      .dropout("classifier.3")
      .linear("classifier.4", 4096)
      .relu("classifier.5")
      .linear("classifier.6", 1000);
  return net;
}

// Krizhevsky, Sutskever, Hinton 2012, "ImageNet classification with deep convolutional neural
// networks": two columns (groups), response normalisation. The paper's 224x224 needs padding for
// its 55x55 output.
Graph alexnet2012(std::int64_t batch) {
  Graph net("alexnet2012");
  input(net, {batch, 3, 224, 224})
      .conv("conv1", {.filters = 96, .kernel = 11, .stride = 4, .pad = 2})
      .relu("relu1")
      .lrn("norm1")
      .max_pool("pool1", 3, 2)
      .conv("conv2", {.filters = 256, .kernel = 5, .pad = 2, .groups = 2})
      .relu("relu2")
      .lrn("norm2")
      .max_pool("pool2", 3, 2)
      .conv("conv3", {.filters = 384, .kernel = 3, .pad = 1})
      .relu("relu3")
      .conv("conv4", {.filters = 384, .kernel = 3, .pad = 1, .groups = 2})
      .relu("relu4")
      .conv("conv5", {.filters = 256, .kernel = 3, .pad = 1, .groups = 2})
      .relu("relu5")
      .max_pool("pool5", 3, 2)
      .linear("fc6", 4096)
      .relu("relu6")
      .dropout("drop6")
      .linear("fc7", 4096)
      .relu("relu7")
      .dropout("drop7")
      .linear("fc8", 1000);
  return net;
}

}  // namespace convlab::nets
