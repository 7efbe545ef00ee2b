#include "kernels_cuda/vendor.h"

#include <fmt/format.h>

#include "conv/error.h"
#include "kernels_cuda/cuda.h"

namespace convlab::cuda {

std::optional<Refusal> refuse_missing_libraries(const AlgoInfo& info) {
  const auto missing = missing_cuda_libraries();
  for (const std::string& library : info.libraries)
    if (const auto found = missing.find(library); found != missing.end())
      return Refusal{Field::library, {}, found->second};
  return {};
}

void validate(const Gemm& g) {
  const bool is_16_bit = size_of(g.dtype) == 2;
  if (g.math == MathType::tf32x3)
    throw InputError("gemm: cuBLAS has no product of three TF32 ones");
  if (g.math != MathType::f32 && g.dtype != DType::f32)
    throw InputError(fmt::format("gemm: TF32 stands for f32 products, not {}", to_string(g.dtype)));
  if (g.complex && is_16_bit)
    throw InputError(fmt::format("gemm: no complex products of {}", to_string(g.dtype)));
  if ((g.conjugate_a && !g.transpose_a) || (g.conjugate_b && !g.transpose_b))
    throw InputError("gemm: an operand is conjugated together with its transposition only");
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0)
    throw InputError(
        fmt::format("gemm: negative size in {}x{}x{}, batch {}", g.m, g.n, g.k, g.batch));
  const auto long_enough = [](const char* name, std::int64_t ld, std::int64_t row) {
    if (ld < row)
      throw InputError(fmt::format("gemm: {} is {}, a stored row has {}", name, ld, row));
  };
  long_enough("lda", g.lda, g.transpose_a ? g.m : g.k);
  long_enough("ldb", g.ldb, g.transpose_b ? g.k : g.n);
  long_enough("ldc", g.ldc, g.n);
}

void validate_fft2d(DType dtype, std::int64_t h, std::int64_t w, std::int64_t batch) {
  if (dtype != DType::f32 && dtype != DType::f64)
    throw InputError(fmt::format("an FFT takes f32 and f64, not {}", to_string(dtype)));
  if (h < 1 || w < 1 || batch < 1)
    throw InputError(fmt::format("an FFT of {} images of {}x{}", batch, h, w));
}

}  // namespace convlab::cuda
