// A card's clocks, and the reasons for throttling. They tell a slow algorithm from a hot card.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conv/device.h"

namespace convlab {

struct Clocks {
  double sm_mhz = 0, max_sm_mhz = 0, memory_mhz = 0, celsius = 0, watts = 0;
  std::uint64_t reasons = 0;  // why the clocks are not higher, one bit each, as NVML numbers them
};

// Asks nvidia-smi, a child process, so that nothing is linked. nullopt if it is missing or does not
// know the card.
std::optional<Clocks> read_clocks(const DeviceInfo&);
// Parses nvidia-smi's line "1980, 1980, 2619, 41, 310.25, 0x0000000000000004"; a field that this
// card does not report ("[N/A]") is 0.
std::optional<Clocks> parse_clocks(const std::string& line);

std::string to_text(const Clocks&);  // "1980 of 1980 MHz, memory 2619 MHz, 41 C, 310 W"
std::string throttle_text(
    std::uint64_t reasons);  // "power cap, heat"; empty when nothing throttles

// The clocks before and after one run, and any throttling seen in between.
class ClockWatch {
 public:
  explicit ClockWatch(const DeviceInfo&);  // on the CPU it records nothing
  void look();  // call between measurements; it reads the clocks every few seconds at most
  // For the provenance: "clocks before", "clocks after", "throttled". Reads the clocks once more.
  std::vector<std::pair<std::string, std::string>> fields();

 private:
  std::optional<Clocks> read();
  DeviceInfo device_;
  std::optional<Clocks> before_;
  std::uint64_t reasons_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace convlab
