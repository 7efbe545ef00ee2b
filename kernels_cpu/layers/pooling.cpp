// Pooling, one row of the output at a time: of y forward, of dx backward. With depth, row p of
// slice z is row z * P + p. A row of dx gathers its gradients from dy, so no two threads add to one
// element, and sums have one fixed order.
//
// Vectors run over the lanes of one pixel. If a plane is one channel they run over q instead, and
// the elements of x that one window element reads are stride_w apart.
#include <cstring>
#include <limits>

#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/pooling.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/half/stored-inl.h"
#include "kernels_cpu/layers/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

struct PoolRange {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// Window elements of output position `out` that lie inside an axis of `size`.
PoolRange WindowInside(std::int64_t out, std::int64_t stride, std::int64_t pad, std::int64_t window,
                       std::int64_t size) {
  const std::int64_t first = out * stride - pad;
  return {std::max<std::int64_t>(0, -first), std::min(window, size - first)};
}

// Output positions whose window element `element` lies inside.
PoolRange OutputsInside(std::int64_t element, std::int64_t stride, std::int64_t pad,
                        std::int64_t out, std::int64_t size) {
  const std::int64_t shift = pad - element;  // input position = out * stride - shift
  const std::int64_t begin = shift > 0 ? std::min(out, ceil_div(shift, stride)) : 0;
  const std::int64_t end = size - 1 + shift < 0 ? 0 : (size - 1 + shift) / stride + 1;
  return {begin, std::max(begin, std::min(out, end))};
}

// Output positions whose windows hold the input position `reach` - pad.
PoolRange OutputsReaching(std::int64_t reach, std::int64_t stride, std::int64_t window,
                          std::int64_t out) {
  const std::int64_t first = std::max<std::int64_t>(0, reach - window + stride);
  if (stride == 1) return {first, std::min(out, reach + 1)};
  return {first / stride, std::min(out, reach / stride + 1)};
}

PoolRange SlicesInside(const PoolDesc& pool, std::int64_t z) {
  return WindowInside(z, pool.stride_d, pool.pad_d, pool.window_d, pool.x_depth);
}
PoolRange RowsInside(const PoolDesc& pool, std::int64_t p) {
  return WindowInside(p, pool.stride_h, pool.pad_h, pool.window_h, pool.x_rows());
}
PoolRange ColumnsInside(const PoolDesc& pool, std::int64_t q) {
  return WindowInside(q, pool.stride_w, pool.pad_w, pool.window_w, pool.x.w);
}

// Window elements of output position `out` before the end of an axis and its padding.
std::int64_t CountedWindow(std::int64_t out, std::int64_t stride, std::int64_t pad,
                           std::int64_t window, std::int64_t size, std::int64_t pad_end) {
  return std::min(window, size + pad_end - (out * stride - pad));
}

// 1 / the number of elements that the mean at (z, p, q) counts.
double MeanShare(const PoolDesc& pool, std::int64_t z, std::int64_t p, std::int64_t q) {
  if (pool.count_padding)
    return 1.0 / double(CountedWindow(z, pool.stride_d, pool.pad_d, pool.window_d, pool.x_depth,
                                      pool.pad_end_d) *
                        CountedWindow(p, pool.stride_h, pool.pad_h, pool.window_h, pool.x_rows(),
                                      pool.pad_end_h) *
                        CountedWindow(q, pool.stride_w, pool.pad_w, pool.window_w, pool.x.w,
                                      pool.pad_end_w));
  return 1.0 / double(SlicesInside(pool, z).size() * RowsInside(pool, p).size() *
                      ColumnsInside(pool, q).size());
}

// Elements `step` apart.
template <class S, class At>
HWY_INLINE VectorOf<Computed<S>> LoadStep(At at, const S* p, std::int64_t step) {
  using T = Computed<S>;
  if (step == 1) return at.Load(p);
  HWY_ALIGN T values[hn::MaxLanes(VectorTag<T>())] = {};
  for (std::size_t i = 0; i < at.template Count<T>(); ++i) values[i] = p[std::int64_t(i) * step];
  return hn::Load(VectorTag<T>(), values);
}
template <class T, class At>
HWY_INLINE void AddStep(At at, VectorOf<T> v, T* p, std::int64_t step) {
  if (step == 1) return at.Store(hn::Add(at.Load(p), v), p);
  HWY_ALIGN T values[hn::MaxLanes(VectorTag<T>())];
  hn::Store(v, VectorTag<T>(), values);
  for (std::size_t i = 0; i < at.template Count<T>(); ++i) p[std::int64_t(i) * step] += values[i];
}

// Window elements are numbers of type T in vectors, and bytes in memory.
template <class T>
using IndexTag = hn::Rebind<std::uint8_t, VectorTag<T>>;

template <class T, class At>
HWY_INLINE void StoreIndex(At at, VectorOf<T> element, std::uint8_t* p) {
  const hn::Rebind<std::int32_t, VectorTag<T>> integers;
  HWY_ALIGN std::uint8_t bytes[hn::MaxLanes(VectorTag<T>())];
  if constexpr (sizeof(T) == 4)
    hn::StoreU(hn::DemoteTo(IndexTag<T>(), hn::ConvertTo(integers, element)), IndexTag<T>(), bytes);
  else
    hn::StoreU(hn::DemoteTo(IndexTag<T>(), hn::DemoteTo(integers, element)), IndexTag<T>(), bytes);
  std::memcpy(p, bytes, at.template Count<T>());
}
template <class T, class At>
HWY_INLINE VectorOf<T> LoadIndex(At at, const std::uint8_t* p) {
  const hn::Rebind<std::int32_t, VectorTag<T>> integers;
  HWY_ALIGN std::uint8_t bytes[hn::MaxLanes(VectorTag<T>())] = {};
  std::memcpy(bytes, p, at.template Count<T>());
  const auto values = hn::PromoteTo(integers, hn::LoadU(IndexTag<T>(), bytes));
  if constexpr (sizeof(T) == 4)
    return hn::ConvertTo(VectorTag<T>(), values);
  else
    return hn::PromoteTo(VectorTag<T>(), values);
}

// A channel or block of x with row p of slice z of y.
template <class S>
struct ForwardPoolRow {
  using T = Computed<S>;
  const PoolDesc& pool;
  std::int64_t z, p, lanes;
  PoolRange slices, rows;   // window elements inside
  std::int64_t slice_step;  // of x, in elements
  const S* x;
  S* y;
  std::uint8_t* index;  // or null

