// The vendor seam's products, by cuBLAS.
#include <cuda_runtime.h>

#include <algorithm>
#include <complex>

#include "kernels_cuda/device/cuda_device.h"
#include "kernels_cuda/gemm/column_major.h"
#include "kernels_cuda/gemm/cublas_calls.h"

namespace convlab::cuda {

constinit LazyLibrary cublas_library(
    "cuBLAS", "libcublas.so.", CUBLAS_VER_MAJOR, CONVLAB_LIBRARY_FOLDER,
    "it is part of the CUDA toolkit: add its folder to LD_LIBRARY_PATH");

namespace {

// The depth of a grid: a deeper batch might not be one launch.
constexpr std::int64_t most_batch = 65535;

void check(cublasStatus_t status, const char* call, const char* file = __builtin_FILE(),
           int line = __builtin_LINE()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_library_failed(status == CUBLAS_STATUS_ALLOC_FAILED, cublasGetStatusString(status), call,
                       file, line);
}

cublasOperation_t operation(Op op) {
  return op == Op::none ? CUBLAS_OP_N : op == Op::transpose ? CUBLAS_OP_T : CUBLAS_OP_C;
}

cudaDataType_t data_type(const Gemm& g) {
  switch (g.dtype) {
    case DType::f32:
      return g.complex ? CUDA_C_32F : CUDA_R_32F;
    case DType::f64:
      return g.complex ? CUDA_C_64F : CUDA_R_64F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
  }
  return CUDA_R_32F;
}

cublasComputeType_t compute_type(const Gemm& g) {
  if (g.dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  return g.math == MathType::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

}  // namespace

cublasContext* CudaStream::cublas() {
  if (cublas_) return cublas_.get();
  constexpr std::size_t workspace_bytes = 32 << 20;  // what cuBLAS recommends for Hopper
  const cudaStream_t stream = native();
  cublasHandle_t handle = nullptr;
  check(cublasCreate(&handle), "cublasCreate");
  cublas_ = {handle, [](cublasContext* h) { cublasDestroy(h); }};
  cublas_workspace_ = allocate_on(device_, workspace_bytes);
  check(cublasSetStream(handle, stream), "cublasSetStream");  // resets the workspace: goes first
  check(cublasSetWorkspace(handle, cublas_workspace_.data(), workspace_bytes),
        "cublasSetWorkspace");
  return handle;
}

void gemm(const Gemm& g, double alpha, const void* a, const void* b, double beta, void* c,
          Stream& stream) {
  validate(g);
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  const ColumnMajorGemm s = column_major(g);
  const std::complex<double> alpha64(alpha), beta64(beta);
  const std::complex<float> alpha32{float(alpha)}, beta32{float(beta)};
  // Real products read the real part only, which comes first.
  const bool is_f64 = g.dtype == DType::f64;
  const void* const alpha_at = is_f64 ? static_cast<const void*>(&alpha64) : &alpha32;
  const void* const beta_at = is_f64 ? static_cast<const void*>(&beta64) : &beta32;
  const cudaDataType_t type = data_type(g);
  CudaStream& on = cuda_stream(stream);
  on.native();
  const std::int64_t element = size_of(g.dtype) * (g.complex ? 2 : 1);
  const auto matrix = [&](const void* first, std::int64_t stride, std::int64_t i) {
    return static_cast<const std::byte*>(first) + i * stride * element;
  };
  for (std::int64_t i = 0; i < s.batch; i += most_batch)
    check(cublasGemmStridedBatchedEx_64(
              on.cublas(), operation(s.op_first), operation(s.op_second), s.m, s.n, s.k, alpha_at,
              matrix(b, s.stride_first, i), type, s.ld_first, s.stride_first,
              matrix(a, s.stride_second, i), type, s.ld_second, s.stride_second, beta_at,
              const_cast<std::byte*>(matrix(c, s.stride_c, i)), type, s.ld_c, s.stride_c,
              std::min(s.batch - i, most_batch), compute_type(g), CUBLAS_GEMM_DEFAULT),
          "cublasGemmStridedBatchedEx");
}

}  // namespace convlab::cuda
