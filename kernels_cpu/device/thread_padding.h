// Padding between threads' buffers. Internal.
#pragma once

#include <cstdint>

namespace convlab::cpu {

// After a strided read the hardware prefetcher runs on by dozens of strides, into the next thread's
// buffer if that is near; that buffer's lines then move back and forth between two cores.
inline constexpr std::int64_t thread_padding_bytes = 256 << 10;

}  // namespace convlab::cpu
