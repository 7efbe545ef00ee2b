// CUDA's strategies, one maker per file. Internal: programs call append_cuda_algos.
#pragma once

#include <memory>
#include <vector>

#include "conv/algo.h"

namespace convlab::cuda {

// If the build found cuDNN: its algorithms by name, and its choosers.
std::vector<std::unique_ptr<ConvAlgo>> make_cudnn();
std::unique_ptr<ConvAlgo> make_cudnn_graph();

std::unique_ptr<ConvAlgo> make_direct();
std::unique_ptr<ConvAlgo> make_fft();
std::unique_ptr<ConvAlgo> make_fft_tiled();
std::unique_ptr<ConvAlgo> make_im2col();
std::unique_ptr<ConvAlgo> make_implicit_gemm();
std::unique_ptr<ConvAlgo> make_winograd();

}  // namespace convlab::cuda
