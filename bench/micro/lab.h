// Shared by the microbenchmarks: the CPU as a device, data, and cases that count the bytes they
// move and the FLOPs they compute.
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

// N(0,1), because all-zero data would bias comparisons and branches.
Buffer random_floats(std::int64_t count);
Buffer random_doubles(std::int64_t count);

// A case: what to time, the bytes it must move, and the FLOPs it executes; 0 means not of interest.
// Whatever `run` holds lives as long as the case.
struct Work {
  std::function<void()> run;
  std::int64_t bytes = 0;
  double flops = 0;
  std::map<std::string, double> counters{};  // further counters to show
};

// Counters describe the fastest run: best_GFLOPs, best_GBps, and of_copy, which divides best_GBps
// by the bandwidth of the fastest copy of as many bytes, measured just before. The case is made
// just before it runs.
void add_case(const std::string& name, std::function<Work()> make);

// Google Benchmark's main, with the machine in its context; returns the exit code. Every program
// calls prepare(argv) first, which restarts it with the OpenBLAS kernels this CPU needs.
void prepare(char** argv);
int run_cases(int argc, char** argv);

}  // namespace convlab::micro
