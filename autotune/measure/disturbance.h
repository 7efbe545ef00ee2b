// What else used the machine while something was timed.
//
// A thread that is never taken off its processor uses as much CPU time as passes on the clock. The
// difference went to another program, to a CPU quota, to a hypervisor (whose steal the kernel takes
// off a thread's CPU time) or to SIGSTOP. The spread of the samples does not show it: OpenMP
// threads wait at a barrier for the one that was taken off, and such samples are slow steadily.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "conv/device.h"

namespace convlab {

// A sample that lost more of its time than this is disturbed. Kernel threads take up to 1% of a
// short one on a quiet machine.
inline constexpr double most_lost = 0.02;

// Around one sample, on the thread that takes it: how long the team's threads wanted to run and did
// not. Of a device other than a CPU it sees nothing: the device's own clock times it.
class DisturbanceMeter {
 public:
  // With CONVLAB_IGNORE_DISTURBANCES in the environment it sees nothing: for tests of what stands
  // on a race, which run beside one another and assert no time.
  explicit DisturbanceMeter(const DeviceInfo&);
  void start();
  // The share of the time since start() that the worst-off thread lost, 0 to 1.
  double stop();

 private:
  struct Reading {
    pid_t thread = 0;  // OpenMP may have ended one, and begun another
    double wall_s = 0, cpu_s = 0;
    long slept = 0;        // times that the thread gave up its processor by itself
    double delayed_s = 0;  // it was runnable and did not run, where the kernel tells
  };
  void read(std::vector<Reading>&) const;
  std::vector<Reading> before_, after_;  // by thread
  double pressure_s_ = 0, process_cpu_s_ = 0;
};

// Over a longer stretch: CPU time that went to other programs, and that a hypervisor took, as
// shares of what all processors have. Zero where /proc/stat is missing.
class LoadMeter {
 public:
  LoadMeter() { look(0); }
  struct Load {
    double others = 0, stolen = 0;
  };
  // Since the last look. `own_s` is the CPU time that this program and its workers have used so
  // far.
  Load look(double own_s);

 private:
  double busy_s_ = 0, stolen_s_ = 0, own_s_ = 0;
  std::chrono::steady_clock::time_point last_;
};
// CPU time used so far by this process and the children it has waited for.
double own_cpu_s();

bool disturbances_ignored();  // see DisturbanceMeter

// What this machine offers to observe: name, and how it is used or why it is missing.
struct Observable {
  std::string what;
  bool offered = false;
  std::string how;
};
std::vector<Observable> observables();

}  // namespace convlab