  // The vector of y at `out` in its row, whose windows have these columns inside; `in` is where in
  // its row of x the windows begin.
  template <class At>
  HWY_INLINE void Vector(At at, std::int64_t out, std::int64_t in, PoolRange columns) const {
    const VectorTag<T> d;
    const std::int64_t step = lanes == 1 ? pool.stride_w : 1;
    const S* const origin = x + (z * pool.stride_d - pool.pad_d) * slice_step +
                            (p * pool.stride_h - pool.pad_h) * pool.x.w * lanes + in;
    if (pool.kind == PoolKind::average) {
      auto sum = hn::Zero(d);
      for (std::int64_t t = slices.begin; t < slices.end; ++t)
        for (std::int64_t r = rows.begin; r < rows.end; ++r) {
          const S* const row = origin + t * slice_step + r * pool.x.w * lanes;
          for (std::int64_t s = columns.begin; s < columns.end; ++s)
            sum = hn::Add(sum, LoadStep(at, row + s * lanes, step));
        }
      const T share = T(MeanShare(pool, z, p, out / lanes));
      return at.Store(hn::Mul(sum, hn::Set(d, share)), y + out);
    }
    auto greatest = hn::Set(d, -std::numeric_limits<T>::infinity());
    // Counted in a vector: an integer would be converted for every element.
    const std::int64_t first =
        (slices.begin * pool.window_h + rows.begin) * pool.window_w + columns.begin;
    auto element = hn::Set(d, T(first)), winner = element;
    const auto one = hn::Set(d, T(1)), skipped = hn::Set(d, T(pool.window_w - columns.size())),
               skipped_rows = hn::Set(d, T((pool.window_h - rows.size()) * pool.window_w));
    for (std::int64_t t = slices.begin; t < slices.end; ++t) {
      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        const S* const row = origin + t * slice_step + r * pool.x.w * lanes;
        for (std::int64_t s = columns.begin; s < columns.end; ++s) {
          const auto v = LoadStep(at, row + s * lanes, step);
          // A NaN wins and stays, so that it is not lost.
          const auto wins = hn::Or(hn::Gt(v, greatest), hn::IsNaN(v));
          greatest = hn::IfThenElse(wins, v, greatest);
          winner = hn::IfThenElse(wins, element, winner);
          element = hn::Add(element, one);
        }
        element = hn::Add(element, skipped);
      }
      element = hn::Add(element, skipped_rows);
    }
    at.Store(greatest, y + out);
    if (index != nullptr) StoreIndex<T>(at, winner, index + out);
  }

