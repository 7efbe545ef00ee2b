// Buffers of a net during assembly: their lifetimes, and their places afterwards.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "nets/net.h"
#include "nets/run/arena.h"

namespace convlab::nets {

using BufferId = std::size_t;

class NetMemory {
 public:
  enum class Kind : std::uint8_t { activation, gradient, workspace };

  // A buffer without uses yet.
  BufferId add(std::size_t bytes, Kind kind) {
    lifetimes_.push_back({bytes, SIZE_MAX, 0});
    kinds_.push_back(kind);
    return lifetimes_.size() - 1;
  }
  BufferId use(BufferId id, std::size_t moment) {
    lifetimes_[id].first = std::min(lifetimes_[id].first, moment);
    lifetimes_[id].last = std::max(lifetimes_[id].last, moment);
    return id;
  }
  // Call each once, in this order, after all uses.
  void arrange() { arena_ = plan_arena(lifetimes_); }
  void allocate(Device& device) {
    memory_ = device.allocate(arena_.bytes);
    placed_.assign(lifetimes_.size(), nullptr);
  }

  // The buffer is memory of the caller's; null: the net's own again.
  void place(BufferId id, std::byte* at) { placed_[id] = at; }
  bool is_at(BufferId id, const std::byte* at) const { return placed_[id] == at; }

  std::byte* data(BufferId id) const {
    return placed_[id] != nullptr ? placed_[id] : memory_.data() + arena_.offsets[id];
  }
  Span span(BufferId id) const { return {data(id), lifetimes_[id].bytes}; }
  const std::vector<Lifetime>& lifetimes() const { return lifetimes_; }
  std::size_t bytes() const { return arena_.bytes; }

  // Fill in activations, gradients and workspace, at the fullest moment or a given one, and the
  // arena.
  void report(MemoryUse&) const;
  void report(MemoryUse&, std::size_t moment) const;

 private:
  std::vector<Lifetime> lifetimes_;
  std::vector<Kind> kinds_;
  Arena arena_;
  Buffer memory_;
  std::vector<std::byte*> placed_;  // by buffer; null: in memory_
};

}  // namespace convlab::nets
