#include "conv/math/activated.h"

#include <cmath>
#include <numbers>

#include "conv/math/relu.h"

namespace convlab {
namespace {

template <class T>
T relu6(T x) {
  return x > T(6) ? T(6) : relu(x);
}

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// x times a share of it, of which -infinity has none.
template <class T>
T part_of(T x, T share) {
  return x < T(0) && std::isinf(x) ? T(0) : x * share;
}

template <class T>
T value_of(ActivationKind kind, T x) {
  switch (kind) {
    case ActivationKind::relu:
      return relu(x);
    case ActivationKind::tanh:
      return std::tanh(x);
    case ActivationKind::sigmoid:
      return sigmoid(x);
    case ActivationKind::relu6:
      return relu6(x);
    case ActivationKind::hardsigmoid:
      return relu6(x + T(3)) / T(6);
    case ActivationKind::hardswish:
      return part_of(x, relu6(x + T(3)) / T(6));
    case ActivationKind::silu:
      return part_of(x, sigmoid(x));
    case ActivationKind::gelu:
      return part_of(x, std::erfc(-x / std::numbers::sqrt2_v<T>) / T(2));
  }
  return x;
}

}  // namespace

double activated(ActivationKind kind, double x) { return value_of(kind, x); }
float activated(ActivationKind kind, float x) { return value_of(kind, x); }

}  // namespace convlab
