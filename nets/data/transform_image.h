// Doing to one image what a Transform says.
#pragma once

#include "nets/data/image.h"
#include "nets/data/random.h"
#include "nets/data/transform.h"

namespace convlab::nets {

// To channels x height x width floats or doubles (CHW), of an image with 1 or 3 channels. What is
// random comes from `Draws` alone.
template <class T>
void transform_image(const Image&, const Transform&, Draws, T* out);

}  // namespace convlab::nets
