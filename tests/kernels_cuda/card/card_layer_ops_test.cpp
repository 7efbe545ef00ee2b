// The tests of tests/conv/layer_ops on the machine's first card.
#include "kernels_cuda/cuda.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {

const LayerBackend& layer_backend() {
  static const LayerBackend backend{{{"cuda:0", [](int) { return make_cuda_device(); }}},
                                    {Layout::nchw, Layout::nhwc},
                                    cuda_obstacle()};
  return backend;
}

}  // namespace convlab
