#include "nets/run/arena.h"

#include <algorithm>
#include <numeric>

namespace convlab::nets {
namespace {

bool meet(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

Arena plan_arena(std::span<const Lifetime> buffers) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers[a].bytes > buffers[b].bytes;
  });

  Arena arena{std::vector<std::size_t>(buffers.size(), 0), 0};
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t i : order) {
    const std::size_t bytes = padded(buffers[i].bytes);
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      if (!meet(buffers[i], buffers[other])) continue;
      if (offset + bytes <= arena.offsets[other]) break;
      offset = std::max(offset, arena.offsets[other] + padded(buffers[other].bytes));
    }
    arena.offsets[i] = offset;
    arena.bytes = std::max(arena.bytes, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](std::size_t a, std::size_t b) {
                                     return arena.offsets[a] < arena.offsets[b];
                                   }),
                  i);
  }
  return arena;
}

std::size_t peak_bytes(std::span<const Lifetime> buffers) {
  std::size_t moments = 0;
  for (const Lifetime& b : buffers) moments = std::max(moments, b.last + 1);
  std::vector<std::size_t> live(moments, 0);
  for (const Lifetime& b : buffers)
    for (std::size_t m = b.first; m <= b.last; ++m) live[m] += b.bytes;
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

}  // namespace convlab::nets
