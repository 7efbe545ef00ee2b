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
// And sooner where it is mostly the zeros that backward_data of a 1x1 filter leaves between the
// pixels that a stride meets: their long runs go to memory faster than to L3, if the cores' own
// caches are too small for them (Zen 4: 64 channels of 56 x 56, 16 images, 1.07 -> 0.99 ms).
inline bool may_stream(const ConvProblem& p, const DeviceInfo& device) {
  const bool mostly_zeros =
      p.pass == Pass::backward_data && p.r * p.s == 1 && p.stride_h * p.stride_w > 1;
  return !p.accumulate && (leaves_caches(p.output_bytes(), device) ||
                           (mostly_zeros && p.output_bytes() > device.threads * device.l2_bytes));
}
inline bool streams(const Config& config) {
  return config.has("stream") && config.get("stream") != 0;
}
// Pixels are whole vectors, so the first one decides.
inline bool can_stream(const void* out) { return reinterpret_cast<std::uintptr_t>(out) % 64 == 0; }

}  // namespace convlab::cpu
