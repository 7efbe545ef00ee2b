// The resources that this process may use: processors by affinity, hyper-threading and CPU quota,
// memory by control groups and limits.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>

namespace convlab {

// How many threads compute at full speed: one for each core of the processors in `affinity`, no
// more than the CPU quota of the control groups (v2 cpu.max, v1 cpu.cfs_quota_us) allows, and at
// least 1. `root` precedes /proc and /sys.
int usable_cores(const cpu_set_t& affinity, const std::string& root = "");
int usable_cores();  // of this process

// The least of the physical memory, the control groups' limits, and the address space.
std::int64_t usable_memory(const std::string& root = "");

}  // namespace convlab
