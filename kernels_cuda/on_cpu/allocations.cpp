#include "kernels_cuda/on_cpu/allocations.h"

#include <map>
#include <mutex>
#include <new>

namespace convlab::on_cpu {
namespace {

constexpr std::align_val_t alignment{256};

struct Ranges {
  std::mutex mutex;
  std::map<std::uintptr_t, std::uintptr_t> ends;  // by where they begin
};
// Never destroyed: static objects may release memory after it would be.
Ranges& ranges() {
  static Ranges* const all = new Ranges;
  return *all;
}

}  // namespace

std::byte* allocate(std::size_t bytes) {
  auto* const p = static_cast<std::byte*>(::operator new(bytes, alignment));
  const std::lock_guard lock(ranges().mutex);
  const auto begin = reinterpret_cast<std::uintptr_t>(p);
  ranges().ends[begin] = begin + bytes;
  return p;
}

void release(std::byte* p) {
  {
    const std::lock_guard lock(ranges().mutex);
    ranges().ends.erase(reinterpret_cast<std::uintptr_t>(p));
  }
  ::operator delete(p, alignment);
}

std::vector<Allocation> allocations() {
  const std::lock_guard lock(ranges().mutex);
  std::vector<Allocation> all;
  for (const auto& [begin, end] : ranges().ends) all.push_back({begin, end});
  return all;
}

}  // namespace convlab::on_cpu
