// Layer normalisation over the channels of each pixel, the scaling of channels, and PReLU, which
// scales what is not positive. With
// xhat = (x - mean) / deviation of a pixel's channels and g = dy scale[c],
//   dx = (g - mean of g - xhat * mean of (g xhat)) / deviation
//   dscale[c] = sum over pixels of dy xhat, dshift[c] = sum over pixels of dy.
// Statistics are computed again from x in the backward pass: they cost less than keeping them.
//
// A run of pixels stays in cache from the statistics to what follows from them. Vectors run over
// the channels that lie side by side. If a plane is one channel they run over its pixels.
#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/layer_norm.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/half/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// One run of pixels. Functions that walk it call
//   f(at, offset, channel, pixel)
// for each vector at `offset` in memory, where channel(values) and pixel(values) give its lanes'
// values of arrays over all channels and over the run's pixels.
template <class T>
struct PixelRun {
  const Planes& planes;
  PixelPieces::Run run;

  std::int64_t offset(std::int64_t channel, std::int64_t pixel = 0) const {
    return planes.offset(run.image, channel, run.first + pixel);
  }
  // Channels of the block that begins there, without padding lanes.
  std::int64_t lanes_from(std::int64_t channel) const {
    return std::min(planes.lanes, planes.channels - channel);
  }

  template <class F>
  HWY_INLINE void ForEachOfChannel(std::int64_t c, F&& f) const {
    ForEachStored<T>(run.pixels, [&](auto at, std::int64_t i) HWY_ATTR {
      f(
          at, offset(c, i),
          [c](const T* values) HWY_ATTR { return hn::Set(VectorTag<T>(), values[c]); },
          [i, at](const T* values) HWY_ATTR { return at.Load(values + i); });
    });
  }
  template <class F>
  HWY_INLINE void ForEachOfPixel(std::int64_t pixel, F&& f) const {
    for (std::int64_t c = 0; c < planes.channels; c += planes.lanes)
      ForEachStored<T>(lanes_from(c), [&](auto at, std::int64_t lane) HWY_ATTR {
        f(
            at, offset(c, pixel) + lane,
            [at, first = c + lane](const T* values) HWY_ATTR { return at.Load(values + first); },
            [pixel](const T* values) HWY_ATTR { return hn::Set(VectorTag<T>(), values[pixel]); });
      });
  }
  template <class F>
  HWY_INLINE void ForEach(F&& f) const {
    if (planes.lanes == 1)
      for (std::int64_t c = 0; c < planes.channels; ++c) ForEachOfChannel(c, f);
    else
      for (std::int64_t pixel = 0; pixel < run.pixels; ++pixel) ForEachOfPixel(pixel, f);
  }

  // means[s][pixel]: the mean over the channels of the kSums vectors that f also writes to `terms`.
  template <int kSums, class F>
  HWY_INLINE void MeanOverChannels(T (*means)[run_pixels], F&& f) const {
    const VectorTag<T> d;
    const T share = T(1.0 / double(planes.channels));
    if (planes.lanes == 1) {
      ForEachStored<T>(run.pixels, [&](auto at, std::int64_t i) HWY_ATTR {
        VectorOf<T> total[2] = {hn::Zero(d), hn::Zero(d)}, terms[2] = {hn::Zero(d), hn::Zero(d)};
        for (std::int64_t c = 0; c < planes.channels; ++c) {
          f(
              at, offset(c, i),
              [c](const T* values) HWY_ATTR { return hn::Set(VectorTag<T>(), values[c]); },
              [i, at](const T* values) HWY_ATTR { return at.Load(values + i); }, terms);
          for (int s = 0; s < kSums; ++s) total[s] = hn::Add(total[s], terms[s]);
        }
        for (int s = 0; s < kSums; ++s)
          at.Store(hn::Mul(total[s], hn::Set(d, share)), means[s] + i);
      });
      return;
    }
    for (std::int64_t pixel = 0; pixel < run.pixels; ++pixel) {
      VectorOf<T> total[2] = {hn::Zero(d), hn::Zero(d)};
      ForEachOfPixel(pixel, [&](auto at, std::int64_t i, auto channel, auto of_pixel) HWY_ATTR {
        VectorOf<T> terms[2] = {hn::Zero(d), hn::Zero(d)};
        f(at, i, channel, of_pixel, terms);
        for (int s = 0; s < kSums; ++s) total[s] = hn::Add(total[s], at.template Keep<T>(terms[s]));
      });
      for (int s = 0; s < kSums; ++s) means[s][pixel] = SumLanes<T>(total[s]) * share;
    }
  }

