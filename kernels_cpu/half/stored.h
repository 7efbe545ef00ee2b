// Elements of 16 bits as layer operations read and write them: stored in two bytes, computed with
// as f32. Internal.
#pragma once

#include <cstdint>
#include <type_traits>

#include "conv/types/layout.h"
#include "kernels_cpu/half/bits.h"

namespace convlab::cpu {

struct StoredBf16 {
  std::uint16_t bits = 0;
  StoredBf16() = default;
  explicit StoredBf16(float value) : bits(round_to_nearest_bf16(value)) {}
  operator float() const { return widen_bf16(bits); }
};

struct StoredF16 {
  std::uint16_t bits = 0;
  StoredF16() = default;
  explicit StoredF16(float value) : bits(round_to_nearest_f16(value)) {}
  operator float() const { return widen_f16(bits); }
};

template <class S>
struct ComputedType {
  using Type = S;
};
template <>
struct ComputedType<StoredBf16> {
  using Type = float;
};
template <>
struct ComputedType<StoredF16> {
  using Type = float;
};

// The type in which a stored one is computed.
template <class S>
using Computed = typename ComputedType<S>::Type;
template <class S>
inline constexpr bool is_computed_as_stored = std::is_same_v<S, Computed<S>>;

// f(S()) for the C++ type that stores elements of a DType.
template <class F>
void with_stored_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f32:
      return f(float());
    case DType::f64:
      return f(double());
    case DType::f16:
      return f(StoredF16());
    case DType::bf16:
      return f(StoredBf16());
  }
}

}  // namespace convlab::cpu
