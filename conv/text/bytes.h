// Memory sizes in readable form.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace convlab {

// In the largest unit that gives at least 1: "12 KiB", "1.5 GiB".
inline std::string show_bytes(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = double(bytes);
  const char* unit = "";
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, unit);
}

// Exactly, as flags take it: "64M", "1T", "1000".
inline std::string exact_bytes(std::int64_t bytes) {
  std::string unit;
  for (const char* larger : {"K", "M", "G", "T", "P", "E"}) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    unit = larger;
  }
  return fmt::format("{}{}", bytes, unit);
}

}  // namespace convlab
