// Winograd's loops: see winograd.h. Forward and backward_data are here, backward_filter is in
// winograd_gradient-inl.h.
#include <hwy/cache_control.h>
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels_cpu/winograd/winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/winograd/kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/gemm/quad_tile-inl.h"
#include "kernels_cpu/simd/relu-inl.h"
#include "kernels_cpu/winograd/filter-inl.h"
#include "kernels_cpu/winograd/fold-inl.h"
#include "kernels_cpu/winograd/gradient-inl.h"
#include "kernels_cpu/winograd/input-inl.h"
#include "kernels_cpu/winograd/tiles-inl.h"
#include "kernels_cpu/winograd/transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// A panel's columns: kVecs vectors of them, or fours.
template <int kVecs>
struct VectorColumns {
  static constexpr int kMostRows = kTileRows * kTileVecs / kVecs;  // what the registers hold
  static constexpr std::int64_t kCols = kVecs * kLanes, kPacked = kCols;
  template <int kRows>
  struct Tile : cpu::HWY_NAMESPACE::Tile<kRows, kVecs> {
    HWY_INLINE void Add(const float* a, const float* u, std::int64_t channels, const float* next) {
      const PanelB panel{u, kCols};
      if (channels >= kBlock)
        this->template MultiplyAddGroupPrefetching<kBlock>(a, panel, next);
      else
        this->MultiplyAdd(&a, kBlock, panel, 1, channels);
    }
  };
};
template <int kFours>
struct FourColumns {
  static constexpr int kMostRows = 24 / kFours;
  static constexpr std::int64_t kCols = kLanes, kPacked = 4 * kFours;
  template <int kRows>
  struct Tile : QuadTile<kRows, kFours> {
    HWY_INLINE void Add(const float* a, const float* u, std::int64_t channels, const float* next) {
      if (channels >= kBlock)
        this->MultiplyAddGroupPrefetching(a, u, next);
      else
        this->MultiplyAdd(a, u, channels);
    }
  };
};

// M = V U for one point and panel: tiles x channels by channels x columns. Channels go in parts for
// which U stays in L1 while all tiles pass; meanwhile the panel that comes next is fetched into L2,
// evenly spread, for its first touch would wait at each page. Each channel block prefetches V of
// the next, or of the next point: all rows of a tile at once would wait for L2.
template <class Columns>
HWY_NOINLINE void Multiply(const float* v, const float* next_v, std::ptrdiff_t block_step,
                           std::int64_t channels, const float* u, const float* next_u,
                           std::int64_t tiles, std::int64_t depth, bool add, float* m) {
  constexpr std::int64_t kCols = Columns::kCols, kPacked = Columns::kPacked, kLine = 16;
  const std::int64_t blocks = ceil_div(channels, kBlock);
  const std::int64_t parts = ceil_div(blocks * kBlock, depth);
  const std::int64_t fetches =
      ceil_div(kBlock * kPacked / kLine, ceil_div(tiles, Columns::kMostRows));
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range own = share(blocks, part, parts);
    ForEachEvenRowTile<Columns::kMostRows>(tiles, [&](auto rows, std::int64_t first) HWY_ATTR {
      typename Columns::template Tile<decltype(rows)::value> sum;
      float* const to = m + first * kCols;
      sum.SetZero();
      for (std::int64_t b = own.begin; b < own.end; ++b) {
        for (std::int64_t f = 0; f < fetches; ++f, next_u += kLine)
          __builtin_prefetch(next_u, 0, 2);
        const float* const a = v + b * block_step + first * kBlock;
        sum.Add(a, u + b * kBlock * kPacked, channels - b * kBlock,
                b + 1 < blocks ? a + block_step : next_v + first * kBlock);
      }
      sum.Put(to, kCols, add || part > 0);
    });
  }
}

