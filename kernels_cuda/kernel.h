// For files with kernels. They compile twice: by nvcc for the GPU, and by the host compiler for the
// CPU, where on_cpu/executor.h executes them, so that tests run every kernel without a card.
//
// Rules for kernels:
// - SHARED and SHARED_DYN in place of __shared__; launch() in place of <<<>>>.
// - Inline PTX only in device_ops.h and together.h, with its meaning on the CPU. No __CUDA_ARCH__.
// - Block size a multiple of 32; full or exact masks.
// - Shuffles, ballots and mma order no memory: __syncwarp() between steps through shared memory.
// - One __syncthreads() a source line, reached by all threads that have not exited.
// - No spinning on memory that others write, but by wait_for_grid() (kernels_cuda/together.h).
// - Typed loads and stores, no memcpy or memset. In main loops load_shared(), store_shared(),
//   load_global() and store_global() of device_ops.h, which the CPU checks. Tests count their bank
//   conflicts and uncoalesced accesses.
// - Arguments by value and trivially copyable; constexpr tables, not __constant__ uploads.
#pragma once

#include "conv/device.h"
#include "kernels_cuda/device/runtime.h"

#ifdef __CUDACC__

// SHARED(float, tile, [32][33]): static shared memory.
#define SHARED(T, name, ...) __shared__ __align__(16) T name __VA_ARGS__
// SHARED_DYN(float, tiles): a pointer to the dynamic shared memory of the launch.
#define SHARED_DYN(T, name)                                            \
  extern __shared__ __align__(128) unsigned char convlab_shared_dyn[]; \
  T* const name = reinterpret_cast<T*>(convlab_shared_dyn)

#else
#include "kernels_cuda/on_cpu/device.h"
#include "kernels_cuda/on_cpu/executor.h"
#endif

#include "kernels_cuda/device/device_ops.h"

namespace convlab::cuda {

// Queues a kernel with shared_bytes of dynamic shared memory. Throws CudaError.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes, Stream& stream,
            A&&... args) {
#ifdef __CUDACC__
  const cudaStream_t native = native_stream(stream);  // and makes its device current
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               int(shared_bytes)),
          "cudaFuncSetAttribute");
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = native;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<A>(args))...),
        "cudaLaunchKernelEx");
#else
  check(on_cpu::has_shared_memory(stream, shared_bytes) ? cudaSuccess : cudaErrorInvalidValue,
        "launch");
  check(on_cpu::launch(kernel, grid, block, shared_bytes, native_stream(stream),
                       std::forward<A>(args)...),
        "launch");
#endif
}

}  // namespace convlab::cuda
