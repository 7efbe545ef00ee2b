#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {

// LeNet-5, LeCun et al. 1998, "Gradient-based learning applied to document recognition", figure 2,
// in its usual modern form: C3 reads all of S2's maps (the paper connects only some), pooling has
// no coefficients, and the output is a fully connected layer. The 28x28 digits are padded to the
// paper's 32x32. 61,706 parameters.
Graph lenet(std::int64_t batch) {
  Graph net("lenet");
  input(net, {batch, 1, 28, 28})
      .conv("c1", {.filters = 6, .kernel = 5, .pad = 2})
      .tanh("tanh1")
      .avg_pool("s2", 2, 2)
      .conv("c3", {.filters = 16, .kernel = 5})
      .tanh("tanh3")
      .avg_pool("s4", 2, 2)
      .conv("c5", {.filters = 120, .kernel = 5})
      .tanh("tanh5")
      .linear("f6", 84)
      .tanh("tanh6")
      .linear("output", 10);
  return net;
}

}  // namespace convlab::nets
