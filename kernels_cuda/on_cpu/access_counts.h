// Counts the cost of a kernel's accesses on the card: passes over the 32 banks of shared memory,
// and 32-byte sectors of global memory. Covers accesses through load_shared() and its siblings,
// cp_async and ldmatrix.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels_cuda/on_cpu/worker.h"

namespace convlab::on_cpu {

enum class AccessKind : std::uint8_t { shared_load, shared_store, global_load, global_store };

// All warps' accesses of one kind and width from one source line.
struct AccessCount {
  Site site;
  AccessKind kind = AccessKind::shared_load;
  unsigned bytes = 0;             // by one lane
  std::int64_t requests = 0;      // by one warp
  std::int64_t transactions = 0;  // passes over the banks, or sectors
  std::int64_t least = 0;         // the same without conflicts, or with no byte of a sector wasted
};

// Counts the accesses of all kernels launched by the function, in the order of source lines.
std::vector<AccessCount> count_accesses(const std::function<void()>& launches);

// --- for the executor

inline bool counting = false;

// `touched` of the lane's `bytes` are really accessed: none of a copy that only fills with zeros.
void count_access(AccessKind, const void* p, unsigned bytes, unsigned touched, Site);
void sum_up_epoch();
// Between two barriers, a lane's i-th access from a line belongs together with the i-th accesses of
// the other lanes.
CONVLAB_UNSEEN inline void end_of_epoch() {
  if (counting) sum_up_epoch();
}

}  // namespace convlab::on_cpu