// A run's vectors of M: load(tile, r, x) of NestedTiles.
template <int T>
HWY_INLINE auto LoadProducts(const float* from, std::int64_t columns, std::int64_t point) {
  return [=](int tile, int r, Vec* x) HWY_ATTR {
    const float* at = from + tile * columns + r * point;
    HWY_UNROLL(8)
    for (int c = 0; c < T; ++c, at += T * point) x[c] = hn::LoadU(F32(), at);
  };
}

// y = A^T m A for (vector of these panels of each phase, tile) pairs, then the epilogue.
template <class Output, int kStride>
void TransformOutput(const Shape& s, const WinogradOperands& data, const float* m, Range panels,
                     Range block, Range items) {
  constexpr int M = Output::outputs;
  constexpr int T = Output::inputs;
  const auto transform = [&](std::int64_t vec, std::int64_t first, const TileAt& place,
                             int count) HWY_ATTR {
    const std::int64_t own = vec / kTileVecs, lane = vec % kTileVecs * kLanes;
    const std::int64_t phase = kStride == 1 ? 0 : own / panels.size();
    const std::int64_t panel = panels.begin + own - phase * panels.size();
    const std::int64_t channel = panel * kTileCols + lane, columns = s.panel_columns(panel);
    if (channel >= s.out.padded_c()) return;
    const Pixels<M, kRunTiles * M, kStride> pixels(s, s.out, s.out_grid, phase, place.y * M,
                                                   place.x * M, count * M);
    const std::ptrdiff_t plane = pixels.Plane(s, s.out, place, channel / kBlock) + channel % kBlock;
    Vec bias = hn::Zero(F32());
    if (data.bias != nullptr) {
      const std::int64_t left = std::clamp<std::int64_t>(s.out.c - channel, 0, kLanes);
      alignas(64) float padded[kLanes] = {};
      std::copy_n(data.bias + std::min(channel, s.out.c), left, padded);
      bias = hn::Load(F32(), padded);
    }
    const auto load = LoadProducts<T>(m + own * s.rows() * kTileCols + first * columns + lane,
                                      columns, s.m_point());
    NestedTiles<Output, kRunTiles>(
        count,
        [&](int tile, int r, Vec* x) HWY_ATTR {
          // A store whose line is missing holds up those behind it: all are prefetched here, spread
          // over the first half of the transform.
          if (!data.stream && r < M)
            for (int i = 0; i < M; ++i)
              if (const std::ptrdiff_t pixel = pixels.at(r, tile * M + i); pixel >= 0)
                __builtin_prefetch(data.out + plane + pixel, 1);
          load(tile, r, x);
        },
        [&](int tile, int y, const Vec* values) HWY_ATTR {
          HWY_UNROLL(8)
          for (int x = 0; x < M; ++x) {
            const std::ptrdiff_t pixel = pixels.at(y, tile * M + x);
            if (pixel < 0) continue;
            const std::ptrdiff_t to = plane + pixel;
            Vec value = hn::Add(values[x], bias);
            if (data.residual != nullptr)
              value = hn::Add(value, hn::LoadU(F32(), data.residual + to));
            if (s.epilogue.relu) value = Relu(value);
            if (s.accumulate) value = hn::Add(value, hn::LoadU(F32(), data.out + to));
            if (data.stream)
              hn::Stream(value, F32(), data.out + to);
            else
              hn::StoreU(value, F32(), data.out + to);
          }
        });
  };
  ForEachRun(s, block, items, transform);
}

