// Ranges in the timelines of Nsight Systems and Nsight Compute (NVTX): nothing happens unless one
// of them runs this process.
#pragma once

#include <string>

#include "conv/optional/profiled_device.h"

namespace convlab::cuda {

class NvtxRanges : public ProfiledDevice {
 public:
  NvtxRanges();
  void begin_range(const std::string& name) override;
  void end_range() override;
};

}  // namespace convlab::cuda