  void Run() const {
    const auto one_q = [&](std::int64_t q) HWY_ATTR {
      const std::int64_t in = (q * pool.stride_w - pool.pad_w) * lanes;
      const PoolRange columns = ColumnsInside(pool, q);
      ForEachStored<T>(lanes, [&](auto at, std::int64_t lane)
                                  HWY_ATTR { Vector(at, q * lanes + lane, in + lane, columns); });
    };
    // Whole windows: vectors over q have the same columns.
    PoolRange whole{0, 0};
    if (lanes == 1) {
      const PoolRange first = OutputsInside(0, pool.stride_w, pool.pad_w, pool.y.w, pool.x.w);
      const PoolRange last =
          OutputsInside(pool.window_w - 1, pool.stride_w, pool.pad_w, pool.y.w, pool.x.w);
      whole = {first.begin, std::max(first.begin, last.end)};
    }
    for (std::int64_t q = 0; q < whole.begin; ++q) one_q(q);
    ForEachStored<T>(whole.size(), [&](auto at, std::int64_t i) HWY_ATTR {
      const std::int64_t q = whole.begin + i;
      Vector(at, q, q * pool.stride_w - pool.pad_w, PoolRange{0, pool.window_w});
    });
    for (std::int64_t q = whole.end; q < pool.y.w; ++q) one_q(q);
  }
};

// A channel or block of dy with row h of slice d of dx. Row p of dy reaches it through window row
// h + pad_h - p * stride_h, slice z through window slice d + pad_d - z * stride_d.
template <class S>
struct BackwardPoolRow {
  using T = Computed<S>;
  const PoolDesc& pool;
  std::int64_t d, h, lanes;
  const S* dy;
  const std::uint8_t* index;  // null for means
  S* dx;

  void Run() const {
    ForEachRowPart(dx, pool.x.w, lanes,
                   [&](T* sums, const RowPart& part) HWY_ATTR { AddRows(sums, part); });
  }

  void AddRows(T* sums, const RowPart& part) const {
    const PoolRange slices =
        OutputsReaching(d + pool.pad_d, pool.stride_d, pool.window_d, pool.y_depth);
    const PoolRange rows =
        OutputsReaching(h + pool.pad_h, pool.stride_h, pool.window_h, pool.y_rows());
    for (std::int64_t z = slices.begin; z < slices.end; ++z)
      for (std::int64_t p = rows.begin; p < rows.end; ++p) AddRow(sums, part, z, p);
  }

  // Row p of slice z of dy.
  void AddRow(T* sums, const RowPart& part, std::int64_t z, std::int64_t p) const {
    const std::int64_t t = d + pool.pad_d - z * pool.stride_d;
    const std::int64_t r = h + pool.pad_h - p * pool.stride_h;
    const std::int64_t row = (z * pool.y_rows() + p) * pool.y.w * lanes;
    const auto share = [&](std::int64_t q) { return T(MeanShare(pool, z, p, q)); };
    // Each mean of the row counts as many elements, so that vectors may run over q.
    const bool one_share =
        pool.count_padding && CountedWindow(pool.y.w - 1, pool.stride_w, pool.pad_w, pool.window_w,
                                            pool.x.w, pool.pad_end_w) == pool.window_w;
    for (std::int64_t s = 0; s < pool.window_w; ++s) {
      const PoolRange q =
          OutputsInside(s - part.column, pool.stride_w, pool.pad_w, pool.y.w, part.columns);
      const T element = T((t * pool.window_h + r) * pool.window_w + s);
      if (lanes == 1 && (index != nullptr || one_share))
        ForEachStored<T>(q.size(), [&](auto at, std::int64_t i) HWY_ATTR {
          Vector(at, sums, part, row, q.begin + i, s, 0, element, share);
        });
      else
        for (std::int64_t i = q.begin; i < q.end; ++i)
          ForEachStored<T>(part.lanes, [&](auto at, std::int64_t lane) HWY_ATTR {
            Vector(at, sums, part, row, i, s, part.lane + lane, element, share);
          });
    }
  }