// The same into plain dx, from the channels that it folds to.
template <class Output>
void TransformUnfolded(const Shape& s, const WinogradOperands& data, const float* m, Range panels,
                       Range block, Range items) {
  constexpr int M = Output::outputs;
  constexpr int T = Output::inputs;
  const auto unfold =
      s.stride == 4 ? UnfoldRun<M, kRunTiles * M, 4> : UnfoldRun<M, kRunTiles * M, 2>;
  alignas(64) float patch[M * kRunTiles * M * kLanes];
  ForEachRun(s, block, items,
             [&](std::int64_t vec, std::int64_t first, const TileAt& place, int count) HWY_ATTR {
               const std::int64_t own = vec / kTileVecs, lane = vec % kTileVecs * kLanes;
               const std::int64_t panel = panels.begin + own, channel = panel * kTileCols + lane;
               const std::int64_t columns = s.panel_columns(panel);
               if (channel >= s.out.c) return;
               NestedTiles<Output, kRunTiles>(
                   count,
                   LoadProducts<T>(m + own * s.rows() * kTileCols + first * columns + lane, columns,
                                   s.m_point()),
                   [&](int tile, int y, const Vec* values) HWY_ATTR {
                     float* const to = patch + (y * kRunTiles + tile) * M * kLanes;
                     HWY_UNROLL(8)
                     for (int x = 0; x < M; ++x) hn::Store(values[x], F32(), to + x * kLanes);
                   });
               unfold(*s.fold, patch, place.mosaic, channel, place.y * M, place.x * M, count * M,
                      s.accumulate, data.out);
             });
}

template <class Output, int R>
auto OutputTransform(const Shape& s) {
  if (s.unfolds()) return TransformUnfolded<Output>;
  return s.out_grid.phases == 1 ? TransformOutput<Output, 1>
                                : TransformOutput<Output, PhaseStride(R)>;
}

auto MultiplyFor(const Shape& s, std::int64_t panel) {
  auto multiply = s.panel_columns(panel) == kLanes ? Multiply<VectorColumns<1>>
                                                   : Multiply<VectorColumns<kTileVecs>>;
  if constexpr (kLanes == 16) {
    if (s.panel_fours(panel) == 3) multiply = Multiply<FourColumns<3>>;
    if (s.panel_fours(panel) == 4) multiply = Multiply<FourColumns<4>>;
  }
  return multiply;
}

// M = V U for items [point][phase of the output][panel], of some panels of each phase. Of phases of
// the input those that meet at a point are multiplied, and nothing in a panel of an output's phase
// that does not.
void MultiplyItems(const Shape& s, const float* packed, Range panels, Range items, const float* v,
                   std::int64_t tiles, float* m) {
  struct Item {
    std::int64_t point, phase, panel;
  };
  // Divided once: at each item it took 6% of the product of 7x7/2 (Zen 5).
  const std::int64_t of_phase = panels.size(), of_point = s.out_grid.phases * of_phase;
  const std::int64_t phase_panels = s.phase_panels(), rows = s.rows();
  const std::int64_t v_point = s.v_point(), m_point = s.m_point();
  const std::int64_t packed_point = s.packed_point(), packed_panel = s.packed_panel();
  const bool in_phased = s.in_grid.phases > 1, out_phased = s.out_grid.phases > 1;
  const std::int64_t phase_blocks = s.phase_blocks();
  const auto after = [&](Item i) {
    if (++i.panel < panels.end) return i;
    i.panel = panels.begin;
    if (++i.phase == s.out_grid.phases) i.phase = 0, ++i.point;
    return i;
  };
  const auto filter = [&](const Item& i) {
    const float* const u =
        packed + i.point * packed_point + (i.phase * phase_panels + i.panel) * packed_panel;
    return in_phased
               ? u + s.phases_at(i.point).first * phase_blocks * kBlock * s.packed_columns(i.panel)
               : u;
  };
  Item item{items.begin / of_point, items.begin % of_point / of_phase,
            panels.begin + items.begin % of_phase};
  for (std::int64_t left = items.size(); left > 0; --left) {
    const Item next = after(item);
    float* const to = m + item.point * m_point +
                      (item.phase * of_phase + item.panel - panels.begin) * rows * kTileCols;
    const auto [first, last] = s.phases_at(item.point);
    if (out_phased && (item.phase < first || item.phase >= last)) {
      std::fill_n(to, tiles * s.panel_columns(item.panel), 0.f);
    } else {
      const float* const of =
          v + item.point * v_point + (in_phased ? first * phase_blocks * rows * kBlock : 0);
      MultiplyFor(s, item.panel)(of, of + v_point, rows * kBlock,
                                 in_phased ? (last - first) * s.in.padded_c() : s.in.c,
                                 filter(item), filter(next), tiles, s.depth, false, to);
    }
    item = next;
  }
}

