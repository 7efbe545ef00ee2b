// The dot products of AVX512_BF16 (vdpbf16ps): in each lane of f32, two products of bf16 are added
// to a sum. CPUs have it that have no matrix unit; where both are, the matrix unit is far faster.
// Internal.
//
// dot_tiles-inl.h multiplies matrix tiles with it; emulated_dots.h computes the same bits with
// ordinary arithmetic, so that every shape can be tested on any CPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "conv/device.h"

namespace convlab::cpu {

inline constexpr std::string_view avx512_bf16_unit = "avx512_bf16",
                                  emulated_avx512_bf16_unit = "avx512_bf16 emulated";

// The unit for dot products of bf16 with this instruction set in force; empty if there is none.
// CONVLAB_AVX512_BF16=emulated selects the emulation, on any CPU. CONVLAB_AVX512_BF16=off disables
// both. Throws InputError for other values.
std::string dot_unit(std::string_view isa);

// A device's, as it was when the device was made. Only a device without a matrix unit has one.
inline constexpr const char* dot_unit_key = "dot_unit";
std::string_view dot_unit(const DeviceInfo&);

// Writes both units for the device's instruction set, as the environment has them now.
void set_bf16_units(DeviceInfo&);

// The device's unit for products of bf16 as they are stored: its matrix unit, or that of dot
// products; empty if it has neither.
std::string_view bf16_unit(const DeviceInfo&);
// Of its products, for work estimates, whose peak is that of f32's multiply-adds. CPUs with AMX
// have vdpbf16ps at a quarter of the rate of a multiply-add, others, by what is published of them,
// at the same rate; it does twice the FLOPs. The emulation is for tests.
double bf16_efficiency(const DeviceInfo&);

// Products of tiles in L1 on this thread, for ceilings. Returns the FLOPs done. Only where the CPU
// has the unit.
double multiply_dots(std::int64_t rounds);

}  // namespace convlab::cpu
