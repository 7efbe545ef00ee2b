// Loops for measuring a device's ceilings, each of which does one thing only. A device that offers
// them is also a CeilingDevice: `dynamic_cast<CeilingDevice*>(&device)` is null for others. Tuning
// and planning need a CPU's loops for f32 in registers and for reads from memory, and throw Error
// without them. A card states its peaks in DeviceInfo.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "conv/device.h"

namespace convlab {

struct CeilingLoop {
  std::string level;  // "registers", "shared", "L1", "L2", "L3", "memory"
  std::string what;  // for registers the arithmetic: "f32", "f64", "tf32 mma" ...; "read", "write",
                     // "copy"
  // Queues one run, of a millisecond or less, and returns its FLOPs or bytes. Owns what it works
  // on.
  std::function<double(Stream&)> enqueue;
};

class CeilingDevice {
 public:
  virtual ~CeilingDevice() = default;
  // For this many of the device's threads: DeviceInfo::threads, on a CPU also fewer. The loops must
  // not outlive the device. This, or a loop's first run, throws OutOfMemory.
  virtual std::vector<CeilingLoop> ceiling_loops(int threads) = 0;
};

}  // namespace convlab
