// A barrier for threads that wait less than a microsecond for each other, thousands of times a run:
// recurrent steps. Internal.
#pragma once

#include <hwy/cache_control.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace convlab::cpu {

class SpinBarrier {
 public:
  // Waits for all of so many threads; orders what they wrote before what they then read. A thread
  // that waits for long gives up its core, which the one it waits for may need.
  void wait(int threads) {
    if (threads == 1) return;
    const std::uint32_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins < most_spins)
        hwy::Pause();
      else
        std::this_thread::yield();
    }
  }

 private:
  static constexpr int most_spins = 2000;
  alignas(64) std::atomic<int> arrived_ = 0;
  alignas(64) std::atomic<std::uint32_t> round_ = 0;
};

}  // namespace convlab::cpu
