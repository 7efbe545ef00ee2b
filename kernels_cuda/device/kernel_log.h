// The kernels of this process as they ran on the card, vendors' among them, by CUPTI's activity
// records. CUPTI is loaded when it is first asked for, so that a program without it starts too.
#pragma once

#include <vector>

#include "conv/optional/profiled_device.h"

namespace convlab::cuda {

// As ProfiledDevice promises; one log in a process.
void start_kernel_log();
// The device has finished what was queued.
std::vector<KernelRun> finish_kernel_log();

// What a buffer of CUPTI's records, `bytes` of them, tells of kernels. Throws EnvironmentError.
std::vector<KernelRun> kernel_runs(std::byte* records, std::size_t bytes);

}  // namespace convlab::cuda
