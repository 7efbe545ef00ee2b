// backward_filter of depthwise: see depthwise.cpp for the derivation.
#include <algorithm>

#include "kernels_cpu/depthwise/depthwise.h"
#include "kernels_cpu/device/range.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/depthwise/filter.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/depthwise/tiles-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// x of several filter rows, from some column on. A row outside of the image is one vector of zeros.
template <class T, int kRows>
struct InputRows {
  const T* at[kRows];
  std::int64_t step[kRows];
};

// sums[r][t] += x[r][c] dy[c - t] for the columns of a sweep; `x` and `dy` point to its first one.
// The columns of dy that are still needed stay in registers: dy[c] in window[(c - begin) % kTaps].
template <int kRows, int kTaps, class T, class In, class Out>
HWY_INLINE void Sweep(const FilterSweep& sweep, InputRows<T, kRows> x, const T* dy,
                      std::int64_t dy_step, const In& read, const Out& access,
                      VecOf<T> (&sums)[kRows * kTaps]) {
  std::int64_t column = sweep.begin;
  const std::int64_t end = sweep.end, outputs = sweep.outputs;
  VecOf<T> window[kTaps];
  Unrolled<kTaps - 1>([&](auto i) CONVLAB_INLINE_LAMBDA {
    const std::int64_t before = i + 1;
    window[kTaps - 1 - i] = column >= before && column - before < outputs
                                ? access.Load(dy - before * dy_step)
                                : hn::Zero(TagOf<T>());
  });
  const auto step = [&](auto i) CONVLAB_INLINE_LAMBDA {
    if (column >= end) return false;
    window[i] = column < outputs ? access.Load(dy) : hn::Zero(TagOf<T>());
    KeepInRegister(window[i]);
    dy += dy_step;
    ++column;
    Unrolled<kRows>([&](auto r) CONVLAB_INLINE_LAMBDA {
      VecOf<T> v = read.Load(x.at[r]);
      KeepInRegister(v);
      x.at[r] += x.step[r];
      Unrolled<kTaps>([&](auto t) CONVLAB_INLINE_LAMBDA {
        VecOf<T>& sum = sums[r * kTaps + t];
        sum = hn::MulAdd(v, window[(i + kTaps - t) % kTaps], sum);
      });
    });
    return true;
  };
  while (UnrolledWhile<kTaps>(step)) {
  }
}

// Taps of kRows filter rows from `first_row` on, over some output rows of an image. `x` and `dy`
// point to the image's first pixel, `sums` to the sum of the first row's first tap.
template <int kRows, int kTaps, class T, class In, class Out>
HWY_NOINLINE void FilterRows(const Depthwise& d, const FilterChunk& chunk, std::int64_t first_row,
                             const T* x, const T* dy, Range rows, T* sums, const In& read,
                             const Out& access) {
  const T zeros[kLanesOf<T>] = {};
  VecOf<T> sum[kRows * kTaps];
  const auto for_each = [&](auto&& f) CONVLAB_INLINE_LAMBDA {
    Unrolled<kRows * kTaps>([&](auto i) CONVLAB_INLINE_LAMBDA {
      f(sum[i], sums + i / kTaps * d.filter_row() + i % kTaps * kLanesOf<T>);
    });
  };
  for_each([](VecOf<T>& v, const T* at) CONVLAB_INLINE_LAMBDA { v = hn::LoadU(TagOf<T>(), at); });
  const std::int64_t dy_row = d.out.width * d.out.pixel, in_step = d.in_step;
  dy += rows.begin * dy_row;
  const std::int64_t* x_row = d.x_rows.data() + rows.begin * d.problem.r + first_row;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (const FilterSweep& sweep : chunk.sweeps) {
      InputRows<T, kRows> from;
      Unrolled<kRows>([&](auto r) CONVLAB_INLINE_LAMBDA {
        const bool inside = x_row[r] >= 0;
        from.at[r] = inside ? x + x_row[r] + sweep.x : zeros;
        from.step[r] = inside ? in_step : 0;
      });
      Sweep<kRows, kTaps>(sweep, from, dy + sweep.dy, d.out_step, read, access, sum);
    }
    x_row += d.problem.r;
    dy += dy_row;
  }
  for_each([](const VecOf<T>& v, T* at) CONVLAB_INLINE_LAMBDA { hn::StoreU(v, TagOf<T>(), at); });
}

// All taps of one vector of channels, over some output rows of an image.
template <class T, class In, class Out>
HWY_INLINE void FilterVector(const Depthwise& d, const T* x, const T* dy, Range rows, T* sums,
                             const In& read, const Out& access) {
  for (const FilterChunk& chunk : d.filter_chunks) {
    const std::int64_t blocks = d.row_blocks(chunk);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const Range filter_rows = share(d.problem.r, block, blocks);
      T* const to = sums + filter_rows.begin * d.filter_row() + chunk.slot * kLanesOf<T>;
      WithConstant<3>(filter_rows.size(), [&](auto count) HWY_ATTR {
        WithConstant<kFilterTaps>(chunk.taps, [&](auto taps) HWY_ATTR {
          if constexpr (count * taps <= kFilterSums)
            FilterRows<count, taps>(d, chunk, filter_rows.begin, x, dy, rows, to, read, access);
        });
      });
    }
  }
}

