// The loops of direct_depthwise: see depthwise.cpp for the derivation.
#include <algorithm>

#include "kernels_cpu/direct/depthwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/direct/depthwise_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// The channels of one block: kBlock values of T in kVecs vectors.
template <class T>
struct Channels {
  using D = hn::CappedTag<T, kBlock>;
  static constexpr int kLanesOfT = hn::MaxLanes(D());
  static constexpr int kVecs = kBlock / kLanesOfT;
  hn::Vec<D> v[kVecs];

  HWY_INLINE void SetZero() {
    for (int i = 0; i < kVecs; ++i) v[i] = hn::Zero(D());
  }
  HWY_INLINE void Add(const T* a) {
    for (int i = 0; i < kVecs; ++i) v[i] = hn::Add(v[i], hn::LoadU(D(), a + i * kLanesOfT));
  }
  HWY_INLINE void MultiplyAdd(const T* a, const T* b) {
    for (int i = 0; i < kVecs; ++i)
      v[i] = hn::MulAdd(hn::LoadU(D(), a + i * kLanesOfT), hn::LoadU(D(), b + i * kLanesOfT), v[i]);
  }
  // Finishes sums, and stores them at these elements of the output.
  HWY_INLINE void Store(const OutputEpilogue<T>& epilogue, const T* bias, std::int64_t at) {
    if (epilogue.bias != nullptr) Add(bias);
    for (int i = 0; i < kVecs; ++i) FinishAndStore(epilogue, v[i], at + i * kLanesOfT);
  }
  HWY_INLINE void Store(T* to) const {
    for (int i = 0; i < kVecs; ++i) hn::StoreU(v[i], D(), to + i * kLanesOfT);
  }
};

// One thread's share of (image, channel block, row) of every grid. Packed: [block][r][s][channel].
template <class T>
void DepthwisePixels(const Depthwise& d, const ConvArgs& args, std::int64_t thread,
                     std::int64_t threads) {
  const ConvProblem& p = d.problem;
  const T* const in = static_cast<const T*>(p.pass == Pass::forward ? args.x : args.dy);
  const OutputEpilogue<T> output = output_epilogue<T>(p, args);
  const std::int64_t blocks = ceil_div(p.k, kBlock);
  for (const PixelGrid& grid : d.grids)
    for (std::int64_t row = thread; row < p.n * blocks * grid.h; row += threads) {
      const std::int64_t n = row / grid.h / blocks, block = row / grid.h % blocks;
      const std::int64_t h = row % grid.h;
      const T* const image = in + n * d.in.image + block * d.in.block;
      const T* const filter = static_cast<const T*>(args.w) + block * p.r * p.s * kBlock;
      T bias[kBlock] = {};
      if (output.bias != nullptr)
        std::copy_n(output.bias + block * kBlock,
                    std::min<std::int64_t>(kBlock, p.k - block * kBlock), bias);
      for (std::int64_t w = 0; w < grid.w; ++w) {
        const std::int64_t at =
            n * d.out.image + block * d.out.block +
            ((grid.first_h + h * d.out_step_h) * d.out.width + grid.first_w + w * d.out_step_w) *
                d.out.pixel;
        Channels<T> sum;
        sum.SetZero();
        for (const Tap& tap : grid.taps) {
          const std::int64_t ih = h * d.in_step_h + tap.dh, iw = w * d.in_step_w + tap.dw;
          if (ih >= 0 && ih < d.in.height && iw >= 0 && iw < d.in.width)
            sum.MultiplyAdd(image + (ih * d.in.width + iw) * d.in.pixel, filter + tap.rs * kBlock);
        }
        sum.Store(output, bias, at);
      }
    }
}

// One thread's share of (channel block, tap). Four accumulators hide the latency of the
// multiply-add.
template <class T>
void DepthwiseFilter(const Depthwise& d, const ConvArgs& args, std::int64_t thread,
                     std::int64_t threads) {
  const ConvProblem& p = d.problem;
  const std::int64_t area = p.r * p.s;
  for (std::int64_t task = thread; task < ceil_div(p.k, kBlock) * area; task += threads) {
    const std::int64_t block = task / area, r = task % area / p.s, s = task % p.s;
    Channels<T> sums[4];
    for (Channels<T>& sum : sums) sum.SetZero();
    const std::int64_t left = s * p.dilation_w - p.pad_w;
    const std::int64_t first = left >= 0 ? 0 : ceil_div(-left, p.stride_w);
    const std::int64_t last = left >= p.w ? 0 : std::min(p.q, (p.w - 1 - left) / p.stride_w + 1);
    for (std::int64_t row = 0; row < p.n * p.p; ++row) {
      const std::int64_t n = row / p.p;
      const std::int64_t h = row % p.p * p.stride_h - p.pad_h + r * p.dilation_h;
      if (h < 0 || h >= p.h) continue;
      const T* const x = static_cast<const T*>(args.x) + n * d.in.image + block * d.in.block +
                         (h * p.w + left) * d.in.pixel;
      const T* const dy = static_cast<const T*>(args.dy) + n * d.out.image + block * d.out.block +
                          row % p.p * p.q * d.out.pixel;
      const auto add = [&](Channels<T>& sum, std::int64_t q) HWY_ATTR {
        sum.MultiplyAdd(x + q * p.stride_w * d.in.pixel, dy + q * d.out.pixel);
      };
      std::int64_t q = first;
      for (; q + 4 <= last; q += 4) {
        HWY_UNROLL(4)
        for (int i = 0; i < 4; ++i) add(sums[i], q + i);
      }
      for (; q < last; ++q) add(sums[0], q);
    }
    T values[4][kBlock];
    for (int i = 0; i < 4; ++i) sums[i].Store(values[i]);
    for (std::int64_t lane = 0; lane < std::min<std::int64_t>(kBlock, p.k - block * kBlock);
         ++lane) {
      const T sum = values[0][lane] + values[1][lane] + values[2][lane] + values[3][lane];
      T& to = static_cast<T*>(args.out)[(block * kBlock + lane) * area + task % area];
      to = p.accumulate ? to + sum : sum;
    }
  }
}

void DepthwisePixelsOf(const Depthwise& d, const ConvArgs& args, std::int64_t thread,
                       std::int64_t threads) {
  if (d.problem.dtype == DType::f64)
    DepthwisePixels<double>(d, args, thread, threads);
  else
    DepthwisePixels<float>(d, args, thread, threads);
}

void DepthwiseFilterOf(const Depthwise& d, const ConvArgs& args, std::int64_t thread,
                       std::int64_t threads) {
  if (d.problem.dtype == DType::f64)
    DepthwiseFilter<double>(d, args, thread, threads);
  else
    DepthwiseFilter<float>(d, args, thread, threads);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(DepthwisePixelsOf);
HWY_EXPORT(DepthwiseFilterOf);

void depthwise_pixels(const Depthwise& d, const ConvArgs& args, std::int64_t thread,
                      std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(DepthwisePixelsOf)(d, args, thread, threads);
}
void depthwise_filter(const Depthwise& d, const ConvArgs& args, std::int64_t thread,
                      std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(DepthwiseFilterOf)(d, args, thread, threads);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
