// Other programs' use of the machine during a measurement.
//
// A thread that is never preempted uses as much CPU time as wall time. The difference went to
// another program, to a CPU quota, to a hypervisor (the kernel subtracts its steal from a thread's
// CPU time) or to SIGSTOP. The spread of the samples does not show it: OpenMP threads wait at a
// barrier for the preempted one, so such samples are all equally slow.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "conv/device.h"

namespace convlab {

// A sample that lost a larger share of its time is disturbed. Kernel threads take up to 1% of a
// short sample on a quiet machine.
inline constexpr double most_lost = 0.02;

// Measures around one sample, on the thread that takes it, how long the team's threads were
// runnable but did not run. It reports nothing for devices other than CPUs: the device's own clock
// times them.
class DisturbanceMeter {
 public:
  // With CONVLAB_IGNORE_DISTURBANCES in the environment it reports nothing. This is for tests that
  // use a race but assert no time, so that they can run in parallel.
  explicit DisturbanceMeter(const DeviceInfo&);
  void start();
  // The share of the time since start() that the worst-off thread lost, 0 to 1.
  double stop();

 private:
  struct Reading {
    pid_t thread = 0;  // OpenMP may end one and start another
    double wall_s = 0, cpu_s = 0;
    long slept = 0;        // times that the thread blocked voluntarily
    double delayed_s = 0;  // runnable but not running, if the kernel reports it
  };
  void read(std::vector<Reading>&) const;
  std::vector<Reading> before_, after_;  // by thread
  double pressure_s_ = 0, process_cpu_s_ = 0;
};

// Over a longer period: CPU time that went to other programs and to a hypervisor, as shares of all
// processors' time. Zero if /proc/stat is missing.
class LoadMeter {
 public:
  LoadMeter() { look(0); }
  struct Load {
    double others = 0, stolen = 0;
  };
  // Since the last call. `own_s` is the CPU time that this program and its workers have used so
  // far.
  Load look(double own_s);

 private:
  double busy_s_ = 0, stolen_s_ = 0, own_s_ = 0;
  std::chrono::steady_clock::time_point last_;
};
// CPU time used so far by this process and the children it has waited for.
double own_cpu_s();

bool disturbances_ignored();  // see DisturbanceMeter

// A source of observations on this machine: its name, and how it is used or why it is missing.
struct Observable {
  std::string what;
  bool offered = false;
  std::string how;
};
std::vector<Observable> observables();

}  // namespace convlab
