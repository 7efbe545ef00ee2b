#include "kernels_cpu/avx512_bf16/dot_unit.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "conv/error.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/half/units.h"

namespace convlab::cpu {

std::string dot_unit(std::string_view isa) {
  const char* const variable = std::getenv("CONVLAB_AVX512_BF16");
  const std::string_view wanted = variable == nullptr ? "" : variable;
  if (wanted == "emulated") return std::string(emulated_avx512_bf16_unit);
  if (wanted == "off") return {};
  if (!wanted.empty())
    throw InputError(fmt::format("CONVLAB_AVX512_BF16={}: expected emulated or off", wanted));
  if (isa != "avx512" || !half_units().avx512_bf16) return {};
  return std::string(avx512_bf16_unit);
}

std::string_view dot_unit(const DeviceInfo& device) {
  const auto unit = device.libraries.find(dot_unit_key);
  return unit == device.libraries.end() ? std::string_view{} : std::string_view{unit->second};
}

void set_bf16_units(DeviceInfo& device) {
  set_matrix_unit(device);
  device.libraries.erase(dot_unit_key);
  std::string unit = dot_unit(device.isa);  // the variable is checked on every device
  if (matrix_unit(device).empty() && !unit.empty())
    device.libraries[dot_unit_key] = std::move(unit);
}

std::string_view bf16_unit(const DeviceInfo& device) {
  const std::string_view matrix = matrix_unit(device);
  return matrix.empty() ? dot_unit(device) : matrix;
}

double bf16_efficiency(const DeviceInfo& device) {
  if (dot_unit(device) != avx512_bf16_unit) return split_efficiency(device);
  return half_units().amx ? 0.4 : 1.5;
}

}  // namespace convlab::cpu