  // Adds to sums[s * padded channels + c] the sum over the pixels of such vectors.
  template <int kSums, class F>
  HWY_INLINE void AddOverPixels(double* sums, F&& f) const {
    const VectorTag<T> d;
    constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
    const std::int64_t pitch = planes.padded_channels();
    if (planes.lanes == 1) {
      for (std::int64_t c = 0; c < planes.channels; ++c) {
        VectorOf<T> total[2] = {hn::Zero(d), hn::Zero(d)};
        ForEachOfChannel(c, [&](auto at, std::int64_t i, auto channel, auto pixel) HWY_ATTR {
          VectorOf<T> terms[2] = {hn::Zero(d), hn::Zero(d)};
          f(at, i, channel, pixel, terms);
          for (int s = 0; s < kSums; ++s)
            total[s] = hn::Add(total[s], at.template Keep<T>(terms[s]));
        });
        for (int s = 0; s < kSums; ++s) sums[s * pitch + c] += double(SumLanes<T>(total[s]));
      }
      return;
    }
    for (std::int64_t c = 0; c < planes.channels; c += planes.lanes)
      ForEachStored<T>(lanes_from(c), [&](auto at, std::int64_t lane) HWY_ATTR {
        VectorOf<T> total[2] = {hn::Zero(d), hn::Zero(d)}, terms[2] = {hn::Zero(d), hn::Zero(d)};
        for (std::int64_t pixel = 0; pixel < run.pixels; ++pixel) {
          f(
              at, offset(c, pixel) + lane,
              [at, first = c + lane](const T* values) HWY_ATTR { return at.Load(values + first); },
              [pixel](const T* values) HWY_ATTR { return hn::Set(VectorTag<T>(), values[pixel]); },
              terms);
          for (int s = 0; s < kSums; ++s) total[s] = hn::Add(total[s], terms[s]);
        }
        HWY_ALIGN T values[kLanes];
        for (int s = 0; s < kSums; ++s) {
          hn::Store(total[s], d, values);
          for (std::int64_t i = 0; i < std::min(kLanes, lanes_from(c) - lane); ++i)
            sums[s * pitch + c + lane + i] += double(values[i]);
        }
      });
  }

  template <class S>
  void ZeroPaddingLanes(S* out) const {
    for (std::int64_t c = planes.channels; c < planes.padded_channels(); ++c)
      for (std::int64_t pixel = 0; pixel < run.pixels; ++pixel) out[offset(c, pixel)] = S(0);
  }
};

