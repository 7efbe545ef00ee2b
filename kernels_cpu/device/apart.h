// How far apart threads write. Internal.
#pragma once

#include <cstdint>

namespace convlab::cpu {

// Where a strided read ends a core's prefetcher goes on, by dozens of strides: into the memory of
// the next thread, if that is near, whose lines then come and go between two cores. Where these
// have an L3 each (Zen 4), fft_tiled takes 10 to 35% longer (L1 bwd_d 9.9 -> 13.0 ms, with one L3
// 10.0), implicit_gemm over 3 channels 34%. 16 KB between them do nothing, 128 KB most.
inline constexpr std::int64_t apart_bytes = 256 << 10;

}  // namespace convlab::cpu
