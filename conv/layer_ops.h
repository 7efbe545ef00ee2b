// What a device can do besides convolution. Each backend implements it.
#pragma once

#include "conv/layout.h"

namespace convlab {

class Stream;

class LayerOps {
 public:
  virtual ~LayerOps() = default;

  // Copies a tensor into another layout of the same n, c, h, w; lanes that pad C are written as
  // zero. `from` and `to` do not overlap. f32 and f64.
  virtual void convert_layout(DType, const TensorDesc& from_desc, const void* from,
                              const TensorDesc& to_desc, void* to, Stream&) const = 0;
};

}  // namespace convlab
