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
  std::string level;  // "registers", "shared", "L2", "memory"
  std::string what;   // of registers the arithmetic: "f32", "f64", "tf32 mma" ...; "read", "write"
  // Queues one run, of a millisecond or less, and returns its FLOPs or bytes. Owns what it works
  // on.
  std::function<double(Stream&)> enqueue;
};

class CeilingDevice {
 public:
  virtual ~CeilingDevice() = default;
  // The loops live no longer than the device. Throws OutOfMemory.
  virtual std::vector<CeilingLoop> ceiling_loops() = 0;
};

}  // namespace convlab
