// Cards that do not exist, so that tests see what algorithms do on each kind.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "conv/device.h"

namespace convlab::on_cpu {

// What make_cuda_device() says of itself, in which $CONVLAB_CARD may change something (device.cpp),
// and a device that says something else. A launch with more dynamic shared memory than its blocks
// have fails.
DeviceInfo default_card();
std::unique_ptr<Device> make_card(const DeviceInfo&);

// Whether the stream's card has so much shared memory for a block.
bool has_shared_memory(const Stream&, std::size_t bytes);

// Throws as the first call of a library does that is missing.
void require_library(const std::string& name);

}  // namespace convlab::on_cpu
