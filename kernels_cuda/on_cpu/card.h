#pragma once

#include "conv/device.h"

namespace convlab::on_cpu {

// What a stream's device says of itself.
const DeviceInfo& card_of(const Stream&);

}  // namespace convlab::on_cpu
