// Looks through results where they are. A card is also a ScanningDevice, since its memory is far
// from the host's: `dynamic_cast<ScanningDevice*>(&device)` is null for others.
#pragma once

#include <cstdint>
#include <span>

#include "conv/device.h"
#include "conv/problem.h"

namespace convlab {

class ScanningDevice {
 public:
  virtual ~ScanningDevice() = default;
  // The number of these elements that are NaN or infinite.
  virtual std::int64_t count_not_finite(DType, ConstSpan elements, Stream&) = 0;
  // Copies elements to the host, one after another: those of these places from `elements` on.
  virtual void gather(DType, const std::byte* elements, std::span<const std::int64_t> places,
                      Span to, Stream&) = 0;
};

}  // namespace convlab
