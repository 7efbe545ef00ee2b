// How far apart threads write. Internal.
#pragma once

#include <cstdint>

namespace convlab::cpu {

// Padding between threads' buffers. After a strided read the hardware prefetcher runs on by dozens
// of strides. If the next thread's buffer is near, its lines then move back and forth between two
// cores. 128 KB prevent most of it; 16 KB do not.
inline constexpr std::int64_t apart_bytes = 256 << 10;

}  // namespace convlab::cpu
