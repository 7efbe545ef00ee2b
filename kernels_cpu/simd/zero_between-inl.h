// backward_data of a 1x1 filter with a stride: dx is zero between the pixels that the filter reads.
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_SIMD_ZERO_BETWEEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_SIMD_ZERO_BETWEEN_INL_H_
#undef CONVLAB_KERNELS_CPU_SIMD_ZERO_BETWEEN_INL_H_
#else
#define CONVLAB_KERNELS_CPU_SIMD_ZERO_BETWEEN_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "conv/types/layout.h"
#include "kernels_cpu/device/range.h"
#include "kernels_cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Zeroes dx between some lines of such pixels, and between the pixels of each, in `planes` channel
// blocks from dx on. Image n's line h is n * ceil(desc.h / step_h) + h.
template <class T>
HWY_INLINE void ZeroBetween(const TensorDesc& desc, std::int64_t step_h, std::int64_t step_w,
                            Range lines, std::int64_t planes, T* dx, bool non_temporal) {
  const std::int64_t image_lines = ceil_div(desc.h, step_h);
  const std::int64_t line_elements = desc.w * kBlock;
  const std::int64_t step = step_w * kBlock;
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::int64_t i = lines.begin; i < lines.end; ++i) {
      const std::int64_t first = i % image_lines * step_h, last = std::min(desc.h, first + step_h);
      T* const image = dx + i / image_lines * desc.image_step() + plane * desc.channel_step();
      for (std::int64_t h = first; h < last; ++h) {
        T* const line = image + h * line_elements;
        for (std::int64_t w = 0; w < line_elements; w += step) {
          const std::int64_t end = std::min(line_elements, w + step);
          for (std::int64_t at = h == first ? w + kBlock : w; at < end; at += kLanesOf<T>)
            non_temporal ? hn::Stream(hn::Zero(TagOf<T>()), TagOf<T>(), line + at)
                         : hn::StoreU(hn::Zero(TagOf<T>()), TagOf<T>(), line + at);
        }
      }
    }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
