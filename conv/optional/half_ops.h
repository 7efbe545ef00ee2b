// Layer operations on tensors of the 16-bit types. Operations of a device that has them are also
// HalfOps: `dynamic_cast<const HalfOps*>(&device.ops())` is null for others, which refuse the
// types.
//
// Tensors, gates among them, then have 16 bits. Arithmetic is in f32, and each result is rounded
// once, to the nearest, ties to even. Arrays over channels, statistics and losses are f32, and so
// are cross entropy's probabilities, which therefore overlap neither scores nor gradients, and the
// targets of squared error. gemm and the updates refuse the types: weights and optimizer state are
// f32, and convert_type converts what is multiplied with them.
#pragma once

#include <cstdint>

#include "conv/types/arithmetic_type.h"

namespace convlab {

class Stream;

class HalfOps {
 public:
  virtual ~HalfOps() = default;
  // `count` elements in device memory from f32 to a 16-bit type, or back. Throws InputError for
  // other types.
  virtual void convert_type(DType from_type, const void* from, DType to_type, void* to,
                            std::int64_t count, Stream&) const = 0;
};

}  // namespace convlab
