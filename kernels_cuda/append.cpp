#include "conv/two_dimensional.h"
#include "kernels_cuda/algos.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/recurrent/algos.h"

namespace convlab {

void append_cuda_algos(AlgoRegistry& registry) {
  registry.append(std::make_unique<FlatWherePossible>(cuda::make_direct()));
  registry.append(std::make_unique<TwoDimensional>(cuda::make_fft()));
  registry.append(std::make_unique<TwoDimensional>(cuda::make_fft_tiled()));
  registry.append(std::make_unique<TwoDimensional>(cuda::make_im2col()));
  registry.append(std::make_unique<FlatWherePossible>(cuda::make_implicit_gemm()));
  registry.append(std::make_unique<TwoDimensional>(cuda::make_winograd()));
#if CONVLAB_HAVE_CUDNN
  for (auto& algo : cuda::make_cudnn()) registry.append(std::move(algo));
#endif
}

void append_cuda_recurrent_algos(RecurrentRegistry& registry) {
  registry.append(cuda::make_recurrent_stepwise());
  registry.append(cuda::make_recurrent_batched_input());
  registry.append(cuda::make_recurrent_persistent());
#if CONVLAB_HAVE_CUDNN
  for (auto& algo : cuda::make_cudnn_rnn()) registry.append(std::move(algo));
#endif
}

}  // namespace convlab
