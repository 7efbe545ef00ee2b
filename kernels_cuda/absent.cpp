// The CUDA backend of a build without CUDA.
#include "conv/error.h"
#include "kernels_cuda/cuda.h"

namespace convlab {

std::string cuda_obstacle() {
  return "this build has no CUDA: install the CUDA toolkit (nvcc on PATH) and configure again";
}

int cuda_device_count() { return 0; }

std::map<std::string, std::string> missing_cuda_libraries() { return {}; }

std::unique_ptr<Device> make_cuda_device(int) { throw EnvironmentError(cuda_obstacle()); }

void append_cuda_algos(AlgoRegistry&) {}
void append_cuda_recurrent_algos(RecurrentRegistry&) {}

}  // namespace convlab
