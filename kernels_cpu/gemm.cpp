// Products of matrices, for fully connected layers.
#include <cblas.h>

#include "kernels_cpu/layer_ops.h"
#include "kernels_cpu/thread_count.h"

namespace convlab::cpu {

void CpuLayerOps::gemm(DType dtype, const GemmDesc& g, const void* a, const void* b, void* c,
                       Stream&) const {
  validate(dtype, "gemm");
  validate(g);
  const ThreadCount scope(threads_);
  const auto op = [](bool transpose) { return transpose ? CblasTrans : CblasNoTrans; };
  const auto call = [&]<class T>(auto gemm, T beta) {
    gemm(CblasRowMajor, op(g.transpose_a), op(g.transpose_b), int(g.m), int(g.n), int(g.k), T(1),
         static_cast<const T*>(a), int(g.transpose_a ? g.m : g.k), static_cast<const T*>(b),
         int(g.transpose_b ? g.k : g.n), beta, static_cast<T*>(c), int(g.n));
  };
  if (dtype == DType::f32)
    call(cblas_sgemm, float(g.accumulate));
  else
    call(cblas_dgemm, double(g.accumulate));
}

}  // namespace convlab::cpu
