#include "kernels_cuda/cudnn/filter_layout.h"
#include "kernels_cuda/kernel.h"

namespace convlab::cuda {
namespace {

constexpr int block_size = 256;

// Transposes `count` matrices of rows x columns. A thread writes one element, in order; filters are
// mostly read from cache.
template <class T>
__global__ void transpose(const T* from, T* to, std::int64_t count, std::int64_t rows,
                          std::int64_t columns) {
  const std::int64_t i = std::int64_t(blockIdx.x) * block_size + threadIdx.x;
  if (i >= count * rows * columns) return;
  const std::int64_t row = i % rows, column = i / rows % columns, matrix = i / (rows * columns);
  to[i] = from[(matrix * rows + row) * columns + column];
}

void transpose(DType dtype, const void* from, void* to, std::int64_t count, std::int64_t rows,
               std::int64_t columns, Stream& stream) {
  const auto run = [&](auto bits) {
    using T = decltype(bits);
    launch(transpose<T>, unsigned(ceil_div(count * rows * columns, block_size)), block_size, 0,
           stream, static_cast<const T*>(from), static_cast<T*>(to), count, rows, columns);
  };
  if (size_of(dtype) == 2)
    run(std::uint16_t());
  else if (size_of(dtype) == 4)
    run(std::uint32_t());
  else
    run(std::uint64_t());
}

}  // namespace

void kcrs_to_krsc(const ConvProblem& p, const void* kcrs, void* krsc, Stream& stream) {
  transpose(p.dtype, kcrs, krsc, p.k, p.c / p.groups, p.r * p.s, stream);
}

void krsc_to_kcrs(const ConvProblem& p, const void* krsc, void* kcrs, Stream& stream) {
  transpose(p.dtype, krsc, kcrs, p.k, p.r * p.s, p.c / p.groups, stream);
}

}  // namespace convlab::cuda
