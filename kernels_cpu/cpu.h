// The CPU backend: one device, and every strategy on it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conv/device.h"
#include "conv/registry.h"

namespace convlab {

struct CpuOptions {
  int threads = 0;  // 0: all that OpenMP offers
  // "baseline", "avx2" or "avx512"; empty: CONVLAB_ISA, else the best the CPU has. The ISA is a
  // property of the process: the last device made decides it.
  std::string isa;
};

// Throws EnvironmentError when the CPU lacks the ISA asked for, InputError for an unknown name.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& = {});

// The ISAs this CPU can run, worst first: "baseline", ...
std::vector<std::string> supported_isas();

void append_cpu_algos(AlgoRegistry&);

}  // namespace convlab
