// CUDA's strategies for recurrent layers, one maker per file. Internal: programs call
// append_cuda_recurrent_algos.
#pragma once

#include <memory>
#include <vector>

#include "recurrent/algo.h"

namespace convlab::cuda {

std::unique_ptr<RecurrentAlgo> make_recurrent_stepwise();
std::unique_ptr<RecurrentAlgo> make_recurrent_batched_input();
std::unique_ptr<RecurrentAlgo> make_recurrent_persistent();

// If the build found cuDNN: its algorithms by name.
std::vector<std::unique_ptr<RecurrentAlgo>> make_cudnn_rnn();

}  // namespace convlab::cuda
