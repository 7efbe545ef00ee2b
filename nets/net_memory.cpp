#include "nets/net_memory.h"

namespace convlab {

void NetMemory::report(MemoryUse& use) const {
  std::size_t moments = 0;
  for (const Lifetime& b : lifetimes_) moments = std::max(moments, b.last + 1);
  MemoryUse fullest;
  for (std::size_t m = 0; m < moments; ++m) {
    MemoryUse now;
    report(now, m);
    if (now.activations + now.gradients > fullest.activations + fullest.gradients) fullest = now;
  }
  use.activations = fullest.activations;
  use.gradients = fullest.gradients;
  use.arena = arena_.bytes;
}

void NetMemory::report(MemoryUse& use, std::size_t moment) const {
  std::size_t live[2] = {};
  for (BufferId id = 0; id < lifetimes_.size(); ++id)
    if (lifetimes_[id].first <= moment && moment <= lifetimes_[id].last)
      live[std::size_t(kinds_[id])] += lifetimes_[id].bytes;
  use.activations = live[std::size_t(Kind::activation)];
  use.gradients = live[std::size_t(Kind::gradient)];
  use.arena = arena_.bytes;
}

}  // namespace convlab
