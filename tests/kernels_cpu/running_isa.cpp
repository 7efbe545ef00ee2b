#include "tests/kernels_cpu/running_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels_cpu/running_isa.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convlab::HWY_NAMESPACE {
const char* compiled_isa() {
  return HWY_TARGET == HWY_AVX3 ? "avx512" : HWY_TARGET == HWY_AVX2 ? "avx2" : "baseline";
}
}  // namespace convlab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab {
HWY_EXPORT(compiled_isa);
std::string running_isa() { return HWY_DYNAMIC_DISPATCH(compiled_isa)(); }
}  // namespace convlab
#endif
