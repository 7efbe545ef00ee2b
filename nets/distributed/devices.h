// Averages that the ranks' devices make among themselves (conv/optional/averaging_device.h).
#pragma once

#include <memory>
#include <string>

#include "conv/optional/averaging_device.h"
#include "nets/distributed/communicator.h"

namespace convlab::nets {

struct JoinedDevices {
  std::unique_ptr<DeviceGroup> group;  // null: they do not average
  std::string obstacle;                // then why, the same on all ranks
};
// Collective. With an obstacle of this rank's own, or of another's, no device is asked.
JoinedDevices join_devices(Communicator&, Device&, const std::string& obstacle);

// As an average of the ranks. The device's outlives it.
std::unique_ptr<Pending> pending_on_device(DeviceAverage&);

// Seconds on the device: the best of a few. Collective. The stream is the caller's.
double best_device_average_s(Communicator&, DeviceGroup&, DType, Span values, Stream&);

}  // namespace convlab::nets
