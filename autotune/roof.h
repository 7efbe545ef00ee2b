// One roof of a roofline: the peak rate of one level of a device.
#pragma once

#include <string>

namespace convlab {

struct Roof {
  // "registers", "L1", "L2", "L3", "memory"; a card's "shared", and its host's "pinned" and
  // "pageable".
  std::string level;
  // For registers the arithmetic, in FLOPs: "f32", "f64", a card's "tf32 mma", "f16 mma", "bf16
  // mma". For other levels the direction, in bytes: "read", "write", "copy" (both together), "to
  // device", "to host".
  std::string what;
  int threads = 1;
  bool measured = true;    // false: the theoretical peak from a card's units and clocks
  double per_second = 0;   // FLOPs or bytes; the best of several samples
  double noise = 0;        // the samples' median absolute deviation over their median
  std::string date;        // UTC, when it comes from the store
  bool disturbed = false;  // by other programs, so that it may be too low
};

}  // namespace convlab
