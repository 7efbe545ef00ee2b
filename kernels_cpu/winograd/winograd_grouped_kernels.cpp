// The loops of winograd_grouped.cpp.
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels_cpu/winograd/winograd_grouped.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/winograd/winograd_grouped_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/gemm/quad_tile-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"
#include "kernels_cpu/winograd/transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

using Plan = WinogradGrouped;
using RowTransforms = Transforms<Plan::m, Plan::r, ScaledSide::filter>;
constexpr int kPoints = Plan::t;

// Where a channel lies in a tensor, which begins a block.
HWY_INLINE std::int64_t BlockAt(const ChannelView& view, std::int64_t channel) {
  return channel / kBlock * view.block + channel % kBlock;
}

// Vector `step` of a cell of groups of 4 kSteps channels: each 128 bits hold channels
// [4 step, 4 step + 4) of the group that they are part of.
template <int kSteps>
HWY_INLINE Vec SpreadQuads(Vec v, int step) {
  static_assert(kSteps == 1 || kSteps == 2);
  if constexpr (kSteps == 1) return v;
  const Vec swapped = hn::SwapAdjacentBlocks(v);
  return step == 0 ? hn::OddEvenBlocks(swapped, v) : hn::OddEvenBlocks(v, swapped);
}

// The columns of a panel of groups of whole channel blocks: kVecs vectors.
template <int kVecs>
struct BlockColumns {
  static constexpr int kMostRows = kTileRows * kTileVecs / kVecs;
  static constexpr int kPanelVecs = kVecs;

  template <int kRows>
  static HWY_INLINE void Multiply(const Plan& s, const float* v, const float* u, float* m) {
    Tile<kRows, kVecs> sum;
    sum.SetZero();
    constexpr std::int64_t kCols = kVecs * kLanes;
    for (std::int64_t b = 0; b < s.blocks(); ++b)
      sum.template MultiplyAdd<kBlock>({v + b * kPoints * s.v_point(), kBlock, s.v_row()},
                                       {u + b * Plan::r * kBlock * kCols, kCols}, Plan::r);
    sum.Put(m, kCols, false);
  }
  static HWY_INLINE void Put(Vec y, float* to) { hn::StoreU(y, F32(), to); }
};

// The vector of groups of 4 kSteps channels.
template <int kSteps>
struct QuadColumns {
  static constexpr int kMostRows = kLanes == 16 ? 6 : 3;
  static constexpr int kPanelVecs = 1;

  template <int kRows>
  static HWY_INLINE void Multiply(const Plan& s, const float* v, const float* u, float* m) {
    QuadTile<kRows, 4> sum;
    sum.SetZero();
    for (int r = 0; r < Plan::r; ++r, v += s.v_row()) {
      HWY_UNROLL(2)
      for (int step = 0; step < kSteps; ++step, u += 4 * kLanes) {
        Vec x[kRows];
        HWY_UNROLL(8)
        for (int i = 0; i < kRows; ++i) x[i] = hn::LoadU(F32(), v + (i * kSteps + step) * kLanes);
        HWY_UNROLL(4)
        for (int j = 0; j < 4; ++j) {
          const Vec filter = hn::LoadU(F32(), u + j * kLanes);
          HWY_UNROLL(8)
          for (int i = 0; i < kRows; ++i) sum.v[i][j] = hn::MulAdd(x[i], filter, sum.v[i][j]);
        }
      }
    }
    sum.Put(m, kLanes, false);
  }
  static HWY_INLINE void Put(Vec y, float* to) {
    HWY_UNROLL(2)
    for (int step = 0; step < kSteps; ++step)
      hn::StoreU(SpreadQuads<kSteps>(y, step), F32(), to + step * kLanes);
  }
};

// Some rows of V of the band whose outputs begin at row `first`; `image` is the unit's.
template <class Columns>
void TransformRows(const Plan& s, const float* image, std::int64_t first, Range rows, float* v) {
  const std::int64_t tiles = s.row_tiles(), cell = s.cell(), point_step = s.v_point();
  for (std::int64_t b = 0; b < s.blocks(); ++b)
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t h = first + row - s.pad_h;
      float* const to = v + b * kPoints * point_step + row * s.v_row();
      if (h < 0 || h >= s.in.height) {
        for (int point = 0; point < kPoints; ++point)
          std::fill_n(to + point * point_step, tiles * cell, 0.f);
        continue;
      }
      const float* const line = image + b * s.in.block + h * s.in.width * s.in.pixel;
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t left = tile * Plan::m - s.pad_w;
        const bool inside = left >= 0 && left + kPoints <= s.in.width;
        for (int part = 0; part < kBlock; part += kLanes) {
          const float* const from = line + left * s.in.pixel + part;
          Vec d[kPoints], transformed[kPoints];
          if (inside) {
            HWY_UNROLL(8)
            for (int i = 0; i < kPoints; ++i) d[i] = hn::LoadU(F32(), from + i * s.in.pixel);
          } else {
            HWY_UNROLL(8)
            for (int i = 0; i < kPoints; ++i)
              d[i] = left + i >= 0 && left + i < s.in.width
                         ? hn::LoadU(F32(), from + i * s.in.pixel)
                         : hn::Zero(F32());
          }
          RowTransforms::Input::Apply(d, transformed);
          HWY_UNROLL(8)
          for (int point = 0; point < kPoints; ++point)
            Columns::Put(transformed[point], to + point * point_step + tile * cell + part);
        }
      }
    }
}

