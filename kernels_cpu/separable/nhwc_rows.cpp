// Rows of pixels from channel blocks to nhwc, for separable.cpp.
#include "kernels_cpu/separable/separable.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/separable/nhwc_rows.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/simd/epilogue-inl.h"
#include "kernels_cpu/simd/lanes-inl.h"
#include "kernels_cpu/simd/relu-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

void StoreNhwc(const float* blocked, std::int64_t plane, std::int64_t pixels, std::int64_t channels,
               const OutputEpilogue<float>& output) {
  const bool rectifies = output.activation == ActivationKind::relu;
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (std::int64_t channel = 0; channel < channels; channel += kBlock) {
      const float* const from = blocked + channel / kBlock * plane + pixel * kBlock;
      const std::int64_t to = pixel * channels + channel;
      ForEachVector<float>(std::min<std::int64_t>(kBlock, channels - channel),
                           [&](auto at, std::int64_t i) HWY_ATTR {
                             VectorOf<float> v = at.Load(from + i);
                             if (output.addend != nullptr)
                               v = hn::Add(v, at.Load(output.addend + to + i));
                             if (rectifies) v = Relu(v);
                             at.Store(v, output.out + to + i);
                           });
    }
    if (output.activation && !rectifies)
      ActivateStored(*output.activation, output.out + pixel * channels, channels);
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(StoreNhwc);

void store_nhwc(const float* blocked, std::int64_t plane, std::int64_t pixels,
                std::int64_t channels, const OutputEpilogue<float>& output) {
  HWY_DYNAMIC_DISPATCH(StoreNhwc)(blocked, plane, pixels, channels, output);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
