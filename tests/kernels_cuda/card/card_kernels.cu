#include "kernels_cuda/kernel.h"
#include "kernels_cuda/together.h"
#include "tests/kernels_cuda/card/card_kernels.h"

namespace convlab::cuda {
namespace {

__global__ void increment(std::int32_t* values, std::int64_t count, int times) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) values[i] += times;
}

__global__ void store(std::int32_t* address) { *address = 1; }

__global__ void multiply(const std::uint32_t* operands, float* sums) {
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = operands[threadIdx.x * 6 + i];
  for (int i = 0; i < 2; ++i) b[i] = operands[threadIdx.x * 6 + 4 + i];
  float sum[4] = {};
  mma_m16n8k8_tf32(sum, a, b, sum);
  for (int i = 0; i < 4; ++i) sums[threadIdx.x * 4 + i] = sum[i];
}

// Each block adds up what all blocks wrote in the round before.
__global__ void __launch_bounds__(most_together)
    add_all(unsigned* values, unsigned* arrived, int rounds) {
  for (int round = 1; round <= rounds; ++round) {
    unsigned sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += values[(round - 1) * gridDim.x + i];
    __syncthreads();
    if (threadIdx.x == 33) values[round * gridDim.x + blockIdx.x] = sum + blockIdx.x;
    wait_for_grid(arrived, unsigned(round));
  }
}

}  // namespace

void queue_sums_of_all(unsigned* values, unsigned* arrived, int rounds, unsigned blocks,
                       Stream& stream) {
  launch_together(add_all, blocks, most_together, 0, stream, values, arrived, rounds);
}

void queue_increment(std::int32_t* values, std::int64_t count, int times, Stream& stream) {
  launch(increment, unsigned(ceil_div(count, 256)), 256, 0, stream, values, count, times);
}

void queue_tf32_product(const std::uint32_t* operands, float* sums, Stream& stream) {
  launch(multiply, 1, 32, 0, stream, operands, sums);
}

void queue_illegal_store(Stream& stream) {
  launch(store, 1, 32, 0, stream, reinterpret_cast<std::int32_t*>(std::uintptr_t(64)));
}

}  // namespace convlab::cuda
