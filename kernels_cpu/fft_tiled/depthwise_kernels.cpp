// Products of spectra, lane by lane: see depthwise.cpp.
#include "kernels_cpu/fft_tiled/depthwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/fft_tiled/depthwise_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// f(re, im of a conj(b), where its re goes) for each vector; its im goes a channel block further.
template <class F>
HWY_INLINE void ForEachProduct(const float* a, const float* b, std::int64_t points, float* to,
                               const F& f) {
  const F32 d;
  for (std::int64_t i = 0; i < points * 2 * kBlock; i += 2 * kBlock)
    for (std::int64_t at = i; at < i + kBlock; at += kLanes) {
      const Vec ar = hn::LoadU(d, a + at), ai = hn::LoadU(d, a + at + kBlock);
      const Vec br = hn::LoadU(d, b + at), bi = hn::LoadU(d, b + at + kBlock);
      f(hn::MulAdd(ar, br, hn::Mul(ai, bi)), hn::MulSub(ai, br, hn::Mul(ar, bi)), to + at);
    }
}

void Product(const float* x, const float* w, std::int64_t points, float* product) {
  ForEachProduct(x, w, points, product, [](Vec re, Vec im, float* to) HWY_ATTR {
    hn::StoreU(re, F32(), to);
    hn::StoreU(im, F32(), to + kBlock);
  });
}

void AddProduct(const float* x, const float* dy, std::int64_t points, float* sums) {
  ForEachProduct(x, dy, points, sums, [](Vec re, Vec im, float* to) HWY_ATTR {
    hn::StoreU(hn::Add(re, hn::LoadU(F32(), to)), F32(), to);
    hn::StoreU(hn::Add(im, hn::LoadU(F32(), to + kBlock)), F32(), to + kBlock);
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(Product);
HWY_EXPORT(AddProduct);

void depthwise_product(const float* x, const float* w, std::int64_t points, float* product) {
  HWY_DYNAMIC_DISPATCH(Product)(x, w, points, product);
}

void depthwise_add_product(const float* x, const float* dy, std::int64_t points, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddProduct)(x, dy, points, sums);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
