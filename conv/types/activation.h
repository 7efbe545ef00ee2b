// Elementwise activations, and their names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace convlab {

// relu6: min(max(x, 0), 6).  hardsigmoid: relu6(x + 3) / 6.  hardswish: x * hardsigmoid(x).
// silu: x * sigmoid(x).  gelu: x * Phi(x), Phi the normal distribution function (exact, no tanh).
// Of -infinity the last three are 0, their limit.
enum class ActivationKind : std::uint8_t {
  relu,
  tanh,
  sigmoid,
  relu6,
  hardsigmoid,
  hardswish,
  silu,
  gelu
};
inline constexpr std::array all_activations{ActivationKind::relu,        ActivationKind::tanh,
                                            ActivationKind::sigmoid,     ActivationKind::relu6,
                                            ActivationKind::hardsigmoid, ActivationKind::hardswish,
                                            ActivationKind::silu,        ActivationKind::gelu};
std::string_view to_string(ActivationKind);  // "relu", "hardswish", ...

// Whether the derivative is computed from the input x. The others need only y, which may therefore
// be written over x.
constexpr bool derivative_reads_x(ActivationKind kind) {
  return kind == ActivationKind::hardswish || kind == ActivationKind::silu ||
         kind == ActivationKind::gelu;
}

// Whether 0 becomes 0, so that padding lanes stay as they are.
constexpr bool keeps_zero(ActivationKind kind) {
  return kind != ActivationKind::sigmoid && kind != ActivationKind::hardsigmoid;
}

}  // namespace convlab
