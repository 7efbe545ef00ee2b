// Applies a Transform to one image.
#pragma once

#include "nets/data/image.h"
#include "nets/data/random.h"
#include "nets/data/transform.h"

namespace convlab::nets {

// Writes channels x height x width floats or doubles (CHW), from an image with 1 or 3 channels. All
// randomness comes from `Draws`.
template <class T>
void transform_image(const Image&, const Transform&, Draws, T* out);

}  // namespace convlab::nets
