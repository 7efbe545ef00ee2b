// Averages over the devices of several processes, without their hosts. A device that offers them is
// also an AveragingDevice: `dynamic_cast<AveragingDevice*>(&device)` is null for others.
#pragma once

#include <memory>
#include <string>

#include "conv/device.h"
#include "conv/types/layout.h"

namespace convlab {

class DeviceAverage {
 public:
  virtual ~DeviceAverage() = default;
  // Does not wait. Any thread may call it, one at a time. Throws Error when the average failed, as
  // it does after another device has left the group.
  virtual bool is_complete() = 0;
  virtual double seconds() const = 0;  // on the device, once it is complete
};

// A device's membership in a group that averages. It outlives its averages, and the device outlives
// it.
class DeviceGroup {
 public:
  // Leaves. Averages that are not complete are given up, and the other devices cannot complete
  // theirs.
  virtual ~DeviceGroup() = default;
  // Replaces the values by their averages over the group, which are the same bits on all devices.
  // Queued on a stream of the group's own, behind the work that is on `after` now. f32 or f64. All
  // devices start the same averages in the same order. Nothing else may use the values before the
  // average is complete.
  virtual std::unique_ptr<DeviceAverage> start_average(DType, Span values, Stream& after) = 0;
};

class AveragingDevice {
 public:
  virtual ~AveragingDevice() = default;
  // The library that averages, with its version: "NCCL 2.28.9". Throws EnvironmentError, with the
  // remedy, if it cannot be used.
  virtual std::string averaging_library() = 0;
  // One of a group's processes makes its id and gives it to the others: bytes, not text.
  virtual std::string make_group_id() = 0;
  // Waits for all `size` devices. Throws Error if they cannot form a group.
  virtual std::unique_ptr<DeviceGroup> join_group(const std::string& id, int rank, int size) = 0;
};

}  // namespace convlab
