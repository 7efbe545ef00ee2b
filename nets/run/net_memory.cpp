#include "nets/run/net_memory.h"

namespace convlab::nets {

namespace {

std::size_t live(const MemoryUse& use) { return use.activations + use.gradients + use.workspace; }

}  // namespace

void NetMemory::report(MemoryUse& use) const {
  std::size_t moments = 0;
  for (const Lifetime& b : lifetimes_) moments = std::max(moments, b.last + 1);
  MemoryUse fullest;
  for (std::size_t m = 0; m < moments; ++m) {
    MemoryUse now;
    report(now, m);
    if (live(now) > live(fullest)) fullest = now;
  }
  use.activations = fullest.activations;
  use.gradients = fullest.gradients;
  use.workspace = fullest.workspace;
  use.arena = arena_.bytes;
}

void NetMemory::report(MemoryUse& use, std::size_t moment) const {
  std::size_t bytes[3] = {};
  for (BufferId id = 0; id < lifetimes_.size(); ++id)
    if (lifetimes_[id].first <= moment && moment <= lifetimes_[id].last)
      bytes[std::size_t(kinds_[id])] += lifetimes_[id].bytes;
  use.activations = bytes[std::size_t(Kind::activation)];
  use.gradients = bytes[std::size_t(Kind::gradient)];
  use.workspace = bytes[std::size_t(Kind::workspace)];
  use.arena = arena_.bytes;
}

}  // namespace convlab::nets
