#include "kernels_cpu/gemm/tile_shape.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/gemm/tile_shape.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

TileShape GetTileShape(DType dtype) {
  if (dtype == DType::f64) return {kLanesOf<double>, kBlock, kTileRows, kTileColsOf<double>};
  return {kLanes, kBlock, kTileRows, kTileCols};
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(GetTileShape);

TileShape tile_shape(DType dtype) { return HWY_DYNAMIC_DISPATCH(GetTileShape)(dtype); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
