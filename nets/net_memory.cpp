#include "nets/net_memory.h"

namespace convlab {

void NetMemory::report(MemoryUse& use) const {
  std::size_t moments = 0, fullest = 0;
  for (const Lifetime& b : lifetimes_) moments = std::max(moments, b.last + 1);
  for (std::size_t m = 0; m < moments; ++m) {
    std::size_t live[2] = {};
    for (BufferId id = 0; id < lifetimes_.size(); ++id)
      if (lifetimes_[id].first <= m && m <= lifetimes_[id].last)
        live[std::size_t(kinds_[id])] += lifetimes_[id].bytes;
    if (live[0] + live[1] <= fullest) continue;
    fullest = live[0] + live[1];
    use.activations = live[std::size_t(Kind::activation)];
    use.gradients = live[std::size_t(Kind::gradient)];
  }
  use.arena = arena_.bytes;
}

}  // namespace convlab