template <int M, int R>
void ForwardThread(const Shape& s, const WinogradOperands& data, std::int64_t thread,
                   std::int64_t threads) {
  using Code = Transforms<M, R, ScaledSide::filter>;
  const Team team = s.shared ? Team{thread, threads} : Team{};
  // Of each of the output's phases.
  const Range panels = share(s.phase_panels(), s.panels ? thread : 0, s.panels ? threads : 1);
  if (panels.size() == 0) return;
  const std::int64_t own_panels = s.out_grid.phases * panels.size();
  float* const set = data.workspace + (s.shared ? 0 : thread * s.set_floats());
  float* const v = s.overlaid() ? set + s.m_floats() : set;
  float* const m = s.overlaid() ? set : v + s.v_floats();
  const auto next_block = [&](std::int64_t begin) {
    if (!s.shared && !s.panels) return data.tiles->take(thread, s.block);
    return Range{begin, std::min(begin + s.block, s.tiles())};
  };
  for (Range block = next_block(0); block.size() > 0; block = next_block(block.end)) {
    const std::int64_t tiles = block.size();
    {
      const PhaseScope scope(data.phases, 0);
      InputTransform<typename Code::Input, M, R>(s)(s, data.in, v, block,
                                                    team.Share(s.in_blocks() * tiles));
    }
    team.Barrier();
    {
      const PhaseScope scope(data.phases, 1);
      const Range steps = team.Share(s.steps());
      const Range items = s.panels ? Range{0, s.points() * own_panels}
                                   : Range{s.item_after(steps.begin), s.item_after(steps.end)};
      MultiplyItems(s, data.packed, panels, items, v, tiles, m);
    }
    team.Barrier();
    const PhaseScope scope(data.phases, 2);
    OutputTransform<typename Code::Output, R>(s)(s, data, m, panels, block,
                                                 team.Share(own_panels * kTileVecs * tiles));
  }
  if (data.stream) hwy::FlushStream();
}

// Of items [panel][channel block] of a phase. Neighbouring points lie a large power of two apart,
// where caches have room for few lines: lines that are written whole go straight to memory instead.
template <int M, int R>
void PackThread(const Shape& s, const FilterView& filter, float* packed, Range items) {
  constexpr int points = (M + R - 1) * (M + R - 1);
  const Taps<R> taps(s);
  alignas(64) float u[points][kTileCols];
  alignas(64) float g[(kBlock * kTapsOf<R> + 3) * kTileCols];
  for (std::int64_t i = items.begin; i < items.end; ++i) {
    const std::int64_t panel = i / s.phase_blocks(), block = i % s.phase_blocks();
    const std::int64_t columns = s.panel_columns(panel), fours = s.panel_fours(panel);
    GatherTaps<R>(s, filter, taps, block * kBlock, panel * kTileCols, g);
    for (std::int64_t phase = 0; phase < s.phases(); ++phase) {
      float* const to = packed + s.packed_at(phase, panel, block);
      TransformTaps<M, R>(
          s, taps, phase, g, columns, kTileCols, [&](int) { return u[0]; },
          [&](int c) HWY_ATTR {
            if (fours > 0) {
              for (int point = 0; point < points; ++point)
                for (std::int64_t column = 0; column < 4 * fours; ++column)
                  to[point * s.packed_point() + quad_at(fours, c, column)] = u[point][column];
              return;
            }
            for (int point = 0; point < points; ++point)
              for (int lane = 0; lane < columns; lane += kLanes)
                hn::Stream(hn::Load(F32(), u[point] + lane), F32(),
                           to + c * columns + point * s.packed_point() + lane);
          });
    }
  }
  hwy::FlushStream();
}

