// Loops that do one thing as fast as the card can: multiply-adds in registers, on its ordinary
// cores and on its tensor cores, and reads and writes of one level of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "conv/device.h"
#include "conv/optional/ceiling_loops.h"
#include "conv/problem.h"

namespace convlab::cuda {

inline constexpr int ceiling_threads = 256;               // of a block
inline constexpr std::size_t ceiling_tile_bytes = 16384;  // read or written by a block at a time

struct CeilingRun {
  int blocks = 1, rounds = 1;
  void* sums = nullptr;  // device memory, an element for each thread's sum
};

// Each queues one run and returns the FLOPs or bytes of it.

// f32 or f64. Sums are of that type.
double queue_multiply_adds(DType, const CeilingRun&, Stream&);
// On tensor cores by mma.sync, accumulated in f32: f16, bf16, and f32 as TF32. Cards before sm_90
// have no other instruction; libraries reach more on later ones by wgmma.
double queue_tensor_multiply_adds(DType, const CeilingRun&, Stream&);

// Sums from here on are unsigned 32-bit ones, of all words read, modulo 2^32.
double queue_shared_reads(const CeilingRun&, Stream&);
// Every round reads the whole tiles of `data`, bypassing L1.
double queue_reads(ConstSpan data, const CeilingRun&, Stream&);
// Every round fills the whole tiles of `data` with this word plus its own number, from 0.
double queue_writes(Span data, std::uint32_t word, const CeilingRun&, Stream&);

struct CeilingSizes {
  std::int64_t cached_bytes = 0;    // fit in L2
  std::int64_t uncached_bytes = 0;  // far more than fits
  int rounds = 1;                   // of the work within a multiprocessor
};

// All of the above, for CeilingDevice.
std::vector<CeilingLoop> ceiling_loops(Device&, const CeilingSizes&);

}  // namespace convlab::cuda
