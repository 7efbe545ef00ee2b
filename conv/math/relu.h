// The rectifier, max(v, 0), as every scalar loop on the host computes it.
#pragma once

namespace convlab {

// NaN is propagated: a maximum function may drop it, depending on the order of its arguments.
template <class T>
constexpr T relu(T v) {
  return v < T(0) ? T(0) : v;
}

}  // namespace convlab
