// Executes CUDA kernels on the CPU: every CUDA thread is a fiber, and the fibers of a block share
// one OS thread (worker.h). Deterministic: in order, or shuffled by a seed.
//
// Sanitizers understand it: the address sanitizer finds accesses out of bounds, and the thread
// sanitizer is a true race detector for kernels, because only __syncthreads(), __syncwarp() and
// __threadfence() order what fibers do.
#pragma once

#include <driver_types.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cstddef>
#include <utility>

#include "kernels_cuda/on_cpu/builtins.h"
#include "kernels_cuda/on_cpu/device_ops.h"
#include "kernels_cuda/on_cpu/schedule.h"
#include "kernels_cuda/on_cpu/worker.h"

// Without this, `__shared__ float x[N]` would quietly be an array of each thread's own.
#undef __shared__
#undef __launch_bounds__
#define __launch_bounds__(...)

// Shared memory is full of NaNs when a block begins.
#define SHARED(T, name, ...)                      \
  typedef T name##_type __VA_ARGS__;              \
  static char name##_tag;                         \
  name##_type& name = *static_cast<name##_type*>( \
      convlab::on_cpu::self->static_shared(&name##_tag, sizeof(name##_type)))
#define SHARED_DYN(T, name) T* const name = static_cast<T*>(convlab::on_cpu::self->dynamic_shared())

namespace convlab::on_cpu {

cudaError_t run(const Launch&);

// One launch at a time, from any thread; done when it returns.
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t, A&&... args) {
  const auto call = [kernel, ... args = static_cast<P>(std::forward<A>(args))] { kernel(args...); };
  return run({.grid = grid,
              .block = block,
              .shared_bytes = shared_bytes,
              .call = [](const void* kernel) { (*static_cast<decltype(&call)>(kernel))(); },
              .kernel = &call,
              .seed = config.seed});
}

}  // namespace convlab::on_cpu
