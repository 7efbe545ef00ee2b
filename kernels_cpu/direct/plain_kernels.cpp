// The loops of direct_plain: see plain.cpp.
#include <algorithm>

#include "kernels_cpu/direct/plain.h"
#include "kernels_cpu/epilogue.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/direct/plain_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// One thread's rows; n and h (or k) of the output are shared round robin.
template <class T>
struct Plain {
  const ConvProblem& p;
  const T *x, *w, *dy;
  OutputEpilogue<T> output;
  std::int64_t thread, threads;

  Plain(const ConvProblem& problem, const ConvArgs& args, int thread, int threads)
      : p(problem),
        x(static_cast<const T*>(args.x)),
        w(static_cast<const T*>(args.w)),
        dy(static_cast<const T*>(args.dy)),
        output(output_epilogue<T>(problem, args)),
        thread(thread),
        threads(threads) {}

  std::int64_t channels() const { return p.c / p.groups; }
  std::int64_t filters() const { return p.k / p.groups; }
  static std::int64_t pixel_stride(const TensorDesc& t) {
    return t.layout == Layout::nhwc ? t.c : channel_block(t.layout);
  }
  const T* filter(std::int64_t k, std::int64_t c, std::int64_t r) const {
    return w + ((k * channels() + c) * p.r + r) * p.s;
  }

  // f(s, first input column, first output column, count) for the columns that tap s reads.
  template <class F>
  HWY_INLINE void ForEachTap(F&& f) const {
    for (std::int64_t s = 0; s < p.s; ++s) {
      const std::int64_t at = s * p.dilation_w - p.pad_w;
      const std::int64_t first = at >= 0 ? 0 : ceil_div(-at, p.stride_w);
      const std::int64_t last = at >= p.w ? 0 : std::min(p.q, (p.w - 1 - at) / p.stride_w + 1);
      if (first < last) f(s, first * p.stride_w + at, first, last - first);
    }
  }

  // to[i * to_step] += factor * from[i * from_step]
  static HWY_INLINE void Add(T* HWY_RESTRICT to, std::int64_t to_step, T factor,
                             const T* HWY_RESTRICT from, std::int64_t from_step,
                             std::int64_t count) {
    if (to_step == 1 && from_step == 1)
      for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
    else
      for (std::int64_t i = 0; i < count; ++i) to[i * to_step] += factor * from[i * from_step];
  }

  static void Clear(T* row, std::int64_t step, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) row[i * step] = T(0);
  }

  void Forward() const {
    const TensorDesc xd = p.x_desc(), yd = p.y_desc();
    const std::int64_t x_step = pixel_stride(xd), y_step = pixel_stride(yd);
    for (std::int64_t row = thread; row < p.n * p.p; row += threads)
      for (std::int64_t k = 0; k < yd.padded_c(); ++k) {
        const std::int64_t n = row / p.p, at = yd.offset(n, k, row % p.p, 0);
        T* const y = output.out + at;
        if (!p.accumulate) Clear(y, y_step, p.q);
        if (k >= p.k) continue;
        for (std::int64_t c = 0; c < channels(); ++c)
          for (std::int64_t r = 0; r < p.r; ++r) {
            const std::int64_t h = row % p.p * p.stride_h - p.pad_h + r * p.dilation_h;
            if (h < 0 || h >= p.h) continue;
            const T* const from = x + xd.offset(n, k / filters() * channels() + c, h, 0);
            ForEachTap([&](std::int64_t s, std::int64_t w0, std::int64_t q0, std::int64_t count)
                           HWY_ATTR {
                             Add(y + q0 * y_step, y_step, filter(k, c, r)[s], from + w0 * x_step,
                                 p.stride_w * x_step, count);
                           });
          }
        if (!p.epilogue.empty()) {
          OutputEpilogue<T> last = output;
          if (p.accumulate) last.addend = nullptr;  // the sums began with it
          last.store_line(
              at, y_step, p.q, [&](std::int64_t q) { return y[q * y_step]; },
              [&](std::int64_t) { return k; });
        }
      }
  }

  void BackwardData() const {
    const TensorDesc xd = p.x_desc(), yd = p.y_desc();
    const std::int64_t x_step = pixel_stride(xd), y_step = pixel_stride(yd);
    for (std::int64_t row = thread; row < p.n * p.h; row += threads)
      for (std::int64_t c = 0; c < xd.padded_c(); ++c) {
        const std::int64_t n = row / p.h, group = c / channels();
        T* const dx = output.out + xd.offset(n, c, row % p.h, 0);
        if (!p.accumulate) Clear(dx, x_step, p.w);
        if (c >= p.c) continue;
        for (std::int64_t k = group * filters(); k < (group + 1) * filters(); ++k)
          for (std::int64_t r = 0; r < p.r; ++r) {
            const std::int64_t up = row % p.h + p.pad_h - r * p.dilation_h;
            if (up < 0 || up % p.stride_h != 0 || up / p.stride_h >= p.p) continue;
            const T* const from = dy + yd.offset(n, k, up / p.stride_h, 0);
            ForEachTap(
                [&](std::int64_t s, std::int64_t w0, std::int64_t q0, std::int64_t count) HWY_ATTR {
                  Add(dx + w0 * x_step, p.stride_w * x_step, filter(k, c % channels(), r)[s],
                      from + q0 * y_step, y_step, count);
                });
          }
      }
  }

  void BackwardFilter() const {
    const TensorDesc xd = p.x_desc(), yd = p.y_desc();
    const std::int64_t x_step = p.stride_w * pixel_stride(xd), y_step = pixel_stride(yd);
    for (std::int64_t kc = thread; kc < p.k * channels(); kc += threads)
      for (std::int64_t r = 0; r < p.r; ++r) {
        T* const dw = output.out + (kc * p.r + r) * p.s;
        if (!p.accumulate) Clear(dw, 1, p.s);
        const std::int64_t k = kc / channels();
        const std::int64_t c = k / filters() * channels() + kc % channels();
        for (std::int64_t row = 0; row < p.n * p.p; ++row) {
          const std::int64_t h = row % p.p * p.stride_h - p.pad_h + r * p.dilation_h;
          if (h < 0 || h >= p.h) continue;
          const T* const from_x = x + xd.offset(row / p.p, c, h, 0);
          const T* const from_dy = dy + yd.offset(row / p.p, k, row % p.p, 0);
          ForEachTap([&](std::int64_t s, std::int64_t w0, std::int64_t q0, std::int64_t count)
                         HWY_ATTR {
                           const T* const a = from_x + w0 * pixel_stride(xd);
                           const T* const b = from_dy + q0 * y_step;
                           T sum = 0;
#pragma omp simd reduction(+ : sum)
                           for (std::int64_t i = 0; i < count; ++i)
                             sum += a[i * x_step] * b[i * y_step];
                           dw[s] += sum;
                         });
        }
      }
  }

  void Run() const {
    if (p.pass == Pass::forward)
      Forward();
    else if (p.pass == Pass::backward_data)
      BackwardData();
    else
      BackwardFilter();
  }
};

void RunPlain(const ConvProblem& p, const ConvArgs& args, int thread, int threads) {
  if (p.dtype == DType::f64)
    Plain<double>(p, args, thread, threads).Run();
  else
    Plain<float>(p, args, thread, threads).Run();
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(RunPlain);

void plain_loops(const ConvProblem& p, const ConvArgs& args, int thread, int threads) {
  HWY_DYNAMIC_DISPATCH(RunPlain)(p, args, thread, threads);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
