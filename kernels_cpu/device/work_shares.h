// Work that threads take a piece at a time, so that none waits for a delayed one. Internal.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels_cpu/device/range.h"

namespace convlab::cpu {

// Items [0, count), count < 2^31, in an equal range for each thread. A thread takes its own from
// the front, so that neighbours share its caches, and then steals from the back of others' ranges.
// Taking an item orders no other memory accesses between threads.
class WorkShares {
 public:
  WorkShares(std::int64_t count, std::int64_t threads) : shares_(threads) {
    for (std::int64_t i = 0; i < threads; ++i) {
      const Range own = share(count, i, threads);
      shares_[i].left = {std::int32_t(own.begin), std::int32_t(own.end)};
    }
  }

  // At most so many items for a thread; none when no more are left. Takes at most half of another
  // thread's remainder.
  Range take(std::int64_t thread, std::int64_t most) {
    const std::int64_t threads = std::int64_t(shares_.size());
    for (std::int64_t i = 0; i < threads; ++i) {
      std::atomic<Left>& from = shares_[(thread + i) % threads].left;
      Left left = from.load(std::memory_order_relaxed);
      while (left.begin < left.end) {
        const std::int64_t size = left.end - left.begin;
        Left kept = left;
        if (i == 0)
          kept.begin += std::int32_t(std::min(most, size));
        else
          kept.end -= std::int32_t(std::min(most, (size + 1) / 2));
        if (from.compare_exchange_weak(left, kept, std::memory_order_relaxed))
          return i == 0 ? Range{left.begin, kept.begin} : Range{kept.end, left.end};
      }
    }
    return {};
  }

 private:
  struct alignas(8) Left {
    std::int32_t begin = 0, end = 0;
  };
  struct Share {
    std::atomic<Left> left;
    std::byte apart[56];  // each on a line of its own
  };
  std::vector<Share> shares_;
};

}  // namespace convlab::cpu
