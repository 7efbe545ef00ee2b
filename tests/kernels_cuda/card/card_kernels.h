// Kernels that tests of a real card launch.
#pragma once

#include <cstdint>

#include "conv/device.h"

namespace convlab::cuda {

// values[i] += times.
void queue_increment(std::int32_t* values, std::int64_t count, int times, Stream&);
void queue_illegal_store(Stream&);  // the context is lost
// One mma: each lane's registers of a, then of b; and its four sums.
void queue_tf32_product(const std::uint32_t* operands, float* sums, Stream&);
// Rows of values, a value a block: row 0 is given, and each block adds up the row before and its
// own number. `arrived` is 0.
void queue_sums_of_all(unsigned* values, unsigned* arrived, int rounds, unsigned blocks, Stream&);

}  // namespace convlab::cuda
