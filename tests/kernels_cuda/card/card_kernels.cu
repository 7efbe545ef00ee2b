#include "kernels_cuda/kernel.h"
#include "tests/kernels_cuda/card/card_kernels.h"

namespace convlab::cuda {
namespace {

__global__ void increment(std::int32_t* values, std::int64_t count, int times) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) values[i] += times;
}

__global__ void store(std::int32_t* address) { *address = 1; }

}  // namespace

void queue_increment(std::int32_t* values, std::int64_t count, int times, Stream& stream) {
  launch(increment, unsigned(ceil_div(count, 256)), 256, 0, stream, values, count, times);
}

void queue_illegal_store(Stream& stream) {
  launch(store, 1, 32, 0, stream, reinterpret_cast<std::int32_t*>(std::uintptr_t(64)));
}

}  // namespace convlab::cuda
