// The CPU backend: one device, and every strategy on it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conv/device.h"
#include "conv/registry.h"
#include "recurrent/algo.h"

namespace convlab {

inline constexpr int most_threads = 1024;

struct CpuOptions {
  // 0: OMP_NUM_THREADS, else one thread for each core that this process may use by its affinity and
  // its CPU quota; fewer if OpenMP's limits require it.
  int threads = 0;
  // "baseline", "avx2" or "avx512"; empty: CONVLAB_ISA, else the best the CPU has. The ISA is a
  // property of the process: the last device made decides it.
  std::string isa;
};

// Throws EnvironmentError when the CPU or this build lacks the ISA or the threads cannot be
// started, InputError for an unknown name and more than most_threads.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& = {});

// Starts the threads as make_cpu_device does, and returns how many there are.
int start_threads(int wanted = 0);

// The ISAs this CPU can run, worst first: "baseline", ...
std::vector<std::string> supported_isas();

// Seconds for a cache line to travel from the first of so many threads to the second and back; 0
// with a single thread. It takes several times as long between cores that share no L3, and delays
// all data that threads share. A virtual machine's cores may share one L3 now and not a minute
// later.
double measure_round_trip(int threads);

void append_cpu_algos(AlgoRegistry&);
void append_cpu_recurrent_algos(RecurrentRegistry&);

}  // namespace convlab
