// From a DType, known when a program runs, to the type that the compiler knows.
#pragma once

#include "conv/half.h"
#include "conv/problem.h"

namespace convlab {

// visit(T()), T being the type of an element in the host's memory.
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
