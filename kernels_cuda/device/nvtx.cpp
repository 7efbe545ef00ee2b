#include "kernels_cuda/device/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace convlab::cuda {

void NvtxRanges::begin_range(const std::string& name) { nvtxRangePushA(name.c_str()); }
void NvtxRanges::end_range() { nvtxRangePop(); }

}  // namespace convlab::cuda
