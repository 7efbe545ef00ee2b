// Whether numbers are neither infinite nor NaN.
#pragma once

#include <algorithm>
#include <cmath>

#include "conv/types/element_type.h"
#include "conv/types/span.h"

namespace convlab::nets {

inline bool all_finite(ConstSpan bytes, DType dtype) {
  return with_element_type(dtype, [&bytes]<class T>(T) {
    const T* const data = reinterpret_cast<const T*>(bytes.data());
    return std::all_of(data, data + bytes.size() / sizeof(T),
                       [](T x) { return std::isfinite(double(x)); });
  });
}

}  // namespace convlab::nets
