// The arithmetic for products of f32 operands, for algorithms that have a choice.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "conv/config.h"
#include "conv/types/layout.h"

namespace convlab {

// f32: fused multiply-adds. tf32: on tensor cores, factors rounded to the 11 bits of TF32. tf32x3:
// three TF32 products for each product, together as accurate as f32. bf16x3: each factor is the sum
// of two bf16 terms, and three of their four products are added: an error of about 5e-6. bf16x6:
// three terms and six products, as accurate as f32. bf16: one product of bf16 factors, added in
// f32; only problems of that type have it.
enum class MathType : std::uint8_t { f32, tf32, tf32x3, bf16x3, bf16x6, bf16 };
inline constexpr std::array<std::string_view, 6> math_type_names{"f32",    "tf32",   "tf32x3",
                                                                 "bf16x3", "bf16x6", "bf16"};

// The products of bf16 tiles on a CPU's matrix unit, among the arithmetic of ceilings
// (conv/optional/ceiling_loops.h).
inline constexpr std::string_view bf16_tiles = "bf16 tiles";
inline bool multiplies_bf16(MathType math) {
  return math == MathType::bf16x3 || math == MathType::bf16x6 || math == MathType::bf16;
}

// The relative error that the math alone is expected to make: of TF32's rounding to 11 bits, and of
// bf16x3 as measured; 0 for what is as accurate as f32.
inline double expected_error(MathType math) {
  return math == MathType::tf32 ? 0x1p-11 : math == MathType::bf16x3 ? 5e-6 : 0;
}

// The config's `math`; f32 if it has none.
inline MathType math_type(const Config& config) {
  return config.has("math") ? config.choice<MathType>("math", math_type_names) : MathType::f32;
}

// Those that products of f32 may have: all but the last.
inline constexpr auto f32_math_names = [] {
  std::array<std::string_view, math_type_names.size() - 1> names;
  std::copy_n(math_type_names.begin(), names.size(), names.begin());
  return names;
}();
inline MathType parse_math_type(std::string_view name) {  // one of them; throws InputError
  return MathType(index_of_name("math type", name, f32_math_names));
}

// Whether a caller who admits only these maths for products of f32 (all if empty) admits this
// config for a problem of this type.
inline bool admits(const std::vector<MathType>& maths, DType dtype, const Config& config) {
  return maths.empty() || dtype != DType::f32 ||
         std::find(maths.begin(), maths.end(), math_type(config)) != maths.end();
}

// For algorithms. Only f32 has a choice: configs of other types have no `math`, but for bf16's own.
inline Config with_math(Config config, DType dtype, MathType math) {
  if (dtype == DType::f32 || math == MathType::bf16)
    config.set("math", std::string(math_type_names[std::size_t(math)]));
  return config;
}

// The `math` of a config for this type, one of `names`, the first of math_type_names. Throws
// InputError.
template <std::size_t N>
MathType math_type(const Config& config, DType dtype,
                   const std::array<std::string_view, N>& names) {
  if (dtype == DType::f32) return config.choice<MathType>("math", names);
  if (config.has("math"))
    throw InputError(fmt::format("config '{}': math: only f32 has a choice, not {}", config.text(),
                                 to_string(dtype)));
  return MathType::f32;
}

}  // namespace convlab