template <class S>
void RunPixelJob(const PixelJob& job, const PixelRun<Computed<S>>& run, double* sums) {
  using T = Computed<S>;
  using Kind = PixelJob::Kind;
  const VectorTag<T> d;
  const S* const x = static_cast<const S*>(job.x);
  const S* const dy = static_cast<const S*>(job.dy);
  const T* const scale = static_cast<const T*>(job.scale);
  const T* const shift = static_cast<const T*>(job.shift);
  S* const out = static_cast<S*>(job.out);

  // By pixel: the mean and 1 / deviation of x, then the two means of the gradient.
  HWY_ALIGN T mean[1][run_pixels], inverse[1][run_pixels], means[2][run_pixels];
  if (job.kind == Kind::norm || job.kind == Kind::norm_backward) {
    run.template MeanOverChannels<1>(mean,
                                     [&](auto at, std::int64_t i, auto, auto, VectorOf<T>* terms)
                                         HWY_ATTR { terms[0] = at.Load(x + i); });
    run.template MeanOverChannels<1>(
        inverse, [&](auto at, std::int64_t i, auto, auto pixel, VectorOf<T>* terms) HWY_ATTR {
          const auto centred = hn::Sub(at.Load(x + i), pixel(mean[0]));
          terms[0] = hn::Mul(centred, centred);
        });
    ForEachStored<T>(run.run.pixels, [&](auto at, std::int64_t i) HWY_ATTR {
      const auto variance = hn::Add(at.Load(inverse[0] + i), hn::Set(d, T(job.epsilon)));
      at.Store(hn::Div(hn::Set(d, T(1)), hn::Sqrt(variance)), inverse[0] + i);
    });
  }
  const auto xhat = [&](auto at, std::int64_t i, auto pixel) HWY_ATTR {
    return hn::Mul(hn::Sub(at.Load(x + i), pixel(mean[0])), pixel(inverse[0]));
  };

  switch (job.kind) {
    case Kind::norm:
      run.ForEach([&](auto at, std::int64_t i, auto channel, auto pixel) HWY_ATTR {
        at.Store(hn::MulAdd(xhat(at, i, pixel), channel(scale), channel(shift)), out + i);
      });
      break;
    case Kind::norm_backward:
      run.template AddOverPixels<2>(
          sums, [&](auto at, std::int64_t i, auto, auto pixel, VectorOf<T>* terms) HWY_ATTR {
            terms[1] = at.Load(dy + i);
            terms[0] = hn::Mul(terms[1], xhat(at, i, pixel));
          });
      run.template MeanOverChannels<2>(means, [&](auto at, std::int64_t i, auto channel, auto pixel,
                                                  VectorOf<T>* terms) HWY_ATTR {
        terms[0] = hn::Mul(at.Load(dy + i), channel(scale));
        terms[1] = hn::Mul(terms[0], xhat(at, i, pixel));
      });
      run.ForEach([&](auto at, std::int64_t i, auto channel, auto pixel) HWY_ATTR {
        const auto g = hn::Mul(at.Load(dy + i), channel(scale));
        const auto rest = hn::MulAdd(xhat(at, i, pixel), pixel(means[1]), pixel(means[0]));
        at.Store(hn::Mul(hn::Sub(g, rest), pixel(inverse[0])), out + i);
      });
      break;
    case Kind::scale:
      run.ForEach([&](auto at, std::int64_t i, auto channel, auto)
                      HWY_ATTR { at.Store(hn::Mul(at.Load(x + i), channel(scale)), out + i); });
      break;
    case Kind::scale_backward:
      run.template AddOverPixels<1>(
          sums, [&](auto at, std::int64_t i, auto, auto, VectorOf<T>* terms)
                    HWY_ATTR { terms[0] = hn::Mul(at.Load(dy + i), at.Load(x + i)); });
      run.ForEach([&](auto at, std::int64_t i, auto channel, auto)
                      HWY_ATTR { at.Store(hn::Mul(at.Load(dy + i), channel(scale)), out + i); });
      break;
    case Kind::prelu:
      run.ForEach([&](auto at, std::int64_t i, auto channel, auto) HWY_ATTR {
        const auto v = at.Load(x + i);
        at.Store(hn::IfThenElse(hn::Gt(v, hn::Zero(d)), v, hn::Mul(v, channel(scale))), out + i);
      });
      break;
    case Kind::prelu_backward:
      run.template AddOverPixels<1>(
          sums, [&](auto at, std::int64_t i, auto, auto, VectorOf<T>* terms) HWY_ATTR {
            const auto v = at.Load(x + i);
            terms[0] = hn::IfThenZeroElse(hn::Gt(v, hn::Zero(d)), hn::Mul(at.Load(dy + i), v));
          });
      run.ForEach([&](auto at, std::int64_t i, auto channel, auto) HWY_ATTR {
        const auto g = at.Load(dy + i);
        const auto positive = hn::Gt(at.Load(x + i), hn::Zero(d));
        at.Store(hn::IfThenElse(positive, g, hn::Mul(g, channel(scale))), out + i);
      });
      break;
  }
  run.ZeroPaddingLanes(out);
}