// Forward with the filter as it is: see WinogradShape::fused. U of some channels of a panel stays
// in L2 while they meet the block.
template <int M, int R>
void ForwardFusedThread(const Shape& s, const WinogradOperands& data, std::int64_t thread,
                        std::int64_t threads) {
  using Code = Transforms<M, R, ScaledSide::filter>;
  const Team everybody{thread, threads}, team = s.shared ? everybody : Team{};
  const Range block{0, s.tiles()};
  float* const v = data.workspace + (s.shared ? 0 : thread * s.v_floats());
  float* const u =
      data.workspace + (s.shared ? 1 : threads) * s.v_floats() + thread * s.fused_floats();
  float* const g = u + s.u_floats();
  float* const m = g + s.g_floats();
  {
    const PhaseScope scope(data.phases, 0);
    InputTransform<typename Code::Input, M, R>(s)(s, data.in, v, block,
                                                  team.Share(s.in_blocks() * s.tiles()));
  }
  team.Barrier();
  const Taps<R> taps(s);
  const bool in_phased = s.in_grid.phases > 1;
  // Divided once, as in MultiplyItems.
  const std::int64_t v_point = s.v_point(), m_point = s.m_point(), u_point = s.u_point();
  const std::int64_t phase_blocks = s.phase_blocks(), tiles = s.tiles(), rows = s.rows();
  // The phases, of input or output, meet a panel and `blocks` channel blocks from `first` on.
  const auto run_chunk = [&](std::int64_t panel, std::int64_t first, std::int64_t blocks,
                             std::int64_t phase) HWY_ATTR {
    const std::int64_t columns = s.panel_columns(panel);
    {
      const PhaseScope scope(data.phases, 3);
      for (std::int64_t b = 0; b < blocks; ++b)
        TransformTaps<M, R>(
            s, taps, phase, g + b * s.g_block(), columns, u_point,
            [&](int c) { return u + (b * kBlock + c) * columns; }, [](int) {});
    }
    const PhaseScope scope(data.phases, 1);
    const auto multiply = MultiplyFor(s, panel);
    const std::int64_t channels = std::min(blocks * kBlock, s.in.c - first * kBlock);
    const std::int64_t v_at = ((in_phased ? phase * phase_blocks : 0) + first) * rows;
    const std::int64_t m_at = (in_phased ? 0 : phase) * rows;
    for (std::int64_t point = 0; point < s.points(); ++point) {
      const auto phases = s.phases_at(point);
      float* const to = m + point * m_point + m_at * kTileCols;
      if (phase < phases.first || phase >= phases.second) {
        if (!in_phased) std::fill_n(to, tiles * columns, 0.f);
        continue;
      }
      const float* const v_of = v + point * v_point + v_at * kBlock;
      const float* const u_of = u + point * u_point;
      multiply(v_of, v_of + v_point, rows * kBlock, channels, u_of, u_of + u_point, tiles, s.depth,
               first > 0 || (in_phased && phase > phases.first), to);
    }
  };
  const Range own = everybody.Share(s.phase_panels());
  for (std::int64_t panel = own.begin; panel < own.end; ++panel) {
    for (std::int64_t first = 0; first < phase_blocks; first += s.chunk) {
      const std::int64_t blocks = std::min(s.chunk, phase_blocks - first);
      {
        const PhaseScope scope(data.phases, 3);
        for (std::int64_t b = 0; b < blocks; ++b)
          GatherTaps<R>(s, *data.filter, taps, (first + b) * kBlock, panel * kTileCols,
                        g + b * s.g_block());
      }
      for (std::int64_t phase = 0; phase < s.phases(); ++phase)
        run_chunk(panel, first, blocks, phase);
    }
    const PhaseScope scope(data.phases, 2);
    OutputTransform<typename Code::Output, R>(s)(s, data, m, {panel, panel + 1}, block,
                                                 {0, s.out_grid.phases * kTileVecs * s.tiles()});
  }
  if (data.stream) hwy::FlushStream();
}