  // Adds the contribution of window column s of the vector of dy at q and a lane of a row, which
  // begins at `row`. A mean counts share(q) of it.
  template <class At, class Share>
  HWY_INLINE void Vector(At at, T* sums, const RowPart& part, std::int64_t row, std::int64_t q,
                         std::int64_t s, std::int64_t lane, T element, const Share& share) const {
    const VectorTag<T> d;
    auto v = at.Load(dy + row + q * lanes + lane);
    if (index != nullptr)
      v = hn::IfThenElseZero(
          hn::Eq(LoadIndex<T>(at, index + row + q * lanes + lane), hn::Set(d, element)), v);
    else
      v = hn::Mul(v, hn::Set(d, share(q)));
    AddStep(at, v, sums + part.at(q * pool.stride_w - pool.pad_w + s, lane),
            lanes == 1 ? pool.stride_w : 1);
  }
};

// Row `row` of y, counted over all planes.
template <class S>
void RunForwardPool(const PoolJob& job, std::int64_t row) {
  const PoolDesc& pool = job.pool;
  const std::int64_t lanes = lanes_of(pool.x), plane = row / pool.y.h;
  const std::int64_t to = row * pool.y.w * lanes, p = row % pool.y.h;
  const std::int64_t z = pool.y_depth == 1 ? 0 : p / pool.y_rows();
  ForwardPoolRow<S>{pool,
                    z,
                    p - z * pool.y_rows(),
                    lanes,
                    SlicesInside(pool, z),
                    RowsInside(pool, p - z * pool.y_rows()),
                    pool.x_rows() * pool.x.w * lanes,
                    static_cast<const S*>(job.from) + plane * pool.x.h * pool.x.w * lanes,
                    static_cast<S*>(job.to) + to,
                    job.index == nullptr ? nullptr : job.index + to}
      .Run();
}

// Row `row` of dx.
template <class S>
void RunBackwardPool(const PoolJob& job, std::int64_t row) {
  const PoolDesc& pool = job.pool;
  const std::int64_t lanes = lanes_of(pool.x);
  const std::int64_t from = row / pool.x.h * pool.y.h * pool.y.w * lanes, h = row % pool.x.h;
  const std::int64_t d = pool.x_depth == 1 ? 0 : h / pool.x_rows();
  BackwardPoolRow<S>{pool,
                     d,
                     h - d * pool.x_rows(),
                     lanes,
                     static_cast<const S*>(job.from) + from,
                     pool.kind == PoolKind::max ? job.index + from : nullptr,
                     static_cast<S*>(job.to) + row * pool.x.w * lanes}
      .Run();
}

void ForwardPool(const PoolJob& job, std::int64_t row) {
  with_stored_type(job.dtype, [&](auto zero) { RunForwardPool<decltype(zero)>(job, row); });
}
void BackwardPool(const PoolJob& job, std::int64_t row) {
  with_stored_type(job.dtype, [&](auto zero) { RunBackwardPool<decltype(zero)>(job, row); });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(ForwardPool);
HWY_EXPORT(BackwardPool);

void for_each_row(const PoolJob& job, const TensorDesc& to, int threads,
                  void (*kernel)(const PoolJob&, std::int64_t)) {
  const std::int64_t rows = to.n * (to.padded_c() / lanes_of(to)) * to.h;
#pragma omp parallel for num_threads(threads) \
    schedule(static) if (job.pool.x.elements() > serial_elements)
  for (std::int64_t row = 0; row < rows; ++row) kernel(job, row);
}

}  // namespace

void CpuLayerOps::pool_forward(DType dtype, const PoolDesc& pool, const void* x, void* y,
                               void* index, Stream&) const {
  validate(pool);
  for_each_row({dtype, pool, x, y, static_cast<std::uint8_t*>(index)}, pool.y, threads_,
               HWY_DYNAMIC_DISPATCH(ForwardPool));
}

void CpuLayerOps::pool_backward(DType dtype, const PoolDesc& pool, const void* dy,
                                const void* index, void* dx, Stream&) const {
  validate(pool);
  // The backward pass only reads the index.
  auto* const winners = static_cast<std::uint8_t*>(const_cast<void*>(index));
  for_each_row({dtype, pool, dy, dx, winners}, pool.x, threads_,
               HWY_DYNAMIC_DISPATCH(BackwardPool));
}

}  // namespace convlab::cpu
#endif
