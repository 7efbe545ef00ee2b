// The forward product of implicit_gemm for other algorithms, which multiply a block of pixels as a
// problem of its own: plan_pixels, pack_pixels, then run_thread. Internal.
#pragma once

#include "conv/algo.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"

namespace convlab::cpu {

// Of one group, by one team: a device with its threads. The config has `depth`, unless the input is
// plain.
PixelGemm plan_pixels(const ConvProblem&, const Config&, const DeviceInfo&);
// From KCRS to packed_elements() of each group.
void pack_pixels(const PixelGemm&, const ConvProblem&, ConstSpan w, Span packed, int threads);

}  // namespace convlab::cpu
