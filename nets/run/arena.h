// One allocation for many buffers: buffers that are never needed at the same time share bytes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace convlab::nets {

// Rounds up to the next possible buffer start: all buffers start at multiples of 64.
constexpr std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// The bytes of a workspace that begins with weights packed for one run; the algorithm's own part
// starts at padded(packed).
constexpr std::size_t packed_and_workspace(std::size_t packed, std::size_t workspace) {
  return padded(packed) + workspace;
}

// A buffer is needed from moment `first` to moment `last`, both included.
struct Lifetime {
  std::size_t bytes = 0;
  std::size_t first = 0, last = 0;
};

struct Arena {
  std::vector<std::size_t> offsets;  // of each buffer, multiples of 64
  std::size_t bytes = 0;             // of the whole
};

// Largest first, each at the lowest offset that is free during its lifetime (greedy by size;
// Pisarchyk & Lee 2020, arXiv:2001.03288).
Arena plan_arena(std::span<const Lifetime>);

// A lower bound for any arrangement: the most bytes needed at any one moment.
std::size_t peak_bytes(std::span<const Lifetime>);

}  // namespace convlab::nets
