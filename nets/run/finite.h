// Whether numbers are neither infinite nor NaN.
#pragma once

#include <algorithm>
#include <cmath>

#include "conv/problem.h"
#include "conv/types/span.h"

namespace convlab::nets {

// Elements of type f32 or f64.
inline bool all_finite(ConstSpan bytes, DType dtype) {
  const auto all = [&bytes]<class T>(T) {
    const T* const data = reinterpret_cast<const T*>(bytes.data());
    return std::all_of(data, data + bytes.size() / sizeof(T), [](T x) { return std::isfinite(x); });
  };
  return dtype == DType::f64 ? all(double()) : all(float());
}

}  // namespace convlab::nets
