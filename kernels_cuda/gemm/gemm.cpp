// Products of matrices, for fully connected layers.
#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/vendor.h"

namespace convlab::cuda {

void CudaLayerOps::gemm(DType dtype, const GemmDesc& g, const void* a, const void* b, void* c,
                        Stream& stream) const {
  validate(dtype, "gemm");
  convlab::validate(g);
  cuda::gemm({.dtype = dtype,
              .m = g.m,
              .n = g.n,
              .k = g.k,
              .transpose_a = g.transpose_a,
              .transpose_b = g.transpose_b,
              .lda = g.transpose_a ? g.m : g.k,
              .ldb = g.transpose_b ? g.k : g.n,
              .ldc = g.n},
             1, a, b, double(g.accumulate), c, stream);
}

}  // namespace convlab::cuda
