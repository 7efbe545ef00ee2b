// The matrix unit of x86: eight tile registers of 16 rows x 64 bytes, and a product of two of them.
// It takes a feature of the CPU and, on Linux, a permission for the process. Internal.
//
// AMX multiplies tiles of bf16 and adds to a tile of f32. emulated_tiles.h computes the same bits
// with ordinary arithmetic, so that every shape can be tested on any CPU.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "conv/device.h"

namespace convlab::cpu {

struct AmxSupport {
  bool usable = false;
  std::string why_not;  // a clause, if it is not usable
};

// What this process may use: the CPU has AMX with bf16 (and AVX512_BF16, which rounds to it), the
// system saves tiles, and has given its permission. The first call requests that, for all threads,
// also those started before.
const AmxSupport& amx_support();

inline constexpr std::string_view amx_unit = "amx", emulated_amx_unit = "amx emulated";

// The unit that bf16 products use with this instruction set in force; empty if there is none.
// CONVLAB_AMX=emulated selects the emulation, on any CPU. CONVLAB_AMX=off disables both. Throws
// InputError for other values.
std::string matrix_unit(std::string_view isa);

// A device's, as it was when the device was made. It stands among the libraries that results depend
// on, where there is one. The second writes it for the device's instruction set.
inline constexpr const char* matrix_unit_key = "matrix_unit";
inline std::string_view matrix_unit(const DeviceInfo& device) {
  const auto unit = device.libraries.find(matrix_unit_key);
  return unit == device.libraries.end() ? std::string_view{} : std::string_view{unit->second};
}

// Of products of bf16 tiles, for work estimates, whose peak is that of f32's multiply-adds. The
// hardware reaches about 8 times that; the emulation is for tests.
inline double split_efficiency(const DeviceInfo& device) {
  return matrix_unit(device) == amx_unit ? 8 : 0.01;
}

inline void set_matrix_unit(DeviceInfo& device) {
  device.libraries.erase(matrix_unit_key);
  if (std::string unit = matrix_unit(device.isa); !unit.empty())
    device.libraries[matrix_unit_key] = std::move(unit);
}

}  // namespace convlab::cpu
