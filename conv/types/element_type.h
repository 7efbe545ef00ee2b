// Maps a DType, known at run time, to a type known at compile time.
#pragma once

#include "conv/problem.h"
#include "conv/types/half.h"

namespace convlab {

// visit(T()), where T is the host's element type.
template <class Visit>
auto with_element_type(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::f64:
      return visit(double());
    case DType::f16:
      return visit(Float16());
    case DType::bf16:
      return visit(BFloat16());
    case DType::f32:
      break;
  }
  return visit(float());
}

}  // namespace convlab
