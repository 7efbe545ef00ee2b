#pragma once

#include "autotune/result.h"
#include "conv/device.h"

namespace convlab {

// Provenance of numbers measured now on this device by this build.
Provenance collect_provenance(const DeviceInfo&);

}  // namespace convlab
