// What a program that tunes must offer, so that candidates run in a process of their own and one
// that crashes or hangs costs only itself: the worker is this executable started afresh.
//
//   int main(int argc, char** argv) {
//     if (const auto code = convlab::worker_main(argc, argv, append_my_algos)) return *code;
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "conv/device.h"
#include "conv/registry.h"

namespace convlab {

// Fills a registry; called once more in every worker process.
using RegistryMaker = std::function<void(AlgoRegistry&)>;

// Which device a worker works on: the one its parent has.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  std::string isa;  // CPU only
  int threads = 0;  // CPU only
};
using DeviceMaker = std::function<std::unique_ptr<Device>(const DeviceChoice&)>;
std::unique_ptr<Device> make_cpu_device_only(const DeviceChoice&);  // throws for other kinds

// Call first thing in main: does a worker's work and returns its exit code if these are a worker's
// arguments, else returns nothing. Programs that tune on other devices than the CPU say how such a
// device is made: this library links no backend but the CPU's.
std::optional<int> worker_main(int argc, const char* const* argv, const RegistryMaker&,
                               const DeviceMaker& = make_cpu_device_only);

// True in a worker, where no other may be started.
bool is_worker();

}  // namespace convlab
