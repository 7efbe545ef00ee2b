// A panel's place among the channels of its tensor. Per-target header: include it after
// hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_DIRECT_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_DIRECT_PANEL_INL_H_
#undef CONVLAB_KERNELS_CPU_DIRECT_PANEL_INL_H_
#else
#define CONVLAB_KERNELS_CPU_DIRECT_PANEL_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels_cpu/direct/family.h"
#include "kernels_cpu/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

struct Panel {
  std::int64_t group, channel, channels, vecs;

  Panel(const Panels& panels, std::int64_t index)
      : group(index / panels.per_group),
        channel(group * panels.channels + index % panels.per_group * kTileCols),
        channels(std::min<std::int64_t>(kTileCols,
                                        panels.channels - index % panels.per_group * kTileCols)),
        vecs(kLanes == kBlock && channels <= kLanes ? 1 : kTileVecs) {}

  std::int64_t at(const ChannelView& view) const { return channel / kBlock * view.block; }
};

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
