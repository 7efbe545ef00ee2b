// The functions of cuBLAS that are called here, loaded at their first call.
#pragma once

#include <cublas_v2.h>

#include "kernels_cuda/device/lazy_library.h"

namespace convlab::cuda {

extern LazyLibrary cublas_library;

CONVLAB_LAZY_FUNCTION(cublas_library, cublasCreate_v2);
CONVLAB_LAZY_FUNCTION(cublas_library, cublasDestroy_v2);
CONVLAB_LAZY_FUNCTION(cublas_library, cublasGemmStridedBatchedEx_64);
CONVLAB_LAZY_FUNCTION(cublas_library, cublasGetProperty);
CONVLAB_LAZY_FUNCTION(cublas_library, cublasGetStatusString);
CONVLAB_LAZY_FUNCTION(cublas_library, cublasSetStream_v2);
CONVLAB_LAZY_FUNCTION(cublas_library, cublasSetWorkspace_v2);

}  // namespace convlab::cuda
