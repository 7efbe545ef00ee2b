// The loops of winograd_1d.cpp.
#include <hwy/cache_control.h>
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels_cpu/winograd/winograd_1d.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/winograd/winograd_1d_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"
#include "kernels_cpu/winograd/transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

using Plan = Winograd1d;
using RowTransforms = Transforms<Plan::m, Plan::r, ScaledSide::filter>;

// Tiles of a register tile, and points at a time. AVX2 has registers for half of the 6 x 4 sums:
// three points of four tiles take 15 loads for 12 multiply-adds, all points of two tiles would take
// 18.
constexpr int kRowTiles = 4;
constexpr int kPoints = kLanes == 16 ? 6 : 3;
// The distance at which y's lines are prefetched, in pixels.
constexpr int kPrefetchPixels = 4 * kRowTiles * Plan::m;

// One row of one channel of V. Position k of tile i is pixel m i + k. `line` takes the padded row;
// behind it pixels are split by their remainder mod m, so that neighbouring tiles are neighbours.
void TransformRow(const Plan& s, const float* x, float* line, float* v) {
  const ConvProblem& p = s.problem;
  const std::int64_t pixels = Plan::m * s.line(), tiles = s.row_tiles();
  const std::int64_t left = std::clamp<std::int64_t>(p.pad_w, 0, pixels);
  const std::int64_t right = std::clamp<std::int64_t>(p.w + p.pad_w, left, pixels);
  std::fill(line, line + left, 0.f);
  std::copy(x + left - p.pad_w, x + right - p.pad_w, line + left);
  std::fill(line + right, line + pixels, 0.f);
  float* const split = line + pixels;
  for (std::int64_t i = 0; i <= tiles; i += kLanes) {
    Vec by_rest[Plan::m];
    hn::LoadInterleaved4(F32(), line + Plan::m * i, by_rest[0], by_rest[1], by_rest[2], by_rest[3]);
    for (int k = 0; k < Plan::m; ++k) hn::StoreU(by_rest[k], F32(), split + k * s.line() + i);
  }
  for (std::int64_t i = 0; i < tiles; i += kLanes, v += Plan::t * kLanes) {
    Vec d[Plan::t], transformed[Plan::t];
    HWY_UNROLL(8)
    for (int k = 0; k < Plan::t; ++k)
      d[k] = hn::LoadU(F32(), split + k % Plan::m * s.line() + k / Plan::m + i);
    RowTransforms::Input::Apply(d, transformed);
    HWY_UNROLL(8)
    for (int point = 0; point < Plan::t; ++point)
      hn::StoreU(transformed[point], F32(), v + point * kLanes);
  }
}

// V of the rows that output rows [first, first + count) of an image read.
void TransformBand(const Plan& s, const float* image, std::int64_t first, std::int64_t count,
                   float* v, float* line) {
  const ConvProblem& p = s.problem;
  for (std::int64_t c = 0; c < p.c; ++c)
    for (std::int64_t row = 0; row < count + p.r - 1; ++row) {
      const std::int64_t h = first + row - p.pad_h;
      float* const to = v + (c * s.v_rows() + row) * s.v_row();
      if (h >= 0 && h < p.h)
        TransformRow(s, image + c * p.x_desc().channel_step() + h * p.w, line, to);
      else
        std::fill_n(to, s.v_row(), 0.f);
    }
}

// f(i) for every i in [0, kCount), a constant each time.
template <int kCount, class F, int i = 0>
HWY_INLINE void ForEachIndex(const F& f) {
  if constexpr (i < kCount) {
    f(std::integral_constant<int, i>());
    ForEachIndex<kCount, F, i + 1>(f);
  }
}

// kTiles tiles, `pixels` pixels, of y for the vector of filters u from filter k on; y's first pixel
// is at `to`. A row of V and one such vector of filters stay in L1 from tile to tile.
template <int kTiles>
HWY_NOINLINE void RowTiles(const Plan& s, const WinogradOperandsOf<float>& data, const float* u,
                           std::int64_t k, const float* v, std::ptrdiff_t to, std::int64_t pixels) {
  const ConvProblem& p = s.problem;
  const std::ptrdiff_t row_step = s.v_row();
  const std::ptrdiff_t channel_step = (s.v_rows() - Plan::r) * row_step;  // from its last row
  const bool whole = pixels == kTiles * Plan::m;
  // A store that misses holds up the stores behind it: its line is prefetched some tiles ahead.
  if (!data.output.non_temporal)
    for (int i = 0; i < kTiles * Plan::m * kBlock; i += 16)
      __builtin_prefetch(data.output.out + to + kPrefetchPixels * kBlock + i, 1);
  const std::int64_t left = p.k - k;
  Vec bias = hn::Zero(F32());
  if (data.output.bias != nullptr && left > 0)
    bias = left >= kLanes ? hn::LoadU(F32(), data.output.bias + k)
                          : FirstLanes{std::size_t(left)}.Load(data.output.bias + k);
  Vec sum[kTiles][Plan::t];
  ForEachIndex<Plan::t / kPoints>([&](auto part) HWY_ATTR {
    constexpr int kFirst = decltype(part)::value * kPoints;
    HWY_UNROLL(4)
    for (int i = 0; i < kTiles; ++i) {
      HWY_UNROLL(8)
      for (int point = kFirst; point < kFirst + kPoints; ++point) sum[i][point] = hn::Zero(F32());
    }
    const float* d = v;
    for (std::int64_t c = 0; c < p.c; ++c, d += channel_step) {
      HWY_UNROLL(4)
      for (int r = 0; r < Plan::r; ++r, d += row_step) {
        HWY_UNROLL(8)
        for (int point = kFirst; point < kFirst + kPoints; ++point, u += kLanes) {
          Vec filter = hn::LoadU(F32(), u);
          KeepInRegister(filter);
          HWY_UNROLL(4)
          for (int i = 0; i < kTiles; ++i)
            sum[i][point] =
                hn::MulAdd(hn::Set(F32(), d[point * kLanes + i]), filter, sum[i][point]);
        }
      }
    }
  });
  ForEachIndex<kTiles>([&](auto i) HWY_ATTR {
    Vec x[Plan::t], y[Plan::m];
    HWY_UNROLL(8)
    for (int point = 0; point < Plan::t; ++point) x[point] = sum[i][point];
    RowTransforms::Output::Apply(x, y);
    const std::ptrdiff_t first = to + i * Plan::m * kBlock;
    const auto for_each = [&](auto&& f) HWY_ATTR {
      HWY_UNROLL(4)
      for (int j = 0; j < Plan::m; ++j)
        if (i * Plan::m + j < pixels) f(y[j], first + j * kBlock);
    };
    HWY_UNROLL(4)
    for (int j = 0; j < Plan::m; ++j) y[j] = hn::Add(y[j], bias);
    FinishSums(data.output, for_each);
    const auto store = [&](const Vec& value, std::ptrdiff_t pixel)
                           HWY_ATTR { StoreVector(data.output, value, pixel); };
    if (whole) {
      HWY_UNROLL(4)
      for (int j = 0; j < Plan::m; ++j) store(y[j], first + j * kBlock);
    } else {
      for_each(store);
    }
    if (data.output.activates_stored())
      ActivateStored(*data.output.activation, data.output.out + first, kLanes, kBlock,
                     std::min<std::int64_t>(Plan::m, pixels - i * Plan::m));
  });
}