// A unit's band of outputs and a panel of it.
struct GroupedBand {
  const float* image;         // of the unit's input
  std::int64_t first, count;  // rows
  float* v;
  std::int64_t v_rows = 0;  // that are made
};
struct GroupedPanel {
  const float *v, *u;
  OutputEpilogue<float> output;
  std::int64_t out_at[kTileVecs];  // where each vector of the band's first pixel lies
  Vec bias[kTileVecs];
};

// kRows tiles of the band, counted along its rows, from `first` on.
template <class Columns, int kRows>
HWY_NOINLINE void RunTiles(const Plan& s, const GroupedPanel& panel, std::int64_t first) {
  constexpr int kVecs = Columns::kPanelVecs, kCols = kVecs * kLanes;
  alignas(64) float m[kPoints][kRows * kCols];
  const std::int64_t u_point = Plan::r * s.depth() * kCols;
  const float* const v = panel.v + first * s.cell();
  for (int point = 0; point < kPoints; ++point)
    Columns::template Multiply<kRows>(s, v + point * s.v_point(), panel.u + point * u_point,
                                      m[point]);
  std::int64_t row = first / s.row_tiles(), tile = first % s.row_tiles();
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t pixels = std::min(s.out.width - tile * Plan::m, Plan::m);
    const std::int64_t pixel = (row * s.out.width + tile * Plan::m) * s.out.pixel;
    HWY_UNROLL(2)
    for (int j = 0; j < kVecs; ++j) {
      Vec x[kPoints], y[Plan::m];
      HWY_UNROLL(8)
      for (int point = 0; point < kPoints; ++point)
        x[point] = hn::Load(F32(), m[point] + i * kCols + j * kLanes);
      RowTransforms::Output::Apply(x, y);
      const std::int64_t at = panel.out_at[j] + pixel;
      HWY_UNROLL(4)
      for (int q = 0; q < Plan::m; ++q) y[q] = hn::Add(y[q], panel.bias[j]);
      if (pixels == Plan::m) {
        FinishSums(panel.output, [&](const auto& f) HWY_ATTR {
          HWY_UNROLL(4)
          for (int q = 0; q < Plan::m; ++q) f(y[q], at + q * s.out.pixel);
        });
        HWY_UNROLL(4)
        for (int q = 0; q < Plan::m; ++q) StoreVector(panel.output, y[q], at + q * s.out.pixel);
      } else {
        HWY_UNROLL(4)
        for (int q = 0; q < Plan::m; ++q)
          if (q < pixels) FinishAndStore(panel.output, y[q], at + q * s.out.pixel);
      }
      if (panel.output.activates_stored())
        ActivateStored(*panel.output.activation, panel.output.out + at, kLanes, s.out.pixel,
                       pixels);
    }
    if (++tile == s.row_tiles()) tile = 0, ++row;
  }
}

// Rows of V are made just before the first tiles that need them, for which they are still in L1.
template <class Columns>
void RunPanel(const Plan& s, const WinogradOperandsOf<float>& data, const GroupedPanel& panel,
              GroupedBand& band) {
  ForEachEvenRowTile<Columns::kMostRows>(
      band.count * s.row_tiles(), [&](auto tiles, std::int64_t first) HWY_ATTR {
        const std::int64_t needed = (first + tiles.value - 1) / s.row_tiles() + Plan::r;
        if (needed > band.v_rows) {
          const PhaseScope scope(data.recorder, kInputTransform);
          TransformRows<Columns>(s, band.image, band.first, {band.v_rows, needed}, band.v);
          band.v_rows = needed;
        }
        const PhaseScope scope(data.recorder, kProduct);
        RunTiles<Columns, tiles.value>(s, panel, first);
      });
}

