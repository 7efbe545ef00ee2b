// Sums that are split among blocks (split-K), where the outputs alone are too few blocks to occupy
// every multiprocessor. Each part writes partial sums to the workspace, like an output but in the
// accumulator's type and without the epilogue; a second kernel adds them in a fixed order.
// Internal.
#pragma once

#include <cstdint>

#include "kernels_cuda/epilogue.h"
#include "kernels_cuda/kernel.h"

namespace convlab::cuda {

// The first of a part's steps, where `steps` are split evenly. steps * part may exceed an int.
__host__ __device__ inline int part_start(int part, int steps, int parts) {
  return steps / parts * part + steps % parts * part / parts;
}

// Queues the sum of partial[part][elements] and its epilogue. The channel of element i, for its
// bias, is i / pixels % channels. For f32, f64, f16 and bf16.
template <class T>
void add_parts(const Accumulator<T>* partial, int parts, std::int64_t elements, int channels,
               int pixels, const OutputEpilogue<T>&, Stream&);

// Clock cycles that add_parts takes for sums in f32, roughly: a launch, then 2000 bytes a clock.
inline double adding_cycles(std::int64_t parts, std::int64_t elements) {
  return 4000 + double(parts + 1) * 4 * double(elements) / 2000;
}

}  // namespace convlab::cuda
