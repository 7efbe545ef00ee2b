// Kernels whose blocks wait for each other. They are launched by launch_together(), which fails
// where a card does not hold all blocks at once: so none waits for a block that cannot start.
#pragma once

#include <algorithm>

#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/kernel.h"

#ifndef __CUDACC__
#include "kernels_cuda/on_cpu/card.h"
#include "kernels_cuda/on_cpu/together.h"
#endif

namespace convlab::cuda {

// The most threads of such a kernel's block: its launch bounds, so that a thread has at most 128
// registers.
inline constexpr int most_together = 512;

// The blocks that a card holds at once.
inline std::int64_t resident_blocks(std::int64_t threads, std::int64_t shared_bytes,
                                    const DeviceInfo& card) {
  if (!fits_block(shared_bytes, card)) return 0;
  const std::int64_t by_shared = (card.block_shared_bytes + 1024) / (shared_bytes + 1024);
  return card.threads * std::min(most_together / threads, by_shared);
}

// Waits until each block has called this `round` times, counted from 1; what all of their threads
// wrote before is seen after. `arrived` is zero before the launch. All threads of a block call it.
__device__ __forceinline__ void wait_for_grid(unsigned* arrived, unsigned round CONVLAB_SITE) {
  __syncthreads();
  if (threadIdx.x == 0) {
#ifdef __CUDACC__
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    const unsigned all = round * gridDim.x;
    unsigned seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
    } while (int(seen - all) < 0);
#else
    on_cpu::wait_for_blocks(arrived, round, at);
#endif
  }
  __syncthreads();
}

// As launch(). Throws CudaError if the card does not hold all blocks at once.
template <class... P, class... A>
void launch_together(void (*kernel)(P...), unsigned blocks, unsigned threads,
                     std::size_t shared_bytes, Stream& stream, A&&... args) {
#ifdef __CUDACC__
  const cudaStream_t native = native_stream(stream);
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               int(shared_bytes)),
          "cudaFuncSetAttribute");
  const auto call = [&](P... values) {
    void* pointers[] = {&values...};
    check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), blocks, threads,
                                      pointers, shared_bytes, native),
          "cudaLaunchCooperativeKernel");
  };
  call(static_cast<P>(std::forward<A>(args))...);
#else
  const bool fit =
      blocks <= resident_blocks(threads, std::int64_t(shared_bytes), on_cpu::card_of(stream));
  check(fit ? cudaSuccess : cudaErrorCooperativeLaunchTooLarge, "launch_together");
  check(on_cpu::launch_together(kernel, blocks, threads, shared_bytes, std::forward<A>(args)...),
        "launch_together");
#endif
}

}  // namespace convlab::cuda
