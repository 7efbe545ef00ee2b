#include "kernels_cpu/half/units.h"

#include <fmt/format.h>

#include "kernels_cpu/avx512_bf16/dot_unit.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace convlab::cpu {
namespace {

HalfUnits detect() {
  HalfUnits units;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d)) units.f16c = (c >> 29 & 1) != 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return units;
  units.avx512_fp16 = (d >> 23 & 1) != 0;
  units.amx = (d >> 24 & 1) != 0;
  if (a < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return units;
  units.avx512_bf16 = (a >> 5 & 1) != 0;
  units.amx_fp16 = (a >> 21 & 1) != 0;
#endif
  return units;
}

}  // namespace

const HalfUnits& half_units() {
  static const HalfUnits units = detect();
  return units;
}

std::string bf16_text(const DeviceInfo& device) {
  const std::string products = bf16_unit(device).empty()
                                   ? "products in f32, by no other unit"
                                   : fmt::format("products by {} and in f32", bf16_unit(device));
  const char* const rounding = !half_units().avx512_bf16 ? "integers: the CPU has no AVX512_BF16"
                               : device.isa == "avx512"  ? "AVX512_BF16"
                                                         : "integers: AVX512_BF16 takes isa avx512";
  return fmt::format("{}; rounding by {}", products, rounding);
}

std::string f16_text(const DeviceInfo& device) {
  const bool converts = half_units().f16c && device.isa != "baseline";
  std::string text = fmt::format("products in f32; conversion by {}",
                                 converts            ? "F16C"
                                 : half_units().f16c ? "integers: F16C takes isa avx2 or avx512"
                                                     : "integers: the CPU has no F16C");
  if (half_units().avx512_fp16) text += "; AVX512_FP16 not used: its sums are f16";
  if (half_units().amx_fp16) text += "; AMX-FP16 not used";
  return text;
}

}  // namespace convlab::cpu
