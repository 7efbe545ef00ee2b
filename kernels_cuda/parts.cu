#include "kernels_cuda/parts.h"

namespace convlab::cuda {
namespace {

constexpr int block_size = 256;

template <class T>
__global__ void __launch_bounds__(block_size)
    sum_parts(const Accumulator<T>* partial, int parts, std::int64_t elements, int channels,
              int pixels, OutputEpilogue<T> epilogue) {
  using A = Accumulator<T>;
  const std::int64_t i = std::int64_t(blockIdx.x) * block_size + threadIdx.x;
  if (i >= elements) return;
  A sum = 0;
  for (int part = 0; part < parts; ++part) sum += load_global<A>(partial + part * elements + i);
  epilogue.store(i, int(i / pixels % channels), sum);
}

}  // namespace

template <class T>
void add_parts(const Accumulator<T>* partial, int parts, std::int64_t elements, int channels,
               int pixels, const OutputEpilogue<T>& epilogue, Stream& stream) {
  launch(sum_parts<T>, unsigned(ceil_div(elements, block_size)), block_size, 0, stream, partial,
         parts, elements, channels, pixels, epilogue);
}

template void add_parts(const float*, int, std::int64_t, int, int, const OutputEpilogue<float>&,
                        Stream&);
template void add_parts(const double*, int, std::int64_t, int, int, const OutputEpilogue<double>&,
                        Stream&);
template void add_parts(const float*, int, std::int64_t, int, int, const OutputEpilogue<f16>&,
                        Stream&);
template void add_parts(const float*, int, std::int64_t, int, int, const OutputEpilogue<bf16>&,
                        Stream&);

}  // namespace convlab::cuda
