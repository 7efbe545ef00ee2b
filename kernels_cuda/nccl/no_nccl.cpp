// Of a build without NCCL.
#include "conv/error.h"
#include "kernels_cuda/nccl/nccl.h"

namespace convlab::cuda {

std::string nccl_version() {
  throw EnvironmentError(
      "this build has no NCCL: install libnccl-dev, or the Python wheel nvidia-nccl-cu13, and "
      "configure again");
}

std::string make_nccl_id() { return nccl_version(); }

std::unique_ptr<DeviceGroup> join_nccl(int, const std::string&, int, int) {
  nccl_version();
  return nullptr;
}

}  // namespace convlab::cuda
