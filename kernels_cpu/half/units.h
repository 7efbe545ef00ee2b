// What this CPU has for 16-bit floating point, by CPUID. Internal.
#pragma once

#include <string>

#include "conv/device.h"

namespace convlab::cpu {

struct HalfUnits {
  bool f16c = false;         // converts between f16 and f32, rounding correctly
  bool avx512_bf16 = false;  // rounds f32 to bf16, subnormals to zero
  bool avx512_fp16 = false;  // multiply-adds that accumulate in f16: not used
  bool amx_fp16 = false;     // products of f16 tiles: not used
  bool amx = false;          // AMX's tiles, whether or not the system permits them
};

const HalfUnits& half_units();

// By which units a device computes in each type, and why not by others: for `convlab doctor`.
std::string bf16_text(const DeviceInfo&);
std::string f16_text(const DeviceInfo&);

}  // namespace convlab::cpu
