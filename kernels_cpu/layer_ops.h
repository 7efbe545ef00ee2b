// The CPU's layer operations besides convolution.
#pragma once

#include "conv/layer_ops.h"

namespace convlab::cpu {

class CpuLayerOps : public LayerOps {
 public:
  explicit CpuLayerOps(int threads) : threads_(threads) {}

  void convert_layout(DType, const TensorDesc& from_desc, const void* from,
                      const TensorDesc& to_desc, void* to, Stream&) const override;

 private:
  int threads_;
};

}  // namespace convlab::cpu
