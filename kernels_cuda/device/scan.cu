#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels_cuda/device/scan.h"
#include "kernels_cuda/layers/layer_work.h"
#include "kernels_cuda/view.h"

namespace convlab::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t most_blocks = 1024, elements_of_a_thread = 16;

template <class T>
__global__ void __launch_bounds__(threads)
    count_kernel(const T* elements, std::int64_t count, int* found) {
  int mine = 0;
  const std::int64_t step = std::int64_t(gridDim.x) * threads;
  for (std::int64_t i = std::int64_t(blockIdx.x) * threads + threadIdx.x; i < count; i += step) {
    const auto v = widen(load_global<T>(elements + i));
    mine += v - v == 0 ? 0 : 1;  // of an infinity or a NaN the difference is NaN
  }
  const int sum = block_sum(mine);
  if (threadIdx.x == 0) found[blockIdx.x] = sum;
}

template <class T>
__global__ void __launch_bounds__(threads)
    gather_kernel(const T* elements, const std::int64_t* places, std::int64_t count, T* to) {
  const std::int64_t i = std::int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i < count)
    store_global(to + i, load_global<T>(elements + load_global<std::int64_t>(places + i)));
}

}  // namespace

std::int64_t count_not_finite(Device& device, DType dtype, ConstSpan elements, Stream& stream) {
  const std::int64_t count = std::int64_t(elements.size()) / size_of(dtype);
  if (count == 0) return 0;
  std::vector<int> found(
      std::size_t(std::min(ceil_div(count, threads * elements_of_a_thread), most_blocks)));
  const Span host(reinterpret_cast<std::byte*>(found.data()), found.size() * sizeof(int));
  const Buffer on_card = device.allocate(host.size());
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(count_kernel<T>, unsigned(found.size()), threads, 0, stream,
           reinterpret_cast<const T*>(elements.data()), count, on_card.as<int>());
  });
  device.copy_to_host(host, on_card.data(), stream);
  return std::accumulate(found.begin(), found.end(), std::int64_t(0));
}

void gather(Device& device, DType dtype, const std::byte* elements,
            std::span<const std::int64_t> places, Span to, Stream& stream) {
  if (places.empty()) return;
  const auto count = std::int64_t(places.size());
  const Buffer from = device.allocate(places.size_bytes()), gathered = device.allocate(to.size());
  device.copy_to_device(from.data(), std::as_bytes(places), stream);
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(gather_kernel<T>, unsigned(ceil_div(count, threads)), threads, 0, stream,
           reinterpret_cast<const T*>(elements), from.as<std::int64_t>(), count, gathered.as<T>());
  });
  device.copy_to_host(to, gathered.data(), stream);
}

}  // namespace convlab::cuda
