// Executes blocks, one at a time, on one OS thread: every CUDA thread is a fiber, and fibers switch
// only where a CUDA thread may wait: at __syncthreads() and in operations of a warp.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels_cuda/on_cpu/fiber.h"
#include "kernels_cuda/on_cpu/sanitizers.h"

inline constinit thread_local uint3 threadIdx{}, blockIdx{};
inline constinit thread_local dim3 blockDim{}, gridDim{};

namespace convlab::on_cpu {

// A place in a kernel's source. As a default argument, here() is the caller's.
struct Site {
  const char* file = nullptr;
  int line = 0;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  friend constexpr bool operator==(const Site&, const Site&) = default;
};

struct Thread {
  enum class State : std::uint8_t { ready, at_barrier, in_warp_op, done };

  CONVLAB_UNSEEN unsigned lane() const { return rank % 32; }

  State state = State::ready;
  unsigned rank = 0;  // in its block

  // In a warp operation: the participants, this lane's operands and result, and the function that
  // the last lane to arrive calls for all.
  unsigned mask = 0;
  void* operands = nullptr;
  void (*resolve)(Thread* warp, unsigned active) = nullptr;

  Site at;  // where it waits
  uint3 index{};
  Fiber fiber;

  // Copies by cp.async in flight.
  struct Copy {
    char* to;
    const char* from;
    unsigned bytes, valid, group;
  };
  std::vector<Copy> copies;
  unsigned copy_group = 0;
};

// The parameters that all blocks of a launch share.
struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes;
  void (*call)(const void* kernel);  // runs one thread
  const void* kernel;
  unsigned seed;  // 0: threads take turns in order

  unsigned threads() const { return block.x * block.y * block.z; }
  std::size_t blocks() const { return std::size_t(grid.x) * grid.y * grid.z; }
};

class Worker {
 public:
  // --- for launch()

  void begin(const Launch&);
  void run_block(std::size_t block);
  void end();

  // --- for the functions that kernels call

  CONVLAB_UNSEEN Thread& current() { return *current_; }
  [[noreturn]] void fail(const char* what, Site) const;

  void* static_shared(const void* tag, std::size_t bytes);
  void* dynamic_shared() { return dynamic_.get(); }
  CONVLAB_UNSEEN bool is_shared(const void* p, std::size_t bytes) {
    return last_shared_.holds(p, bytes) || find_shared(p, bytes);
  }

  void barrier(Site);
  void sync_warp(unsigned mask, Site);

  // Waits for all lanes of the mask that have not exited, then one of them calls
  // resolve(lanes, active): lanes[i] is the operands that lane i passed, null where bit i of
  // `active` is not set. `resolve` captures nothing: all lanes must be in the same operation.
  template <class Operands, class Resolve>
  CONVLAB_UNSEEN void warp_op(unsigned mask, Operands& operands, Site at, Resolve) {
    wait_for_warp(mask, &operands, at, [](Thread* warp, unsigned active) {
      Operands* lanes[32] = {};
      for (unsigned i = 0; i < 32; ++i)
        if (active >> i & 1) lanes[i] = static_cast<Operands*>(warp[i].operands);
      Resolve{}(lanes, active);
    });
  }

 private:
  struct FreeShared {
    void operator()(std::byte* p) const;
  };
  using SharedMemory = std::unique_ptr<std::byte, FreeShared>;
  static SharedMemory allocate_shared(std::size_t bytes);

  struct Range {
    const std::byte *begin = nullptr, *end = nullptr;
    CONVLAB_UNSEEN bool holds(const void* p, std::size_t bytes) const {
      const std::byte* const first = static_cast<const std::byte*>(p);
      return first >= begin && first + bytes <= end;
    }
  };
  bool find_shared(const void* p, std::size_t bytes);

  struct StaticShared {
    const void* tag;
    std::size_t bytes;
    SharedMemory memory;
  };

  // Fibers that can run, first in first out, or drawn at random. A ring in plain memory.
  struct Ready {
    Thread** ring = nullptr;
    unsigned capacity = 0, head = 0, count = 0;
    CONVLAB_UNSEEN Thread*& operator[](unsigned i) const {
      const unsigned at = head + i;
      return ring[at < capacity ? at : at - capacity];
    }
  };

  // Orders memory for __syncwarp() with one mask. Tokens take turns, because a lane may arrive at
  // the next __syncwarp() before another has left this one.
  struct WarpSync {
    unsigned mask = 0, generation = 0;
    char tokens[2];
  };
  static constexpr unsigned max_masks = 16;

  static void fiber_main();
  void exit_thread();
  void run_next();  // leaves the current thread until it is its turn again
  void go_to(Fiber& from, Thread& to, bool from_ends);
  void offer_turn();
  void make_ready(Thread&);
  Thread* take_ready();
  unsigned random();

  void open_barrier();
  void wait_for_warp(unsigned mask, void* operands, Site,
                     void (*resolve)(Thread* warp, unsigned active));
  bool try_warp(Thread&);
  WarpSync& warp_sync(unsigned mask, Site);

  const Launch* launch_ = nullptr;

  std::unique_ptr<FiberStacks> stacks_;
  std::unique_ptr<Thread[]> threads_;
  std::unique_ptr<Thread*[]> ring_;
  std::unique_ptr<WarpSync[][max_masks]> warp_syncs_;
  unsigned capacity_ = 0, count_ = 0;

  SharedMemory dynamic_;
  std::vector<StaticShared> static_;
  std::size_t static_bytes_ = 0;
  Range last_shared_;  // most accesses are to the same array as the one before

  Fiber root_;  // the OS thread
  Thread* current_ = nullptr;
  Ready ready_;
  unsigned alive_ = 0, at_barrier_ = 0, barriers_ = 0, random_ = 0;
  char block_token_, barrier_tokens_[2];
};

// The worker whose fiber runs; null outside kernels.
inline constinit thread_local Worker* self = nullptr;

}  // namespace convlab::on_cpu