void Run(const Plan& s, const WinogradOperandsOf<float>& data, std::int64_t thread,
         std::int64_t threads) {
  const ConvProblem& p = s.problem;
  float* const v = data.workspace + thread * s.thread_size();
  const Range rows = share(p.n * p.p, thread, threads);
  for (std::int64_t row = rows.begin; row < rows.end;) {
    const std::int64_t image = row / p.p, first = row % p.p;
    const std::int64_t count = std::min({Plan::band, rows.end - row, p.p - first});
    {
      const PhaseScope scope(data.recorder, kInputTransform);
      TransformBand(s, data.in + image * p.x_desc().image_step(), first, count, v, v + s.v_size());
    }
    const PhaseScope scope(data.recorder, kProduct);
    for (std::int64_t i = 0; i < count; ++i) {
      const TensorDesc y = p.y_desc();
      const std::ptrdiff_t at = y.offset(image, 0, first + i, 0);
      for (std::int64_t k = 0; k < s.filters(); k += kLanes) {
        const float* const u = data.packed + k * s.taps() * Plan::t;
        const std::ptrdiff_t to = at + k / kBlock * y.channel_step() + k % kBlock;
        ForEachRowTile<kRowTiles>(s.row_tiles(), [&](auto tiles, std::int64_t tile) HWY_ATTR {
          constexpr int kTiles = decltype(tiles)::value;
          const std::int64_t q = tile * Plan::m;
          RowTiles<kTiles>(s, data, u, k,
                           v + i * s.v_row() + tile / kLanes * Plan::t * kLanes + tile % kLanes,
                           to + q * kBlock, std::min<std::int64_t>(kTiles * Plan::m, p.q - q));
        });
      }
    }
    row += count;
  }
  if (data.output.non_temporal) hwy::FlushStream();
}

// U = G g of each row of each filter, in the order in which RowTiles reads it.
void Pack(const Plan& s, const float* w, float* packed) {
  for (std::int64_t first = 0; first < s.filters(); first += kLanes)
    for (std::int64_t tap = 0; tap < s.taps(); ++tap) {
      alignas(64) float g[Plan::r][kLanes] = {};
      for (std::int64_t k = first; k < std::min(first + kLanes, s.problem.k); ++k)
        for (int j = 0; j < Plan::r; ++j) g[j][k - first] = w[(k * s.taps() + tap) * Plan::r + j];
      Vec x[Plan::r], u[Plan::t];
      for (int j = 0; j < Plan::r; ++j) x[j] = hn::Load(F32(), g[j]);
      RowTransforms::Filter::Apply(x, u);
      for (int point = 0; point < Plan::t; ++point) {
        const std::int64_t part = point / kPoints * s.taps() + tap;
        hn::StoreU(
            u[point], F32(),
            packed + (first * s.taps() * Plan::t) + (part * kPoints + point % kPoints) * kLanes);
      }
    }
}

WinogradCosts Costs() {
  return {RowTransforms::Input::flops, RowTransforms::Filter::flops, RowTransforms::Output::flops};
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(Pack);
HWY_EXPORT(Run);
HWY_EXPORT(Costs);

void winograd_1d_pack(const Winograd1d& s, const float* w, float* packed) {
  HWY_DYNAMIC_DISPATCH(Pack)(s, w, packed);
}

void winograd_1d_run(const Winograd1d& s, const WinogradOperandsOf<float>& data) {
#pragma omp parallel num_threads(int(s.threads))
  HWY_DYNAMIC_DISPATCH(Run)(s, data, omp_get_thread_num(), omp_get_num_threads());
}

WinogradCosts winograd_1d_costs() { return HWY_DYNAMIC_DISPATCH(Costs)(); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
