// The functions of NCCL that are called here, loaded at their first call.
#pragma once

#include <nccl.h>

#include "kernels_cuda/device/lazy_library.h"

namespace convlab::cuda {

extern LazyLibrary nccl_library;

CONVLAB_LAZY_FUNCTION(nccl_library, ncclAllReduce);
CONVLAB_LAZY_FUNCTION(nccl_library, ncclCommAbort);
CONVLAB_LAZY_FUNCTION(nccl_library, ncclCommDestroy);
CONVLAB_LAZY_FUNCTION(nccl_library, ncclCommGetAsyncError);
CONVLAB_LAZY_FUNCTION(nccl_library, ncclCommInitRank);
CONVLAB_LAZY_FUNCTION(nccl_library, ncclGetErrorString);
CONVLAB_LAZY_FUNCTION(nccl_library, ncclGetLastError);
CONVLAB_LAZY_FUNCTION(nccl_library, ncclGetUniqueId);
CONVLAB_LAZY_FUNCTION(nccl_library, ncclGetVersion);

}  // namespace convlab::cuda
