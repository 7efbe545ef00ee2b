// CUDA's device functions for kernels that are executed on the CPU. Included by executor.h.
#pragma once

#include <vector_types.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <type_traits>

#include "kernels_cuda/on_cpu/worker.h"

namespace convlab::on_cpu {

// Every lane gets the value of lane `source`, or keeps its own if that is negative.
template <class T>
T shuffle(unsigned mask, T value, int source, Site at) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  struct Operands {
    T in, out;
    int source;
  } mine{value, value, source};
  self->warp_op(mask, mine, at, [](Operands* const lanes[32], unsigned active) {
    for (unsigned i = 0; i < 32; ++i) {
      if (!(active >> i & 1) || lanes[i]->source < 0) continue;
      if (const Operands* const from = lanes[lanes[i]->source])
        lanes[i]->out = from->in;
      else  // undefined in CUDA
        std::memset(static_cast<void*>(&lanes[i]->out), 0xff, sizeof(T));
    }
  });
  return mine.out;
}

template <class T, class Combine>
T reduce(unsigned mask, T value, Site at, Combine) {
  struct Operands {
    T value;
  } mine{value};
  self->warp_op(mask, mine, at, [](Operands* const lanes[32], unsigned active) {
    const unsigned first = unsigned(std::countr_zero(active));
    T all = lanes[first]->value;
    for (unsigned i = first + 1; i < 32; ++i)
      if (active >> i & 1) all = Combine{}(all, lanes[i]->value);
    for (unsigned i = first; i < 32; ++i)
      if (active >> i & 1) lanes[i]->value = all;
  });
  return mine.value;
}

// Relaxed, as CUDA's atomics are: they order nothing else.
template <class T, class F>
T update(T* p, F f) {
  const std::atomic_ref<T> atom(*p);
  T old = atom.load(std::memory_order_relaxed);
  while (!atom.compare_exchange_weak(old, f(old), std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace convlab::on_cpu

// --- barriers and fences

inline void __syncthreads(convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  convlab::on_cpu::self->barrier(at);
}
inline void __syncwarp(unsigned mask = ~0u,
                       convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  convlab::on_cpu::self->sync_warp(mask, at);
}
inline void __threadfence() {
  if constexpr (convlab::on_cpu::tsan) {  // it knows no fences: all are ordered, one after another
    static char token;
    convlab::on_cpu::acquire(&token);
    convlab::on_cpu::release(&token);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

// --- warps

template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32,
              convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  const int lane = int(convlab::on_cpu::self->current().lane());
  return convlab::on_cpu::shuffle(mask, v, (lane & ~(width - 1)) | (source & (width - 1)), at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32,
                 convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  const int lane = int(convlab::on_cpu::self->current().lane()), source = lane - int(delta);
  return convlab::on_cpu::shuffle(mask, v, source < (lane & ~(width - 1)) ? -1 : source, at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32,
                   convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  const int lane = int(convlab::on_cpu::self->current().lane()), source = lane + int(delta);
  return convlab::on_cpu::shuffle(mask, v, source >= (lane & ~(width - 1)) + width ? -1 : source,
                                  at);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32,
                  convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  const int lane = int(convlab::on_cpu::self->current().lane()), source = lane ^ lanes;
  return convlab::on_cpu::shuffle(mask, v, source >= (lane & ~(width - 1)) + width ? -1 : source,
                                  at);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  const unsigned mine = predicate ? 1u << convlab::on_cpu::self->current().lane() : 0u;
  return convlab::on_cpu::reduce(mask, mine, at, [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int predicate,
                      convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  return __ballot_sync(mask, predicate, at) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  return __ballot_sync(mask, !predicate, at) == 0;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned v,
                                  convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  return convlab::on_cpu::reduce(mask, v, at, [](unsigned a, unsigned b) { return a + b; });
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v,
                                  convlab::on_cpu::Site at = convlab::on_cpu::Site::here()) {
  return convlab::on_cpu::reduce(mask, v, at, [](unsigned a, unsigned b) { return a > b ? a : b; });
}

// --- atomics

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return convlab::on_cpu::update(p, [=](T old) { return T(old + v); });
}
// --- arithmetic

inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline void sincospi(double v, double* sin, double* cos) {
  *sin = std::sin(v * std::numbers::pi);
  *cos = std::cos(v * std::numbers::pi);
}
using std::max;
using std::min;
