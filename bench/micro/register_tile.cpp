#include "bench/micro/register_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/micro/register_tile.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// A[depth][rows]: a group is one step of depth, with its rows contiguous.
void RunTile(const float* a, const float* b, float* c, std::int64_t depth, std::int64_t times) {
  Tile<kTileRows> tile;
  tile.SetZero();
  for (std::int64_t i = 0; i < times; ++i)
    tile.MultiplyAdd<1>(PanelA{a, 1, kTileRows}, PanelB{b}, depth);
  tile.ForEach([&](int i, int j, Vec& v)
                   HWY_ATTR { hn::StoreU(v, F32(), c + i * kTileCols + j * kLanes); });
}

micro::RegisterTile GetTile() { return {kTileRows, kTileCols, &RunTile}; }

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
HWY_EXPORT(GetTile);
}  // namespace convlab::cpu

namespace convlab::micro {
RegisterTile register_tile() {
  using namespace cpu;  // namespace of the dispatch table
  return HWY_DYNAMIC_DISPATCH(GetTile)();
}
}  // namespace convlab::micro
#endif
