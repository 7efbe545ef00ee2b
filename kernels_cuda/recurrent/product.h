// The own product of recurrent layers: f32 and f64, on CUDA cores, for few rows as well as many.
// Internal.
#pragma once

#include "kernels_cuda/vendor.h"

namespace convlab::cuda {

// C = op(A) op(B), or C += if `accumulate`: of a Gemm its type, sizes, transpositions and leading
// dimensions. Results are the same bits in every run.
void own_gemm(const Gemm&, const void* a, const void* b, bool accumulate, void* c, Stream&);

}  // namespace convlab::cuda
