// What the microbenchmarks share: the CPU as a device, data, and cases that count what they move
// and compute.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "conv/device.h"

namespace convlab::micro {

struct Lab {
  Lab();
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  const LayerOps& ops;
};
Lab& lab();

// N(0,1): what compares and branches must not meet zeros only.
Buffer random_floats(std::int64_t count);
Buffer random_doubles(std::int64_t count);

// A case: what to time, the bytes it must move, the FLOPs it executes; 0: not of interest. What
// `run` holds lives as long as the case.
struct Work {
  std::function<void()> run;
  std::int64_t bytes = 0;
  double flops = 0;
  std::map<std::string, double> counters{};  // more to be shown beside
};

// Counters are of the fastest run: best_GFLOPs; best_GBps and of_copy, that over the fastest copy
// of as many bytes, measured just before. The case is made when its turn comes.
void add_case(const std::string& name, std::function<Work()> make);

// Google Benchmark's main, with the machine in its context; returns the exit code. Before it every
// program restarts itself with the OpenBLAS kernels this CPU wants: prepare(argv).
void prepare(char** argv);
int run_cases(int argc, char** argv);

}  // namespace convlab::micro
