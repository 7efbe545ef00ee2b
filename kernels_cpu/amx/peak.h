// The peak rate of the matrix unit, for ceilings. Internal.
#pragma once

#include <cstdint>

namespace convlab::cpu {

// Products of bf16 tiles in registers on this thread, four sums of 16 x 16 a round. Returns the
// FLOPs done. Only where amx_support() says that it is usable.
double multiply_tiles(std::int64_t rounds);

}  // namespace convlab::cpu