// f(M, R) for the shape's F(m, r), as integral constants.
template <class F>
void WithSizes(const Shape& s, F&& f) {
  const auto is = [&](int m, int r) { return s.m == m && s.r == r; };
  const auto call = [&](auto m, auto r) { f(m, r); };
  using std::integral_constant;
  if (is(2, 3)) call(integral_constant<int, 2>(), integral_constant<int, 3>());
  if (is(4, 3)) call(integral_constant<int, 4>(), integral_constant<int, 3>());
  if (is(6, 3)) call(integral_constant<int, 6>(), integral_constant<int, 3>());
  if (is(4, 2)) call(integral_constant<int, 4>(), integral_constant<int, 2>());
  if (is(7, 2)) call(integral_constant<int, 7>(), integral_constant<int, 2>());
  if (is(4, 4)) call(integral_constant<int, 4>(), integral_constant<int, 4>());
  if (is(5, 4)) call(integral_constant<int, 5>(), integral_constant<int, 4>());
  if (is(2, 5)) call(integral_constant<int, 2>(), integral_constant<int, 5>());
  if (is(4, 5)) call(integral_constant<int, 4>(), integral_constant<int, 5>());
}

void Pack(const Shape& s, const FilterView& filter, float* packed, std::int64_t thread,
          std::int64_t threads) {
  const Range items = share(s.phase_panels() * s.phase_blocks(), thread, threads);
  WithSizes(s, [&](auto m, auto r) { PackThread<m(), r()>(s, filter, packed, items); });
}

void Run(const Shape& s, const WinogradOperands& data, std::int64_t thread, std::int64_t threads) {
  WithSizes(s, [&](auto m, auto r) {
    const auto run = s.pass == Pass::backward_filter ? BackwardFilterThread<m(), r()>
                     : s.fused                       ? ForwardFusedThread<m(), r()>
                                                     : ForwardThread<m(), r()>;
    if (s.panels)  // as many parts as were planned for, by however many threads
      for (std::int64_t part = thread; part < s.threads; part += threads)
        run(s, data, part, s.threads);
    else
      run(s, data, thread, threads);
  });
}

template <class Code>
double Flops() {
  return double(Code::outputs + Code::inputs) * Code::flops;
}
// Of a tile whose columns are shared with its neighbours, where they are not folded one by one.
template <class Input, int M>
double InputFlops(const Shape& s) {
  return s.folds() ? Flops<Input>() : double(M + Input::outputs) * Input::flops;
}
WinogradCosts Costs(const Shape& s) {
  WinogradCosts costs;
  WithSizes(s, [&](auto m, auto r) {
    if (s.pass == Pass::backward_filter) {
      using Code = Transforms<r(), m(), ScaledSide::output>;
      costs = {InputFlops<typename Code::Input, m()>(s), Flops<typename Code::Filter>(),
               Flops<typename Code::Output>()};
    } else {
      using Code = Transforms<m(), r(), ScaledSide::filter>;
      costs = {InputFlops<typename Code::Input, m()>(s), Flops<typename Code::Filter>(),
               Flops<typename Code::Output>()};
    }
  });
  return costs;
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(Pack);
HWY_EXPORT(Run);
HWY_EXPORT(Costs);

void winograd_pack(const WinogradShape& s, const FilterView& filter, float* packed) {
#pragma omp parallel num_threads(int(s.threads))
  HWY_DYNAMIC_DISPATCH(Pack)
  (s, filter, packed, omp_get_thread_num(), omp_get_num_threads());
}

void winograd_run(const WinogradShape& s, WinogradOperands data) {
  WorkShares tiles(s.tiles(), s.threads);
  data.tiles = &tiles;
#pragma omp parallel num_threads(int(s.threads))
  HWY_DYNAMIC_DISPATCH(Run)(s, data, omp_get_thread_num(), omp_get_num_threads());
}

WinogradCosts winograd_costs(const WinogradShape& s) { return HWY_DYNAMIC_DISPATCH(Costs)(s); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
