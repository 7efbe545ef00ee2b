// Resizing: each output is a mean of at most two rows and two columns. Forward some rows of y are
// interpolated from x. Backward a row of dx gathers its gradients from dy, so no two threads add to
// one element, and sums have one fixed order.
//
// Vectors run over the lanes of one pixel. If a plane is one channel they run over columns instead,
// and elements of x are gathered.
#include <cmath>

#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/resize.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

constexpr std::int64_t kColumns = 128;  // of y, whose samples are known at a time

// An output is (1 - weight) * x[low] + weight * x[high].
struct Sample {
  std::int64_t low, high;
  double weight;
};

Sample SampleOf(ResizeKind kind, std::int64_t out, std::int64_t in_size, std::int64_t out_size) {
  if (kind == ResizeKind::nearest) {
    const std::int64_t in = out * in_size / out_size;
    return {in, in, 0};
  }
  const double at = std::max(0.0, (double(out) + 0.5) * double(in_size) / double(out_size) - 0.5);
  const std::int64_t low = std::min(std::int64_t(at), in_size - 1);
  return {low, std::min(low + 1, in_size - 1), at - double(low)};
}

// The samples of some columns, as vectors load them.
template <class T>
struct Columns {
  using Index = hn::TFromD<hn::RebindToSigned<VectorTag<T>>>;
  // Vectors gather by all of their lanes' indices, also those beyond the last column.
  Index low[kColumns] = {}, high[kColumns] = {};
  T weight[kColumns] = {};

  Columns(const ResizeDesc& resize, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const Sample s = SampleOf(resize.kind, first + i, resize.x.w, resize.y.w);
      low[i] = Index(s.low);
      high[i] = Index(s.high);
      weight[i] = T(s.weight);
    }
  }
};

template <class V>
HWY_INLINE V Between(V low, V high, V weight) {
  return hn::MulAdd(weight, hn::Sub(high, low), low);
}

template <class T>
void ForwardRows(const ResizeJob& job, std::int64_t plane, std::int64_t begin, std::int64_t end) {
  const VectorTag<T> d;
  const hn::RebindToSigned<VectorTag<T>> integers;
  const ResizeDesc& resize = job.resize;
  const bool nearest = resize.kind == ResizeKind::nearest;
  const std::int64_t lanes = lanes_of(resize.x), width = resize.y.w;
  const std::int64_t pitch = resize.x.w * lanes;
  const T* const x = static_cast<const T*>(job.from) + plane * resize.x.h * pitch;
  T* const y = static_cast<T*>(job.to) + plane * resize.y.h * width * lanes;
  for (std::int64_t first = 0; first < width; first += kColumns) {
    const std::int64_t count = std::min(kColumns, width - first);
    const Columns<T> columns(resize, first, count);
    for (std::int64_t p = begin; p < end; ++p) {
      const Sample row = SampleOf(resize.kind, p, resize.x.h, resize.y.h);
      const T* const above = x + row.low * pitch;
      const T* const below = x + row.high * pitch;
      const auto down = hn::Set(d, T(row.weight));
      T* const out = y + (p * width + first) * lanes;
      if (lanes == 1) {
        ForEachVector<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
          const auto low = hn::LoadU(integers, columns.low + i);
          auto v = hn::GatherIndex(d, above, low);
          if (!nearest) {
            const auto high = hn::LoadU(integers, columns.high + i);
            const auto right = hn::LoadU(d, columns.weight + i);
            v = Between(v, hn::GatherIndex(d, above, high), right);
            const auto lower =
                Between(hn::GatherIndex(d, below, low), hn::GatherIndex(d, below, high), right);
            v = Between(v, lower, down);
          }
          at.Store(v, out + i);
        });
        continue;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t low = columns.low[i] * lanes, high = columns.high[i] * lanes;
        const auto right = hn::Set(d, columns.weight[i]);
        ForEachVector<T>(lanes, [&](auto at, std::int64_t lane) HWY_ATTR {
          auto v = at.Load(above + low + lane);
          if (!nearest) {
            v = Between(v, at.Load(above + high + lane), right);
            const auto lower =
                Between(at.Load(below + low + lane), at.Load(below + high + lane), right);
            v = Between(v, lower, down);
          }
          at.Store(v, out + i * lanes + lane);
        });
      }
    }
  }
}

// The first row of y whose sample reaches row h of x or one below it.
std::int64_t FirstRowReaching(const ResizeDesc& resize, std::int64_t h) {
  std::int64_t before = 0, after = resize.y.h;
  while (before < after) {
    const std::int64_t p = (before + after) / 2;
    if (SampleOf(resize.kind, p, resize.x.h, resize.y.h).high < h)
      before = p + 1;
    else
      after = p;
  }
  return before;
}