void PixelPiece(const PixelJob& job, std::int64_t piece) {
  const PixelPieces& pieces = job.pieces;
  const std::int64_t pair = 2 * pieces.planes.padded_channels();
  double* const sums = job.sums == nullptr ? nullptr : job.sums + piece * pair;
  if (sums != nullptr) std::fill(sums, sums + pair, 0.0);
  with_stored_type(job.dtype, [&](auto zero) {
    using S = decltype(zero);
    for (std::int64_t i = pieces.first_run(piece); i < pieces.first_run(piece + 1); ++i)
      RunPixelJob<S>(job, PixelRun<Computed<S>>{pieces.planes, pieces.run(i)}, sums);
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(PixelPiece);

void run_pieces(const PixelJob& job, int threads) {
#pragma omp parallel for num_threads(threads) \
    schedule(static) if (job.pieces.planes.elements() > serial_elements)
  for (std::int64_t i = 0; i < job.pieces.count; ++i) HWY_DYNAMIC_DISPATCH(PixelPiece)(job, i);
}

// gradient[c] = the which-th sum of c over all pieces, in their order.
void add_pieces(const PixelJob& job, std::int64_t which, void* gradient) {
  const Planes& planes = job.pieces.planes;
  with_type(job.dtype, [&](auto zero) {
    auto* const to = static_cast<decltype(zero)*>(gradient);
    for (std::int64_t c = 0; c < planes.channels; ++c) {
      double total = 0;
      for (std::int64_t i = 0; i < job.pieces.count; ++i)
        total += job.sums[(2 * i + which) * planes.padded_channels() + c];
      to[c] = decltype(zero)(total);
    }
  });
}

void scale_backward(PixelJob::Kind kind, DType dtype, const TensorDesc& desc, const void* x,
                    const void* dy, const void* scale, void* dx, void* dscale, Workspace workspace,
                    int threads) {
  const PixelJob job{
      kind, dtype, PixelPieces(desc), 0,  x,
      dy,   scale, nullptr,           dx, reinterpret_cast<double*>(workspace.data())};
  run_pieces(job, threads);
  add_pieces(job, 0, dscale);
}

}  // namespace

std::size_t pixel_workspace_bytes(const TensorDesc& desc) {
  const PixelPieces pieces(desc);
  return std::size_t(2 * pieces.count * pieces.planes.padded_channels()) * sizeof(double);
}

void CpuLayerOps::layer_norm_forward(DType dtype, const LayerNormDesc& desc, const void* x,
                                     const void* scale, const void* shift, void* y, Stream&) const {
  validate(desc);
  run_pieces({PixelJob::Kind::norm, dtype, PixelPieces(desc.x), desc.epsilon, x, nullptr, scale,
              shift, y, nullptr},
             threads_);
}

void CpuLayerOps::layer_norm_backward(DType dtype, const LayerNormDesc& desc,
                                      const LayerNormBackward& io, Workspace workspace,
                                      Stream&) const {
  validate(desc);
  const PixelJob job{PixelJob::Kind::norm_backward,
                     dtype,
                     PixelPieces(desc.x),
                     desc.epsilon,
                     io.x,
                     io.dy,
                     io.scale,
                     nullptr,
                     io.dx,
                     reinterpret_cast<double*>(workspace.data())};
  run_pieces(job, threads_);
  add_pieces(job, 0, io.dscale);
  add_pieces(job, 1, io.dshift);
}

void CpuLayerOps::scale_channels_forward(DType dtype, const TensorDesc& desc, const void* x,
                                         const void* scale, void* y, Stream&) const {
  run_pieces(
      {PixelJob::Kind::scale, dtype, PixelPieces(desc), 0, x, nullptr, scale, nullptr, y, nullptr},
      threads_);
}

void CpuLayerOps::scale_channels_backward(DType dtype, const TensorDesc& desc, const void* x,
                                          const void* dy, const void* scale, void* dx, void* dscale,
                                          Workspace workspace, Stream&) const {
  scale_backward(PixelJob::Kind::scale_backward, dtype, desc, x, dy, scale, dx, dscale, workspace,
                 threads_);
}

void CpuLayerOps::prelu_forward(DType dtype, const TensorDesc& desc, const void* x,
                                const void* slope, void* y, Stream&) const {
  run_pieces(
      {PixelJob::Kind::prelu, dtype, PixelPieces(desc), 0, x, nullptr, slope, nullptr, y, nullptr},
      threads_);
}

void CpuLayerOps::prelu_backward(DType dtype, const TensorDesc& desc, const void* x, const void* dy,
                                 const void* slope, void* dx, void* dslope, Workspace workspace,
                                 Stream&) const {
  scale_backward(PixelJob::Kind::prelu_backward, dtype, desc, x, dy, slope, dx, dslope, workspace,
                 threads_);
}

}  // namespace convlab::cpu
#endif
