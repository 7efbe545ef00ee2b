// Pooling, one row of the output at a time: of y forward, of dx backward. A row of dx gathers its
// gradients from dy, so no two threads add to one element, and sums have one fixed order.
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

#include "kernels_cpu/simd/vectors-inl.h"

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

PoolRange RowsInside(const PoolDesc& pool, std::int64_t p) {
  return WindowInside(p, pool.stride_h, pool.pad_h, pool.window_h, pool.x.h);
}
PoolRange ColumnsInside(const PoolDesc& pool, std::int64_t q) {
  return WindowInside(q, pool.stride_w, pool.pad_w, pool.window_w, pool.x.w);
}

// 1 / the number of elements that the mean at (p, q) counts.
double MeanShare(const PoolDesc& pool, std::int64_t p, std::int64_t q) {
  if (pool.count_padding) return 1.0 / double(pool.window_h * pool.window_w);
  return 1.0 / double(RowsInside(pool, p).size() * ColumnsInside(pool, q).size());
}

// Elements `step` apart.
template <class T, class At>
HWY_INLINE VectorOf<T> LoadStep(At at, const T* p, std::int64_t step) {
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

// A plane of x with row p of y.
template <class T>
struct ForwardPoolRow {
  const PoolDesc& pool;
  std::int64_t p, lanes;
  const T* x;
  T* y;
  std::uint8_t* index;  // or null

  // The vector of y at `out` in its row, whose windows have these columns inside; `in` is where in
  // its row of x the windows begin.
  template <class At>
  HWY_INLINE void Vector(At at, std::int64_t out, std::int64_t in, PoolRange columns) const {
    const VectorTag<T> d;
    const PoolRange rows = RowsInside(pool, p);
    const std::int64_t step = lanes == 1 ? pool.stride_w : 1;
    const T* const origin = x + (p * pool.stride_h - pool.pad_h) * pool.x.w * lanes + in;
    if (pool.kind == PoolKind::average) {
      auto sum = hn::Zero(d);
      for (std::int64_t r = rows.begin; r < rows.end; ++r)
        for (std::int64_t s = columns.begin; s < columns.end; ++s)
          sum = hn::Add(sum, LoadStep(at, origin + (r * pool.x.w + s) * lanes, step));
      const T share = T(MeanShare(pool, p, out / lanes));
      return at.Store(hn::Mul(sum, hn::Set(d, share)), y + out);
    }
    auto greatest = hn::Set(d, -std::numeric_limits<T>::infinity());
    // Counted in a vector: an integer would be converted for every element.
    auto element = hn::Set(d, T(rows.begin * pool.window_w + columns.begin)), winner = element;
    const auto one = hn::Set(d, T(1)), skipped = hn::Set(d, T(pool.window_w - columns.size()));
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      for (std::int64_t s = columns.begin; s < columns.end; ++s) {
        const auto v = LoadStep(at, origin + (r * pool.x.w + s) * lanes, step);
        // A NaN wins and stays, so that it is not lost.
        const auto wins = hn::Or(hn::Gt(v, greatest), hn::IsNaN(v));
        greatest = hn::IfThenElse(wins, v, greatest);
        winner = hn::IfThenElse(wins, element, winner);
        element = hn::Add(element, one);
      }
      element = hn::Add(element, skipped);
    }
    at.Store(greatest, y + out);
    if (index != nullptr) StoreIndex<T>(at, winner, index + out);
  }

  void Run() const {
    const auto one_q = [&](std::int64_t q) HWY_ATTR {
      const std::int64_t in = (q * pool.stride_w - pool.pad_w) * lanes;
      const PoolRange columns = ColumnsInside(pool, q);
      ForEachVector<T>(lanes, [&](auto at, std::int64_t lane)
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
    ForEachVector<T>(whole.size(), [&](auto at, std::int64_t i) HWY_ATTR {
      const std::int64_t q = whole.begin + i;
      Vector(at, q, q * pool.stride_w - pool.pad_w, PoolRange{0, pool.window_w});
    });
    for (std::int64_t q = whole.end; q < pool.y.w; ++q) one_q(q);
  }
};

// A plane of dy with row h of dx. Row p of dy reaches it through window row
// h + pad_h - p * stride_h.
template <class T>
struct BackwardPoolRow {
  const PoolDesc& pool;
  std::int64_t h, lanes;
  const T* dy;
  const std::uint8_t* index;  // null for means
  T* dx;

  void Run() const {
    std::fill(dx, dx + pool.x.w * lanes, T(0));
    const std::int64_t reach = h + pool.pad_h;
    const std::int64_t first =
        std::max<std::int64_t>(0, reach - pool.window_h + pool.stride_h) / pool.stride_h;
    for (std::int64_t p = first; p < pool.y.h && p * pool.stride_h <= reach; ++p)
      for (std::int64_t s = 0; s < pool.window_w; ++s) {
        const PoolRange q = OutputsInside(s, pool.stride_w, pool.pad_w, pool.y.w, pool.x.w);
        const T element = T((reach - p * pool.stride_h) * pool.window_w + s);
        if (lanes == 1 && (index != nullptr || pool.count_padding))
          ForEachVector<T>(q.size(), [&](auto at, std::int64_t i)
                                         HWY_ATTR { Vector(at, p, q.begin + i, s, 0, element); });
        else
          for (std::int64_t i = q.begin; i < q.end; ++i)
            ForEachVector<T>(lanes, [&](auto at, std::int64_t lane)
                                        HWY_ATTR { Vector(at, p, i, s, lane, element); });
      }
  }

  // Adds the contribution of window column s of the vector of dy at (p, q, lane).
  template <class At>
  HWY_INLINE void Vector(At at, std::int64_t p, std::int64_t q, std::int64_t s, std::int64_t lane,
                         T element) const {
    const VectorTag<T> d;
    const std::int64_t out = (p * pool.y.w + q) * lanes + lane;
    auto v = at.Load(dy + out);
    if (index != nullptr)
      v = hn::IfThenElseZero(hn::Eq(LoadIndex<T>(at, index + out), hn::Set(d, element)), v);
    else
      v = hn::Mul(v, hn::Set(d, T(MeanShare(pool, p, q))));
    AddStep(at, v, dx + (q * pool.stride_w - pool.pad_w + s) * lanes + lane,
            lanes == 1 ? pool.stride_w : 1);
  }
};

// Row `row` of y, counted over all planes.
template <class T>
void RunForwardPool(const PoolJob& job, std::int64_t row) {
  const PoolDesc& pool = job.pool;
  const std::int64_t lanes = lanes_of(pool.x), plane = row / pool.y.h;
  const std::int64_t to = row * pool.y.w * lanes;
  ForwardPoolRow<T>{pool,
                    row % pool.y.h,
                    lanes,
                    static_cast<const T*>(job.from) + plane * pool.x.h * pool.x.w * lanes,
                    static_cast<T*>(job.to) + to,
                    job.index == nullptr ? nullptr : job.index + to}
      .Run();
}

// Row `row` of dx.
template <class T>
void RunBackwardPool(const PoolJob& job, std::int64_t row) {
  const PoolDesc& pool = job.pool;
  const std::int64_t lanes = lanes_of(pool.x);
  const std::int64_t from = row / pool.x.h * pool.y.h * pool.y.w * lanes;
  BackwardPoolRow<T>{pool,
                     row % pool.x.h,
                     lanes,
                     static_cast<const T*>(job.from) + from,
                     pool.kind == PoolKind::max ? job.index + from : nullptr,
                     static_cast<T*>(job.to) + row * pool.x.w * lanes}
      .Run();
}

void ForwardPool(const PoolJob& job, std::int64_t row) {
  with_type(job.dtype, [&](auto zero) { RunForwardPool<decltype(zero)>(job, row); });
}
void BackwardPool(const PoolJob& job, std::int64_t row) {
  with_type(job.dtype, [&](auto zero) { RunBackwardPool<decltype(zero)>(job, row); });
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
  validate(dtype, "pool_forward");
  validate(pool);
  for_each_row({dtype, pool, x, y, static_cast<std::uint8_t*>(index)}, pool.y, threads_,
               HWY_DYNAMIC_DISPATCH(ForwardPool));
}

void CpuLayerOps::pool_backward(DType dtype, const PoolDesc& pool, const void* dy,
                                const void* index, void* dx, Stream&) const {
  validate(dtype, "pool_backward");
  validate(pool);
  // The backward pass only reads the index.
  auto* const winners = static_cast<std::uint8_t*>(const_cast<void*>(index));
  for_each_row({dtype, pool, dy, dx, winners}, pool.x, threads_,
               HWY_DYNAMIC_DISPATCH(BackwardPool));
}

}  // namespace convlab::cpu
#endif