template <class T>
void BackwardRow(const ResizeJob& job, std::int64_t plane, std::int64_t h) {
  const VectorTag<T> d;
  const ResizeDesc& resize = job.resize;
  const bool nearest = resize.kind == ResizeKind::nearest;
  const std::int64_t lanes = lanes_of(resize.x), width = resize.y.w;
  const T* const dy = static_cast<const T*>(job.from) + plane * resize.y.h * width * lanes;
  T* const dx = static_cast<T*>(job.to) + (plane * resize.x.h + h) * resize.x.w * lanes;
  std::fill(dx, dx + resize.x.w * lanes, T(0));
  const std::int64_t first_row = FirstRowReaching(resize, h);
  // f(row of dy, its share) for the rows of dy that row h of x has a part in.
  const auto for_each_row = [&](auto f) HWY_ATTR {
    for (std::int64_t p = first_row; p < resize.y.h; ++p) {
      const Sample row = SampleOf(resize.kind, p, resize.x.h, resize.y.h);
      if (row.low > h) break;
      f(dy + p * width * lanes,
        T((row.low == h ? 1 - row.weight : 0) + (row.high == h ? row.weight : 0)));
    }
  };
  for (std::int64_t first = 0; first < width; first += kColumns) {
    const std::int64_t count = std::min(kColumns, width - first);
    const Columns<T> columns(resize, first, count);
    if (lanes == 1) {
      HWY_ALIGN T sums[kColumns] = {};
      for_each_row([&](const T* row, T share) HWY_ATTR {
        ForEachVector<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
          at.Store(hn::MulAdd(hn::Set(d, share), at.Load(row + first + i), at.Load(sums + i)),
                   sums + i);
        });
      });
      for (std::int64_t i = 0; i < count; ++i) {
        if (nearest) {
          dx[columns.low[i]] += sums[i];
          continue;
        }
        dx[columns.low[i]] += (1 - columns.weight[i]) * sums[i];
        dx[columns.high[i]] += columns.weight[i] * sums[i];
      }
      continue;
    }
    for_each_row([&](const T* row, T share) HWY_ATTR {
      for (std::int64_t i = 0; i < count; ++i) {
        T* const low = dx + columns.low[i] * lanes;
        T* const high = dx + columns.high[i] * lanes;
        const auto left = hn::Set(d, (1 - columns.weight[i]) * share);
        const auto right = hn::Set(d, columns.weight[i] * share);
        ForEachVector<T>(lanes, [&](auto at, std::int64_t lane) HWY_ATTR {
          const auto v = at.Load(row + (first + i) * lanes + lane);
          at.Store(hn::MulAdd(left, v, at.Load(low + lane)), low + lane);
          if (!nearest) at.Store(hn::MulAdd(right, v, at.Load(high + lane)), high + lane);
        });
      }
    });
  }
}

// Rows [begin, end) of a plane of y.
void ResizeForward(const ResizeJob& job, std::int64_t plane, std::int64_t begin, std::int64_t end) {
  with_type(job.dtype, [&](auto zero) { ForwardRows<decltype(zero)>(job, plane, begin, end); });
}
// Rows [begin, end) of a plane of dx.
void ResizeBackward(const ResizeJob& job, std::int64_t plane, std::int64_t begin,
                    std::int64_t end) {
  with_type(job.dtype, [&](auto zero) {
    for (std::int64_t h = begin; h < end; ++h) BackwardRow<decltype(zero)>(job, plane, h);
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(ResizeForward);
HWY_EXPORT(ResizeBackward);

void for_each_rows(const ResizeJob& job, const TensorDesc& to, int threads,
                   void (*kernel)(const ResizeJob&, std::int64_t, std::int64_t, std::int64_t)) {
  const std::int64_t planes = to.n * (to.padded_c() / lanes_of(to));
  constexpr std::int64_t rows = 16;
#pragma omp parallel for collapse(2) num_threads(threads) \
    schedule(static) if (job.resize.y.elements() > serial_elements)
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::int64_t row = 0; row < to.h; row += rows)
      kernel(job, plane, row, std::min(row + rows, to.h));
}

}  // namespace

void CpuLayerOps::resize_forward(DType dtype, const ResizeDesc& resize, const void* x, void* y,
                                 Stream&) const {
  validate(dtype, "resize_forward");
  validate(resize);
  for_each_rows({dtype, resize, x, y}, resize.y, threads_, HWY_DYNAMIC_DISPATCH(ResizeForward));
}

void CpuLayerOps::resize_backward(DType dtype, const ResizeDesc& resize, const void* dy, void* dx,
                                  Stream&) const {
  validate(dtype, "resize_backward");
  validate(resize);
  for_each_rows({dtype, resize, dy, dx}, resize.x, threads_, HWY_DYNAMIC_DISPATCH(ResizeBackward));
}

}  // namespace convlab::cpu
#endif
