// Copies the patch of a plain NCHW image that one output pixel sees. Per-target header: include it
// after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_PATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_PATCH_INL_H_
#undef CONVLAB_KERNELS_CPU_PATCH_INL_H_
#else
#define CONVLAB_KERNELS_CPU_PATCH_INL_H_
#endif

#include <algorithm>

#include "kernels_cpu/gemm_kernel-inl.h"
#include "kernels_cpu/implicit_gemm.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// to[c][r][s] = image[c][h + r * step_h][w + s * step_w], zero outside. Writes up to a vector past
// the end of the patch, but reads only the image.
HWY_INLINE void CopyPatch(const PatchShape& shape, const float* image, std::int64_t h,
                          std::int64_t w, float* to) {
  const bool inside = shape.step_w == 1 && w >= 0 && w + shape.s <= shape.w;
  for (std::int64_t c = 0; c < shape.channels; ++c, image += shape.h * shape.w) {
    for (std::int64_t r = 0; r < shape.r; ++r, to += shape.s) {
      const std::int64_t at = h + r * shape.step_h;
      const float* const from = image + at * shape.w + w;
      if (at < 0 || at >= shape.h) {
        std::fill_n(to, shape.s, 0.f);
      } else if (inside) {
        for (std::int64_t s = 0; s < shape.s; s += kLanes)
          hn::StoreU(hn::MaskedLoad(hn::FirstN(F32(), std::size_t(shape.s - s)), F32(), from + s),
                     F32(), to + s);
      } else {
        for (std::int64_t s = 0; s < shape.s; ++s) {
          const std::int64_t column = w + s * shape.step_w;
          to[s] = column >= 0 && column < shape.w ? from[s * shape.step_w] : 0.f;
        }
      }
    }
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
