#include "kernels_cuda/device/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace convlab::cuda {

// Its first call writes pointers that the calls of other threads read without an order between.
NvtxRanges::NvtxRanges() {
  [[maybe_unused]] static const bool ready = (nvtxInitialize(nullptr), true);
}

void NvtxRanges::begin_range(const std::string& name) { nvtxRangePushA(name.c_str()); }
void NvtxRanges::end_range() { nvtxRangePop(); }

}  // namespace convlab::cuda
