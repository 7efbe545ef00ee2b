// Launches whose blocks wait for each other: each block has an OS thread of its own.
#pragma once

#include "kernels_cuda/on_cpu/executor.h"

namespace convlab::on_cpu {

// All blocks at once. Done when it returns.
cudaError_t run_together(const Launch&);

template <class... P, class... A>
cudaError_t launch_together(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
                            A&&... args) {
  const auto call = [kernel, ... args = static_cast<P>(std::forward<A>(args))] { kernel(args...); };
  return run_together(
      {.grid = grid,
       .block = block,
       .shared_bytes = shared_bytes,
       .call = [](const void* kernel) { (*static_cast<decltype(&call)>(kernel))(); },
       .kernel = &call,
       .seed = config.seed});
}

// The OS thread waits until one fiber of each block is here.
void wait_for_blocks(const unsigned* arrived, unsigned round, Site);

}  // namespace convlab::on_cpu
