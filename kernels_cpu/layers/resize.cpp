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

#include "kernels_cpu/half/stored-inl.h"
#include "kernels_cpu/layers/row_sums-inl.h"

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

// The elements of these indices.
template <class S, class V>
HWY_INLINE VectorOf<Computed<S>> Gather(const S* from, V indices) {
  const VectorTag<Computed<S>> d;
  if constexpr (is_computed_as_stored<S>) {
    return hn::GatherIndex(d, from, indices);
  } else {
    HWY_ALIGN std::int32_t at[hn::MaxLanes(d)];
    HWY_ALIGN S lanes[hn::MaxLanes(d)];
    hn::Store(indices, hn::RebindToSigned<decltype(d)>(), at);
    for (std::size_t i = 0; i < hn::MaxLanes(d); ++i) lanes[i] = from[at[i]];
    return Widen(lanes);
  }
}

template <class V>
HWY_INLINE V Between(V low, V high, V weight) {
  return hn::MulAdd(weight, hn::Sub(high, low), low);
}

template <class S>
void ForwardRows(const ResizeJob& job, std::int64_t plane, std::int64_t begin, std::int64_t end) {
  using T = Computed<S>;
  const VectorTag<T> d;
  const hn::RebindToSigned<VectorTag<T>> integers;
  const ResizeDesc& resize = job.resize;
  const bool nearest = resize.kind == ResizeKind::nearest;
  const std::int64_t lanes = lanes_of(resize.x), width = resize.y.w;
  const std::int64_t pitch = resize.x.w * lanes;
  const S* const x = static_cast<const S*>(job.from) + plane * resize.x.h * pitch;
  S* const y = static_cast<S*>(job.to) + plane * resize.y.h * width * lanes;
  for (std::int64_t first = 0; first < width; first += kColumns) {
    const std::int64_t count = std::min(kColumns, width - first);
    const Columns<T> columns(resize, first, count);
    for (std::int64_t p = begin; p < end; ++p) {
      const Sample row = SampleOf(resize.kind, p, resize.x.h, resize.y.h);
      const S* const above = x + row.low * pitch;
      const S* const below = x + row.high * pitch;
      const auto down = hn::Set(d, T(row.weight));
      S* const out = y + (p * width + first) * lanes;
      if (lanes == 1) {
        ForEachStored<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
          const auto low = hn::LoadU(integers, columns.low + i);
          auto v = Gather(above, low);
          if (!nearest) {
            const auto high = hn::LoadU(integers, columns.high + i);
            const auto right = hn::LoadU(d, columns.weight + i);
            v = Between(v, Gather(above, high), right);
            const auto lower = Between(Gather(below, low), Gather(below, high), right);
            v = Between(v, lower, down);
          }
          at.Store(v, out + i);
        });
        continue;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t low = columns.low[i] * lanes, high = columns.high[i] * lanes;
        const auto right = hn::Set(d, columns.weight[i]);
        ForEachStored<T>(lanes, [&](auto at, std::int64_t lane) HWY_ATTR {
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

// The first of `count` outputs that `reaches`, as all behind it do.
template <class Reaches>
std::int64_t FirstOutput(std::int64_t count, const Reaches& reaches) {
  std::int64_t before = 0, after = count;
  while (before < after) {
    const std::int64_t p = (before + after) / 2;
    if (reaches(p))
      after = p;
    else
      before = p + 1;
  }
  return before;
}

// Row h of a plane of dx.
template <class S>
struct BackwardResizeRow {
  using T = Computed<S>;
  const ResizeDesc& resize;
  std::int64_t h, lanes;
  const S* dy;  // of the plane
  S* dx;        // of the row

  void Run() const {
    ForEachRowPart(dx, resize.x.w, lanes,
                   [&](T* sums, const RowPart& part) HWY_ATTR { AddColumns(sums, part); });
  }

  Sample Column(std::int64_t q) const { return SampleOf(resize.kind, q, resize.x.w, resize.y.w); }

  void AddColumns(T* sums, const RowPart& part) const {
    const std::int64_t end_column = part.column + part.columns;
    const std::int64_t begin =
        FirstOutput(resize.y.w, [&](std::int64_t q) { return Column(q).high >= part.column; });
    const std::int64_t end =
        FirstOutput(resize.y.w, [&](std::int64_t q) { return Column(q).low >= end_column; });
    const std::int64_t first_row = FirstOutput(resize.y.h, [&](std::int64_t p) {
      return SampleOf(resize.kind, p, resize.x.h, resize.y.h).high >= h;
    });
    for (std::int64_t first = begin; first < end; first += kColumns) {
      const std::int64_t count = std::min(kColumns, end - first);
      const Columns<T> columns(resize, first, count);
      if (lanes == 1)
        AddPixels(sums, part, columns, first, count, first_row);
      else
        AddLanes(sums, part, columns, first, count, first_row);
    }
  }

  // f(row of dy, its share) for the rows of dy that row h of x has a part in.
  template <class F>
  HWY_INLINE void ForEachRow(std::int64_t first_row, const F& f) const {
    for (std::int64_t p = first_row; p < resize.y.h; ++p) {
      const Sample row = SampleOf(resize.kind, p, resize.x.h, resize.y.h);
      if (row.low > h) break;
      f(dy + p * resize.y.w * lanes,
        T((row.low == h ? 1 - row.weight : 0) + (row.high == h ? row.weight : 0)));
    }
  }

  void AddPixels(T* sums, const RowPart& part, const Columns<T>& columns, std::int64_t first,
                 std::int64_t count, std::int64_t first_row) const {
    const VectorTag<T> d;
    HWY_ALIGN T of_columns[kColumns] = {};
    ForEachRow(first_row, [&](const S* row, T share) HWY_ATTR {
      ForEachStored<T>(count, [&](auto at, std::int64_t i) HWY_ATTR {
        at.Store(hn::MulAdd(hn::Set(d, share), at.Load(row + first + i), at.Load(of_columns + i)),
                 of_columns + i);
      });
    });
    const auto add = [&](std::int64_t column, T value) {
      if (column >= part.column && column < part.column + part.columns)
        sums[part.at(column, 0)] += value;
    };
    for (std::int64_t i = 0; i < count; ++i) {
      if (resize.kind == ResizeKind::nearest) {
        add(columns.low[i], of_columns[i]);
        continue;
      }
      add(columns.low[i], (1 - columns.weight[i]) * of_columns[i]);
      add(columns.high[i], columns.weight[i] * of_columns[i]);
    }
  }

  void AddLanes(T* sums, const RowPart& part, const Columns<T>& columns, std::int64_t first,
                std::int64_t count, std::int64_t first_row) const {
    const VectorTag<T> d;
    ForEachRow(first_row, [&](const S* row, T share) HWY_ATTR {
      const auto add = [&](std::int64_t column, T weight, const S* from) HWY_ATTR {
        if (column < part.column || column >= part.column + part.columns) return;
        T* const to = sums + part.at(column, part.lane);
        const auto factor = hn::Set(d, weight);
        ForEachStored<T>(part.lanes, [&](auto at, std::int64_t lane) HWY_ATTR {
          at.Store(hn::MulAdd(factor, at.Load(from + lane), at.Load(to + lane)), to + lane);
        });
      };
      for (std::int64_t i = 0; i < count; ++i) {
        const S* const from = row + (first + i) * lanes + part.lane;
        add(columns.low[i], (1 - columns.weight[i]) * share, from);
        if (resize.kind != ResizeKind::nearest)
          add(columns.high[i], columns.weight[i] * share, from);
      }
    });
  }
};

// Rows [begin, end) of a plane of y.
void ResizeForward(const ResizeJob& job, std::int64_t plane, std::int64_t begin, std::int64_t end) {
  with_stored_type(job.dtype,
                   [&](auto zero) { ForwardRows<decltype(zero)>(job, plane, begin, end); });
}
// Rows [begin, end) of a plane of dx.
void ResizeBackward(const ResizeJob& job, std::int64_t plane, std::int64_t begin,
                    std::int64_t end) {
  with_stored_type(job.dtype, [&](auto zero) {
    using S = decltype(zero);
    const ResizeDesc& resize = job.resize;
    const std::int64_t lanes = lanes_of(resize.x);
    const S* const dy = static_cast<const S*>(job.from) + plane * resize.y.h * resize.y.w * lanes;
    S* const dx = static_cast<S*>(job.to) + plane * resize.x.h * resize.x.w * lanes;
    for (std::int64_t h = begin; h < end; ++h)
      BackwardResizeRow<S>{resize, h, lanes, dy, dx + h * resize.x.w * lanes}.Run();
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
  validate(resize);
  for_each_rows({dtype, resize, x, y}, resize.y, threads_, HWY_DYNAMIC_DISPATCH(ResizeForward));
}

void CpuLayerOps::resize_backward(DType dtype, const ResizeDesc& resize, const void* dy, void* dx,
                                  Stream&) const {
  validate(resize);
  for_each_rows({dtype, resize, dy, dx}, resize.x, threads_, HWY_DYNAMIC_DISPATCH(ResizeBackward));
}

}  // namespace convlab::cpu
#endif
