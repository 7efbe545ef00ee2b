// The operations of kernels_cuda/device/device_ops.h on the CPU. Included by executor.h.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels_cuda/on_cpu/access_counts.h"
#include "kernels_cuda/on_cpu/worker.h"

namespace convlab::on_cpu {

inline int lane() { return int(self->current().lane()); }

// Called before each access that goes through load_shared() and the like.
inline void access(AccessKind kind, const void* p, unsigned bytes, unsigned touched, Site at) {
  if (reinterpret_cast<std::uintptr_t>(p) % bytes) self->fail("misaligned access", at);
  const bool shared = kind == AccessKind::shared_load || kind == AccessKind::shared_store;
  if (shared && !self->is_shared(p, bytes)) self->fail("not an address in shared memory", at);
  if (counting) count_access(kind, p, bytes, touched, at);
}
inline void access(AccessKind kind, const void* p, unsigned bytes, Site at) {
  access(kind, p, bytes, bytes, at);
}

// The most hostile legal cp.async: the destination is NaN from the issue on, and the data arrives
// only in the wait.
inline void begin_copy(void* to, const void* from, unsigned bytes, int valid, Site at) {
  if (valid < 0 || unsigned(valid) > bytes) self->fail("cp_async: valid is out of range", at);
  access(AccessKind::shared_store, to, bytes, at);
  access(AccessKind::global_load, from, bytes, unsigned(valid), at);
  for (unsigned i = 0; i < bytes / 4; ++i) static_cast<volatile unsigned*>(to)[i] = ~0u;
  Thread& thread = self->current();
  thread.copies.push_back({static_cast<char*>(to), static_cast<const char*>(from), bytes,
                           unsigned(valid), thread.copy_group});
}

inline void commit_copies() { ++self->current().copy_group; }

inline void finish_copies(unsigned pending) {
  Thread& thread = self->current();
  std::erase_if(thread.copies, [&](const Thread::Copy& copy) {
    if (copy.group + pending >= thread.copy_group) return false;
    std::memcpy(copy.to, copy.from, copy.valid);
    std::memset(copy.to + copy.valid, 0, copy.bytes - copy.valid);
    return true;
  });
}

// Ties go away from zero; infinities and NaNs stay.
inline unsigned round_to_tf32(float v) {
  const unsigned bits = std::bit_cast<unsigned>(v);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return (finite ? bits + 0x1000u : bits) & 0xffffe000u;
}

// Each lane reads the row that it points to, so that a race on it is seen; then lanes exchange.
template <int Count, bool Transposed>
void ldmatrix(unsigned* r, const void* row, Site at) {
  struct Operands {
    std::uint16_t row[8];
    unsigned out[Count];
  } mine{};
  if (lane() < 8 * Count) {
    access(AccessKind::shared_load, row, sizeof mine.row, at);
    for (int i = 0; i < 8; ++i) mine.row[i] = static_cast<const std::uint16_t*>(row)[i];
  }
  self->warp_op(~0u, mine, at, [](Operands* const lanes[32], unsigned active) {
    if (active != ~0u) self->fail("ldmatrix needs all 32 lanes", self->current().at);
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < Count; ++i) {
        const auto element = [&](int j, int k) { return unsigned(lanes[8 * i + j]->row[k]); };
        const int a = l / 4, b = 2 * (l % 4);
        lanes[l]->out[i] = Transposed ? element(b, a) | element(b + 1, a) << 16
                                      : element(a, b) | element(a, b + 1) << 16;
      }
  });
  for (int i = 0; i < Count; ++i) r[i] = mine.out[i];
}

// mma.m16n8k(8 E) with E elements a register; Value{}(register, e) is its e-th element. Products
// are summed in double and rounded once.
template <int E, class Value>
void mma_m16n8(float* d, const unsigned* a, const unsigned* b, const float* c, Site at, Value) {
  struct Operands {
    unsigned a[4], b[2];
    float c[4];
  } mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {c[0], c[1], c[2], c[3]}};
  self->warp_op(~0u, mine, at, [](Operands* const lanes[32], unsigned active) {
    if (active != ~0u) self->fail("mma needs all 32 lanes", self->current().at);
    double a[16][8 * E], b[8 * E][8], c[16][8];
    for (int l = 0; l < 32; ++l) {
      const int g = l / 4, t = l % 4;
      for (int e = 0; e < E; ++e) {
        for (int i = 0; i < 4; ++i)
          a[g + 8 * (i % 2)][E * (t + 4 * (i / 2)) + e] = double(Value{}(lanes[l]->a[i], e));
        for (int i = 0; i < 2; ++i) b[E * (t + 4 * i) + e][g] = double(Value{}(lanes[l]->b[i], e));
      }
      for (int i = 0; i < 4; ++i) c[g + 8 * (i / 2)][2 * t + i % 2] = double(lanes[l]->c[i]);
    }
    for (int m = 0; m < 16; ++m)
      for (int k = 0; k < 8 * E; ++k)
        for (int n = 0; n < 8; ++n) c[m][n] += a[m][k] * b[k][n];
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < 4; ++i)
        lanes[l]->c[i] = float(c[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2]);
  });
  for (int i = 0; i < 4; ++i) d[i] = mine.c[i];
}

}  // namespace convlab::on_cpu
