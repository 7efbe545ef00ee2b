// The kernels that this process ran on the card, libraries' included, from CUPTI's activity
// records. CUPTI is loaded at its first use, so that a program without it starts too.
#pragma once

#include <vector>

#include "conv/optional/profiled_device.h"

namespace convlab::cuda {

// As ProfiledDevice promises; one log in a process.
void start_kernel_log();
// The device has finished what was queued.
std::vector<KernelRun> finish_kernel_log();

// The kernels in a buffer of CUPTI's records of `bytes` bytes. Throws EnvironmentError.
std::vector<KernelRun> kernel_runs(std::byte* records, std::size_t bytes);

}  // namespace convlab::cuda
