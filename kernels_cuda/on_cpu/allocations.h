// The memory of the device whose kernels are executed on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace convlab::on_cpu {

struct Allocation {
  std::uintptr_t begin, end;
};

// Exactly sized, for the address sanitizer; aligned as cudaMalloc does. Throws std::bad_alloc.
std::byte* allocate(std::size_t bytes);
void release(std::byte*);

// All that there are now, in order.
std::vector<Allocation> allocations();

}  // namespace convlab::on_cpu