// dw of some vectors of channels from the partial sums of all parts, added in their order.
template <class T>
void AddParts(const Depthwise& d, const T* sums, Range vectors, T* dw) {
  constexpr std::int64_t kSome = 64;  // taps at a time
  const ConvProblem& p = d.problem;
  const std::int64_t area = p.r * p.s, part = d.vectors * d.filter_vector();
  alignas(64) T total[kSome * kTileColsOf<T>];
  for (std::int64_t v = vectors.begin; v < vectors.end; v += kTileVecsOf<T>) {
    const std::int64_t channels =
        std::min({std::int64_t(kTileColsOf<T>), (vectors.end - v) * d.lanes, p.k - v * d.lanes});
    for (std::int64_t first = 0; first < area; first += kSome) {
      const std::int64_t taps = std::min(kSome, area - first);
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t r = (first + tap) / p.s, s = (first + tap) % p.s;
        const T* from = sums + v * d.filter_vector() + r * d.filter_row() +
                        d.slot_of[std::size_t(s)] * kLanesOf<T>;
        for (std::int64_t i = 0; i * d.lanes < channels; ++i, from += d.filter_vector()) {
          VecOf<T> sum = hn::LoadU(TagOf<T>(), from);
          for (std::int64_t j = 1; j < d.parts; ++j)
            sum = hn::Add(sum, hn::LoadU(TagOf<T>(), from + j * part));
          hn::StoreU(sum, TagOf<T>(), total + tap * kTileColsOf<T> + i * kLanesOf<T>);
        }
      }
      PutTransposed(WholeSums<T>{total}, p.accumulate, taps, channels,
                    dw + v * d.lanes * area + first, area);
    }
  }
}

template <class T>
void Filter(const Depthwise& d, const ConvArgs& args, T* sums, std::int64_t thread,
            std::int64_t threads) {
  const ConvProblem& p = d.problem;
  const std::int64_t groups = ceil_div(d.vectors, d.group);
  const Range tasks = share(groups * d.parts, thread, threads);
  for (std::int64_t task = tasks.begin; task < tasks.end; ++task) {
    const std::int64_t part = task / groups, first = task % groups * d.group;
    const std::int64_t last = std::min(d.vectors, first + d.group);
    T* const part_sums = sums + part * d.vectors * d.filter_vector();
    std::fill(part_sums + first * d.filter_vector(), part_sums + last * d.filter_vector(), T(0));
    const Range units = share(p.n * p.p, part, d.parts);
    for (std::int64_t unit = units.begin, next; unit < units.end; unit = next) {
      const std::int64_t row = unit % p.p, image = unit / p.p;
      next = std::min({units.end, unit + d.band, unit + p.p - row});
      for (std::int64_t v = first; v < last; ++v)
        WithAccess<T>(d, v, [&](const auto& read, const auto& access) HWY_ATTR {
          FilterVector(d, static_cast<const T*>(args.x) + image * d.in.image + InAt<T>(d, v),
                       static_cast<const T*>(args.dy) + image * d.out.image + OutAt<T>(d, v),
                       Range{row, row + next - unit}, part_sums + v * d.filter_vector(), read,
                       access);
        });
    }
  }
}

void FilterOf(const Depthwise& d, const ConvArgs& args, void* sums, std::int64_t thread,
              std::int64_t threads) {
  if (d.problem.dtype == DType::f64)
    Filter(d, args, static_cast<double*>(sums), thread, threads);
  else
    Filter(d, args, static_cast<float*>(sums), thread, threads);
}

void AddPartsOf(const Depthwise& d, const ConvArgs& args, const void* sums, std::int64_t thread,
                std::int64_t threads) {
  const Range groups = share(ceil_div(d.vectors, d.group), thread, threads);
  const Range vectors{groups.begin * d.group, std::min(d.vectors, groups.end * d.group)};
  if (d.problem.dtype == DType::f64)
    AddParts(d, static_cast<const double*>(sums), vectors, static_cast<double*>(args.out));
  else
    AddParts(d, static_cast<const float*>(sums), vectors, static_cast<float*>(args.out));
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(FilterOf);
HWY_EXPORT(AddPartsOf);

void depthwise_filter(const Depthwise& d, const ConvArgs& args, void* sums, std::int64_t thread,
                      std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(FilterOf)(d, args, sums, thread, threads);
}
void depthwise_add_parts(const Depthwise& d, const ConvArgs& args, const void* sums,
                         std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(AddPartsOf)(d, args, sums, thread, threads);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