// One thread's share of the items [unit][image][band]. U of a unit stays in L1 or L2.
void Run(const Plan& s, const WinogradOperandsOf<float>& data, std::int64_t thread,
         std::int64_t threads) {
  const ConvProblem& p = s.problem;
  const bool two = kLanes == 16 && s.small == 8;
  float* const v = data.workspace + thread * s.v_size();
  const Range own = share(p.n * s.units * s.bands(), thread, threads);
  for (std::int64_t item = own.begin; item < own.end; ++item) {
    const std::int64_t unit = item / (p.n * s.bands()), n = item / s.bands() % p.n;
    const std::int64_t first = item % s.bands() * s.band;
    GroupedBand band{.image = data.in + n * s.in.image + BlockAt(s.in, unit * s.in_channels),
                     .first = first,
                     .count = std::min(s.band, s.out.height - first),
                     .v = v};
    for (std::int64_t k = 0; k < s.out_channels; k += kTileCols) {
      GroupedPanel panel{
          .v = v,
          .u = data.packed + unit * s.packed_unit() + k * Plan::t * Plan::r * s.depth(),
          .output = data.output,
          .out_at = {},
          .bias = {}};
      const std::int64_t channel = unit * s.out_channels + k;
      for (int j = 0; j < kTileVecs; ++j) {
        panel.out_at[j] = n * s.out.image + BlockAt(s.out, channel + j * kLanes) +
                          first * s.out.width * s.out.pixel;
        alignas(64) float bias[kLanes] = {};
        if (data.output.bias != nullptr) {
          const std::int64_t at = std::min(channel + j * kLanes, p.k);
          std::copy_n(data.output.bias + at, std::min<std::int64_t>(p.k - at, kLanes), bias);
        }
        panel.bias[j] = hn::Load(F32(), bias);
      }
      const bool single = s.register_tile.panel_cols(s.out_channels - k) == kLanes;
      const auto run =
          s.small > 0
              ? (two ? RunPanel<QuadColumns<kLanes == 16 ? 2 : 1>> : RunPanel<QuadColumns<1>>)
          : single ? RunPanel<BlockColumns<1>>
                   : RunPanel<BlockColumns<kTileVecs>>;
      run(s, data, panel, band);
    }
  }
}

// U = G g of each row of each filter, in the order in which Multiply reads it.
void Pack(const Plan& s, const float* w, float* packed) {
  const ConvProblem& p = s.problem;
  const bool data = p.pass == Pass::backward_data;
  const std::int64_t in_group = (data ? p.k : p.c) / p.groups;
  const std::int64_t out_group = (data ? p.c : p.k) / p.groups;
  const std::int64_t out_count = out_group * p.groups;
  // U of a row of the filters from an input channel of its group to a vector of outputs: `of`
  // gives for each lane the channel and the output.
  const auto transform = [&](std::int64_t r, const auto& of, float* to, std::int64_t step) {
    alignas(64) float g[Plan::r][kLanes] = {};
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto [in, out] = of(lane);
      if (out >= out_count) continue;
      const std::int64_t group = out / out_group;
      const float* const taps = FilterView(p, w, group).at(in, out % out_group);
      for (std::int64_t j = 0; j < Plan::r; ++j)
        g[j][lane] = data ? taps[Plan::r * Plan::r - 1 - (r * Plan::r + j)] : taps[r * Plan::r + j];
    }
    Vec x[Plan::r], u[kPoints];
    for (int j = 0; j < Plan::r; ++j) x[j] = hn::Load(F32(), g[j]);
    RowTransforms::Filter::Apply(x, u);
    for (int point = 0; point < kPoints; ++point) hn::StoreU(u[point], F32(), to + point * step);
  };
  using At = std::pair<std::int64_t, std::int64_t>;
  for (std::int64_t unit = 0; unit < s.units; ++unit) {
    float* const of_unit = packed + unit * s.packed_unit();
    const std::int64_t first = unit * s.out_channels;
    if (s.small > 0) {
      const std::int64_t step = Plan::r * s.small * kLanes;
      for (std::int64_t r = 0; r < Plan::r; ++r)
        for (std::int64_t i = 0; i < s.small; ++i)
          transform(
              r,
              [&](std::int64_t lane) {
                return At{i / 4 * 4 + lane % 4, first + lane / 4 * 4 + i % 4};
              },
              of_unit + (r * s.small + i) * kLanes, step);
      continue;
    }
    for (std::int64_t k = 0; k < s.out_channels; k += kTileCols) {
      const std::int64_t columns = s.register_tile.panel_cols(s.out_channels - k);
      float* const panel = of_unit + k * Plan::t * Plan::r * s.depth();
      for (std::int64_t c = 0; c < in_group; ++c)
        for (std::int64_t r = 0; r < Plan::r; ++r)
          for (std::int64_t lane = 0; lane < columns; lane += kLanes)
            transform(
                r,
                [&](std::int64_t i) {
                  return At{c, first + k + lane + i};
                },
                panel + ((c / kBlock * Plan::r + r) * kBlock + c % kBlock) * columns + lane,
                Plan::r * in_group * columns);
    }
  }
}

WinogradCosts GroupedCosts() {
  return {RowTransforms::Input::flops, RowTransforms::Filter::flops, RowTransforms::Output::flops};
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(Pack);
HWY_EXPORT(Run);
HWY_EXPORT(GroupedCosts);

void winograd_grouped_pack(const WinogradGrouped& s, const float* w, float* packed) {
  HWY_DYNAMIC_DISPATCH(Pack)(s, w, packed);
}

void winograd_grouped_run(const WinogradGrouped& s, const WinogradOperandsOf<float>& data) {
#pragma omp parallel num_threads(int(s.threads))
  HWY_DYNAMIC_DISPATCH(Run)(s, data, omp_get_thread_num(), omp_get_num_threads());
}

WinogradCosts winograd_grouped_costs() { return HWY_DYNAMIC_DISPATCH(GroupedCosts)(); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
