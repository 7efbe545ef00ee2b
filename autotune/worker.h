// The hook for a program that tunes, so that candidates run in a separate process and a crash or a
// hang costs only the candidate: the worker is this executable started afresh.
//
//   int main(int argc, char** argv) {
//     if (const auto code = convlab::worker_main(argc, argv, append_my_algos)) return *code;
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "autotune/algos.h"
#include "conv/device.h"

namespace convlab {

// The device a worker opens: its parent's.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  std::string isa;  // CPU only
  int threads = 0;  // CPU only
};
using DeviceMaker = std::function<std::unique_ptr<Device>(const DeviceChoice&)>;
std::unique_ptr<Device> make_cpu_device_only(const DeviceChoice&);  // throws for other kinds

// Call first in main. If these are a worker's arguments, does a worker's work and returns its exit
// code; otherwise returns nullopt. Programs that tune on devices other than the CPU pass a function
// that makes such a device: this library links only the CPU backend.
std::optional<int> worker_main(int argc, const char* const* argv, const RegistryMaker&,
                               const DeviceMaker& = make_cpu_device_only);

// True in a worker, which must not start another.
bool is_worker();

}  // namespace convlab
