// Executes the blocks of a launch, one at a time, or in turns if they wait for each other: its
// warps take turns, and within a warp the active lanes run each instruction together.
//
// Errors are what a card would not say, or say too late: accesses outside of what was allocated or
// misaligned; instructions of a whole warp that part of it reaches; two warps that touch one
// place in shared memory without a barrier between, one of them writing; and kernels that do not
// end.
#pragma once

#include <vector_types.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels_cuda/on_cpu/allocations.h"
#include "kernels_cuda/ptx/program.h"

namespace convlab::ptx {

// Of a warp. Some seconds; what tests launch takes a hundredth of them.
constexpr std::size_t most_instructions = std::size_t(1) << 26;

enum class Access : std::uint8_t { load, store };

using on_cpu::Allocation;

struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes;
  std::span<const std::byte> parameters;
  std::span<const Allocation> allocations;  // what kernels may touch; in order
  unsigned seed;                            // 0: warps in order, each until it waits; else shuffled
  bool together = false;                    // blocks wait for each other

  unsigned threads() const { return block.x * block.y * block.z; }
  std::size_t blocks() const { return std::size_t(grid.x) * grid.y * grid.z; }
};

// Throws Fault. Returns when all blocks have ended.
void execute(const Program&, const Launch&);

class Block;

class Warp {
 public:
  Warp(Block& block, unsigned index) : block_(block), index_(index) {}
  void begin(const Launch&, uint3 block_index);

  enum class State : std::uint8_t { ready, at_barrier, ended };
  // Up to `most` instructions.
  State run(std::size_t most);

  // --- for operations

  // The 32 lanes of a register; of a predicate, its bits.
  template <class T>
  T* lanes(Register r) {
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(file_.data()) + r.at);
  }
  std::uint32_t active() const { return active_; }
  std::uint32_t alive() const { return alive_; }  // have not exited
  // Of an instruction that all of the warp's lanes must run together.
  void require_whole_warp(const Instruction&) const;

  // Addresses in the active lanes: the register's values and an offset.
  void addresses(Register, std::int64_t offset, std::uint64_t (&to)[32]);
  // Where `bytes` at an address are, all of them allowed, or a fault. `writes_later`: the bytes of
  // a copy that arrives later.
  const std::byte* parameter(std::uint64_t address, std::size_t bytes, const Instruction&);
  std::byte* global(std::uint64_t address, std::size_t bytes, unsigned lane, const Instruction&);
  std::byte* shared(std::uint64_t address, std::size_t bytes, Access, unsigned lane,
                    const Instruction&);
  std::byte* local(std::uint64_t address, std::size_t bytes, unsigned lane, const Instruction&);

  // cp.async, the most hostile that is legal: the destination is ones from the start, and the data
  // arrives in the wait.
  struct Copy {
    std::uint64_t to;
    const std::byte* from;
    std::uint32_t bytes, valid, lane, group;
  };
  void start_copy(Copy, const Instruction&);
  void commit_copies();
  void wait_for_copies(unsigned pending, const Instruction&);

  [[noreturn]] void fault(const Instruction&, unsigned lane, std::string_view what) const;
  [[noreturn]] void fault(const Instruction&, std::string_view what) const;

 private:
  // Lanes that run together up to where they meet others.
  struct Path {
    std::uint32_t at, meets, lanes;
  };

  Block& block_;
  unsigned index_;
  std::vector<std::uint64_t> file_;  // the registers
  std::vector<std::byte> local_;     // of a lane after another
  std::vector<Path> paths_;
  std::uint32_t alive_ = 0, active_ = 0;
  std::vector<Copy> copies_;
  std::uint32_t groups_[32] = {};  // that a lane has committed
  std::size_t executed_ = 0;       // instructions
};

// Shared memory with who touched each two bytes last.
class SharedMemory {
 public:
  void begin(const Program&, std::size_t dynamic_bytes);
  void pass_barrier() { ++epoch_; }

  // Null if not all of it is allocated.
  std::byte* find(std::uint64_t address, std::size_t bytes);
  // Empty, or the race that this access by a warp is part of.
  std::string touch(std::uint64_t address, std::size_t bytes, Access, unsigned warp);

 private:
  struct Place {
    std::uint32_t written = 0, read = 0;  // the epochs
    std::uint32_t readers = 0;            // warps, of that epoch
    std::uint32_t writer = 0;
  };
  std::vector<Program::Range> ranges_;
  Program::Range last_;
  std::vector<std::byte> bytes_;
  std::vector<Place> places_;
  std::uint32_t epoch_ = 0;  // barriers passed, of all blocks of the launch
};

class Block {
 public:
  Block(const Program&, const Launch&);
  void begin(std::size_t index);
  // A warp's turn of up to `most` instructions. False when all warps have ended.
  bool go_on(std::size_t most);

  const Program& program() const { return program_; }
  const Launch& launch() const { return launch_; }
  SharedMemory& shared() { return shared_; }
  std::string name() const;
  const Allocation* allocation(std::uint64_t address);

 private:
  const Program& program_;
  const Launch& launch_;
  uint3 index_{};
  SharedMemory shared_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::vector<Warp*> ready_, waiting_;
  const Allocation* last_ = nullptr;
  std::mt19937 random_;
};

}  // namespace convlab::ptx
