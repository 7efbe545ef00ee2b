// Loops that each do one thing as fast as so many of the CPU's threads can with the ISA in force:
// multiply-adds in registers; reads, writes and copies of one level of memory. Internal.
#pragma once

#include <vector>

#include "conv/device.h"
#include "conv/optional/ceiling_loops.h"

namespace convlab::cpu {

// Levels "registers" (f32, f64), "L1", "L2", "L3" and "memory" (read, write, copy). The last one
// reads 256 MB at most; if L3 is reported as larger than that, it is L3 as well.
std::vector<CeilingLoop> ceiling_loops(const DeviceInfo&, int threads);

}  // namespace convlab::cpu
