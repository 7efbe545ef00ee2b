// ScanningDevice by kernels.
#pragma once

#include "conv/optional/scanning_device.h"

namespace convlab::cuda {

std::int64_t count_not_finite(Device&, DType, ConstSpan elements, Stream&);
void gather(Device&, DType, const std::byte* elements, std::span<const std::int64_t> places,
            Span to, Stream&);

}  // namespace convlab::cuda
