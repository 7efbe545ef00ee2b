// The functions of cuFFT that are called here, loaded at their first call.
#pragma once

#include <cufft.h>

#include "kernels_cuda/device/lazy_library.h"

namespace convlab::cuda {

extern LazyLibrary cufft_library;

CONVLAB_LAZY_FUNCTION(cufft_library, cufftCreate);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftDestroy);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftExecC2R);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftExecD2Z);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftExecR2C);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftExecZ2D);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftGetProperty);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftMakePlanMany64);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftSetAutoAllocation);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftSetStream);
CONVLAB_LAZY_FUNCTION(cufft_library, cufftSetWorkArea);

}  // namespace convlab::cuda
