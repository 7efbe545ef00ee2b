// The card's part in averages over several cards (conv/optional/averaging_device.h): by NCCL, which
// is loaded when it is first used.
#pragma once

#include <memory>
#include <string>

#include "conv/optional/averaging_device.h"

namespace convlab::cuda {

std::string nccl_version();
std::string make_nccl_id();
std::unique_ptr<DeviceGroup> join_nccl(int device, const std::string& id, int rank, int size);

}  // namespace convlab::cuda
