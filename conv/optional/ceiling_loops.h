// What a device offers so that its ceilings can be measured beside its work: loops that do one
// thing and nothing else. Such a device is also a CeilingDevice:
// `dynamic_cast<CeilingDevice*>(&device)` is null for the rest.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "conv/device.h"

namespace convlab {

struct CeilingLoop {
  std::string level;  // "registers", "shared", "L1", "L2", "L3", "memory"
  std::string what;   // of registers the arithmetic: "f32", "f64", "tf32 mma" ...; "read", "write",
                      // "copy"
  // Queues one run, of a millisecond or less, and returns its FLOPs or bytes. Owns what it works
  // on.
  std::function<double(Stream&)> enqueue;
};

class CeilingDevice {
 public:
  virtual ~CeilingDevice() = default;
  // On so many of the device's threads: DeviceInfo::threads, on a CPU also fewer. The loops live no
  // longer than the device. This, or a loop's first run, throws OutOfMemory.
  virtual std::vector<CeilingLoop> ceiling_loops(int threads) = 0;
};

}  // namespace convlab
