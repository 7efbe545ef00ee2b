// Non-temporal (streaming) stores of results. Internal.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "conv/algo.h"

namespace convlab::cpu {

// Whether a tensor is too large to still be in a cache when it is read again.
inline bool exceeds_caches(std::int64_t bytes, const DeviceInfo& device) {
  return device.l3_bytes > 0 && bytes > device.l3_bytes / 2;
}

// An ordinary store that misses reads the line for ownership; a non-temporal store does not. It
// pays for an output that does not stay in the caches. backward_data of a 1x1 filter with a stride
// writes mostly zeros, in long runs between the filter's pixels. These go to memory faster than to
// L3, so there it pays as soon as the output exceeds the cores' own caches.
inline bool may_store_non_temporal(const ConvProblem& p, const DeviceInfo& device) {
  if (p.accumulate || p.pass == Pass::backward_filter) return false;
  const bool mostly_zeros =
      p.pass == Pass::backward_data && p.r * p.s == 1 && p.stride_h * p.stride_w > 1;
  return exceeds_caches(p.output_bytes(), device) ||
         (mostly_zeros && p.output_bytes() > device.threads * device.l2_bytes);
}

// The config says stores=nontemporal; without it stores are ordinary.
enum class Stores : std::uint8_t { ordinary, nontemporal };
inline constexpr std::array<std::string_view, 2> store_names{"ordinary", "nontemporal"};

inline bool stores_non_temporal(const Config& config) {
  return config.has("stores") &&
         config.choice<Stores>("stores", store_names) == Stores::nontemporal;
}
inline Config with_nontemporal_stores(Config config) {
  config.set("stores", "nontemporal");
  return config;
}

// Bytes of the output that ordinary stores read for ownership from memory.
inline double bytes_read_for_ownership(const ConvProblem& p, const Config& config,
                                       const DeviceInfo& device) {
  const bool reads =
      !p.accumulate && !stores_non_temporal(config) && exceeds_caches(p.output_bytes(), device);
  return reads ? double(p.output_bytes()) : 0;
}

// Whether the output is aligned for it. Pixels are whole vectors, so the first one decides.
inline bool is_aligned_for_non_temporal(const void* out) {
  return reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
}

}  // namespace convlab::cpu
