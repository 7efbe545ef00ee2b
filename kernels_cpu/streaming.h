// Results that go past the caches. Internal.
#pragma once

#include <cstdint>

#include "conv/algo.h"

namespace convlab::cpu {

// A store that misses the caches first reads the line that it overwrites. An output too large to be
// found in a cache again may do without: the config stream=1 writes it past the caches.
inline bool leaves_caches(std::int64_t bytes, const DeviceInfo& device) {
  return device.l3_bytes > 0 && bytes > device.l3_bytes / 2;
}
inline bool streams(const Config& config) {
  return config.has("stream") && config.get("stream") != 0;
}
// Pixels are whole vectors, so the first one decides.
inline bool can_stream(const void* out) { return reinterpret_cast<std::uintptr_t>(out) % 64 == 0; }

}  // namespace convlab::cpu
