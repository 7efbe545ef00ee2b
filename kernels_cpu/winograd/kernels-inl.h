// Winograd's loops: see winograd.h. Forward and backward_data are here, backward_filter is in
// gradient-inl.h. kernels.cpp compiles them for f32, kernels_f64.cpp for f64.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_WINOGRAD_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_WINOGRAD_KERNELS_INL_H_
#undef CONVLAB_KERNELS_CPU_WINOGRAD_KERNELS_INL_H_
#else
#define CONVLAB_KERNELS_CPU_WINOGRAD_KERNELS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/gemm/quad_tile-inl.h"
#include "kernels_cpu/simd/epilogue-inl.h"
#include "kernels_cpu/winograd/filter-inl.h"
#include "kernels_cpu/winograd/fold-inl.h"
#include "kernels_cpu/winograd/gradient-inl.h"
#include "kernels_cpu/winograd/input-inl.h"
#include "kernels_cpu/winograd/tiles-inl.h"
#include "kernels_cpu/winograd/transforms-inl.h"
#include "kernels_cpu/winograd/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// The columns of a panel: kVecs vectors, or fours of columns (QuadTile).
template <class Real, int kVecs>
struct VectorColumns {
  static constexpr int kMostRows = kTileRows * kTileVecsOf<Real> / kVecs;  // that registers hold
  static constexpr std::int64_t kCols = kVecs * kLanesOf<Real>, kPacked = kCols;
  template <int kRows>
  struct Tile : TileOf<Elements<Real>, kRows, kVecs> {
    HWY_INLINE void Add(const Real* a, const Real* u, std::int64_t channels, const Real* next) {
      const PanelBOf<Real> panel{u, kCols};
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
// which U stays in L1 while all tiles pass. Meanwhile the next panel is prefetched into L2, evenly
// spread, since its first touch would wait at each page. Each channel block prefetches V of the
// next block, or of the next point: all rows of a register tile at once would wait for L2.
template <class Real, class Columns>
HWY_NOINLINE void Multiply(const Real* v, const Real* next_v, std::ptrdiff_t block_step,
                           std::int64_t channels, const Real* u, const Real* next_u,
                           std::int64_t tiles, std::int64_t part_depth, bool add, Real* m) {
  constexpr std::int64_t kCols = Columns::kCols, kPacked = Columns::kPacked;
  constexpr std::int64_t kLine = kLineOf<Real>;
  const std::int64_t blocks = ceil_div(channels, kBlock);
  const std::int64_t parts = ceil_div(blocks * kBlock, part_depth);
  const std::int64_t fetches =
      ceil_div(kBlock * kPacked / kLine, ceil_div(tiles, Columns::kMostRows));
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range own = share(blocks, part, parts);
    ForEachEvenRowTile<Columns::kMostRows>(tiles, [&](auto rows, std::int64_t first) HWY_ATTR {
      typename Columns::template Tile<decltype(rows)::value> sum;
      Real* const to = m + first * kCols;
      sum.SetZero();
      for (std::int64_t b = own.begin; b < own.end; ++b) {
        for (std::int64_t f = 0; f < fetches; ++f, next_u += kLine)
          __builtin_prefetch(next_u, 0, 2);
        const Real* const a = v + b * block_step + first * kBlock;
        sum.Add(a, u + b * kBlock * kPacked, channels - b * kBlock,
                b + 1 < blocks ? a + block_step : next_v + first * kBlock);
      }
      sum.Put(to, kCols, add || part > 0);
    });
  }
}

// Loads vectors of M for a run: load(tile, r, x) of NestedTiles.
template <int T, class Real>
HWY_INLINE auto LoadProducts(const Real* from, std::int64_t columns, std::int64_t point) {
  return [=](int tile, int r, VecOf<Real>* x) HWY_ATTR {
    const Real* at = from + tile * columns + r * point;
    HWY_UNROLL(8)
    for (int c = 0; c < T; ++c, at += T * point) x[c] = hn::LoadU(TagOf<Real>(), at);
  };
}

// An activation on the vectors that were stored at these pixels, of which `columns` lie in a row.
template <int kRows, int kVec, class Real, class PixelsOfRun>
HWY_NOINLINE void ActivatePixels(ActivationKind kind, Real* out, const PixelsOfRun& pixels,
                                 int columns) {
  for (int y = 0; y < kRows; ++y)
    for (int x = 0, next; x < columns; x = next) {
      const std::ptrdiff_t pixel = pixels.at(y, x);
      next = x + 1;
      if (pixel < 0) continue;
      while (next < columns && pixels.at(y, next) == pixel + (next - x) * kVec) ++next;
      ActivateStored(kind, out + pixel, (next - x) * kVec);
    }
}

// y = A^T M A for (vector of these panels of each stride phase, tile) pairs, then the epilogue.
template <class Real, class Output, int kStride>
void TransformOutput(const Spec& s, const WinogradOperandsOf<Real>& data, const Real* m,
                     Range panels, Range block, Range items) {
  constexpr int M = Output::outputs;
  constexpr int T = Output::inputs;
  constexpr int kVec = kLanesOf<Real>, kVecs = kTileVecsOf<Real>, kCols = kTileColsOf<Real>;
  using D = TagOf<Real>;
  using Vec = VecOf<Real>;
  const Geometry& g = s.geometry;
  const auto transform = [&](std::int64_t vec, std::int64_t first, const TileAt& place,
                             int count) HWY_ATTR {
    const std::int64_t own = vec / kVecs, lane = vec % kVecs * kVec;
    const std::int64_t phase = kStride == 1 ? 0 : own / panels.size();
    const std::int64_t panel = panels.begin + own - phase * panels.size();
    const std::int64_t channel = panel * kCols + lane, columns = g.panel_columns(panel);
    if (channel >= g.out.padded_c()) return;
    const Pixels<M, kRunTiles * M, kStride> pixels(g, g.out, g.out_grid, phase, place.y * M,
                                                   place.x * M, count * M);
    const std::ptrdiff_t plane = pixels.Plane(g, g.out, place, channel / kBlock) + channel % kBlock;
    Vec bias = hn::Zero(D());
    if (data.output.bias != nullptr) {
      const std::int64_t left = std::clamp<std::int64_t>(g.out.c - channel, 0, kVec);
      alignas(64) Real padded[kVec] = {};
      std::copy_n(data.output.bias + std::min(channel, g.out.c), left, padded);
      bias = hn::Load(D(), padded);
    }
    const auto load =
        LoadProducts<T>(m + own * s.buffers.padded_tiles * kCols + first * columns + lane, columns,
                        s.buffers.m_point);
    NestedTiles<Real, Output, kRunTiles>(
        count,
        [&](int tile, int r, Vec* x) HWY_ATTR {
          // A store that misses holds up the stores behind it. All lines are prefetched here,
          // spread over the first half of the transform.
          if (!data.output.non_temporal && r < M)
            for (int i = 0; i < M; ++i)
              if (const std::ptrdiff_t pixel = pixels.at(r, tile * M + i); pixel >= 0)
                __builtin_prefetch(data.output.out + plane + pixel, 1);
          load(tile, r, x);
        },
        [&](int tile, int y, const Vec* values) HWY_ATTR {
          HWY_UNROLL(8)
          for (int x = 0; x < M; ++x) {
            const std::ptrdiff_t pixel = pixels.at(y, tile * M + x);
            if (pixel < 0) continue;
            FinishAndStore(data.output, hn::Add(values[x], bias), plane + pixel);
          }
        });
    // Not in between: across calls no value stays in a register.
    if (data.output.activates_stored())
      ActivatePixels<M, kVec>(*data.output.activation, data.output.out + plane, pixels, count * M);
  };
  ForEachRun(g, block, items, transform);
}

// The same into plain dx: its folded channels are unfolded.
template <class Real, class Output>
void TransformUnfolded(const Spec& s, const WinogradOperandsOf<Real>& data, const Real* m,
                       Range panels, Range block, Range items) {
  constexpr int M = Output::outputs;
  constexpr int T = Output::inputs;
  constexpr int kVec = kLanesOf<Real>, kVecs = kTileVecsOf<Real>, kCols = kTileColsOf<Real>;
  const Geometry& g = s.geometry;
  const auto unfold =
      g.stride == 4 ? UnfoldRun<Real, M, kRunTiles * M, 4> : UnfoldRun<Real, M, kRunTiles * M, 2>;
  alignas(64) Real patch[M * kRunTiles * M * kVec];
  ForEachRun(
      g, block, items,
      [&](std::int64_t vec, std::int64_t first, const TileAt& place, int count) HWY_ATTR {
        const std::int64_t own = vec / kVecs, lane = vec % kVecs * kVec;
        const std::int64_t panel = panels.begin + own, channel = panel * kCols + lane;
        const std::int64_t columns = g.panel_columns(panel);
        if (channel >= g.out.c) return;
        NestedTiles<Real, Output, kRunTiles>(
            count,
            LoadProducts<T>(m + own * s.buffers.padded_tiles * kCols + first * columns + lane,
                            columns, s.buffers.m_point),
            [&](int tile, int y, const VecOf<Real>* values) HWY_ATTR {
              Real* const to = patch + (y * kRunTiles + tile) * M * kVec;
              HWY_UNROLL(8)
              for (int x = 0; x < M; ++x) hn::Store(values[x], TagOf<Real>(), to + x * kVec);
            });
        unfold(*g.fold, patch, place.mosaic, channel, place.y * M, place.x * M, count * M,
               g.accumulate, data.output.out);
      });
}

template <class Real, class Output, int R>
auto OutputTransform(const Geometry& g) {
  if (g.unfolds()) return TransformUnfolded<Real, Output>;
  return g.out_grid.phases == 1 ? TransformOutput<Real, Output, 1>
                                : TransformOutput<Real, Output, PhaseStride(R)>;
}

template <class Real>
auto MultiplyFor(const Spec& s, std::int64_t panel) {
  auto multiply = Multiply<Real, VectorColumns<Real, kTileVecsOf<Real>>>;
  if constexpr (kLanesOf<Real> == kBlock) {
    if (s.geometry.panel_columns(panel) == kBlock)
      multiply = Multiply<Real, VectorColumns<Real, 1>>;
  }
  if constexpr (kLanesOf<Real> == 16) {
    if (s.panel_fours(panel) == 3) multiply = Multiply<Real, FourColumns<3>>;
    if (s.panel_fours(panel) == 4) multiply = Multiply<Real, FourColumns<4>>;
  }
  return multiply;
}

// M = V U for items [point][stride phase of the output][panel], of some panels of each phase. Where
// the input has stride phases, those with a product at the point are multiplied together; a phase
// of the output without one gets zeros.
template <class Real>
void MultiplyItems(const Spec& s, const Real* packed, Range panels, Range items, const Real* v,
                   std::int64_t tiles, Real* m) {
  struct Item {
    std::int64_t point, phase, panel;
  };
  const Geometry& g = s.geometry;
  const WinogradBuffers& b = s.buffers;
  const std::int64_t of_phase = panels.size(), of_point = g.out_grid.phases * of_phase;
  // These divide, which would take a while at each of many small products.
  const std::int64_t phase_panels = g.phase_panels(), phase_blocks = g.phase_blocks();
  const bool in_phases = g.in_grid.phases > 1, out_phases = g.out_grid.phases > 1;
  const auto after = [&](Item i) {
    if (++i.panel < panels.end) return i;
    i.panel = panels.begin;
    if (++i.phase == g.out_grid.phases) i.phase = 0, ++i.point;
    return i;
  };
  const auto filter = [&](const Item& i) {
    const Real* const u =
        packed + i.point * b.packed_point + (i.phase * phase_panels + i.panel) * b.packed_panel;
    return in_phases
               ? u + g.phases_at(i.point).first * phase_blocks * kBlock * s.packed_columns(i.panel)
               : u;
  };
  Item item{items.begin / of_point, items.begin % of_point / of_phase,
            panels.begin + items.begin % of_phase};
  for (std::int64_t left = items.size(); left > 0; --left) {
    const Item next = after(item);
    Real* const to =
        m + item.point * b.m_point +
        (item.phase * of_phase + item.panel - panels.begin) * b.padded_tiles * kTileColsOf<Real>;
    const auto [first, last] = g.phases_at(item.point);
    if (out_phases && (item.phase < first || item.phase >= last)) {
      std::fill_n(to, tiles * g.panel_columns(item.panel), Real(0));
    } else {
      const Real* const of = v + item.point * b.v_point +
                             (in_phases ? first * phase_blocks * b.padded_tiles * kBlock : 0);
      MultiplyFor<Real>(s, item.panel)(of, of + b.v_point, b.padded_tiles * kBlock,
                                       in_phases ? (last - first) * g.in.padded_c() : g.in.c,
                                       filter(item), filter(next), tiles, s.part_depth, false, to);
    }
    item = next;
  }
}

// The steps of F(tile, r), one size each.
template <class Real>
struct ForwardSteps {
  void (*input)(const Spec&, const Real* in, Real* v, Range block, Range items);
  void (*multiply)(const Spec&, const Real* packed, Range panels, Range items, const Real* v,
                   std::int64_t tiles, Real* m);
  void (*output)(const Spec&, const WinogradOperandsOf<Real>&, const Real* m, Range panels,
                 Range block, Range items);
};
template <class Real, int M, int R>
ForwardSteps<Real> ForwardStepsOf(const Geometry& g) {
  using Code = Transforms<M, R, ScaledSide::filter>;
  return {InputTransform<Real, typename Code::Input, M, R>(g), MultiplyItems<Real>,
          OutputTransform<Real, typename Code::Output, R>(g)};
}

// What a thread does of a block in forward and backward_data, alone or in a team: panels of each of
// the output's stride phases, the items of MultiplyItems, buffers.
template <class Real>
struct ForwardPart {
  const Spec& s;
  const WinogradOperandsOf<Real>& data;
  const ForwardSteps<Real>& steps;
  std::int64_t thread;
  Team team;
  Range panels, items;

  void RunBlock(Range block) const {
    const Geometry& g = s.geometry;
    const std::int64_t tiles = block.size();
    Real* const v = s.buffers.v.of(data.workspace, thread);
    Real* const m = s.buffers.m.of(data.workspace, thread);
    {
      const PhaseScope scope(data.recorder, kInputTransform);
      steps.input(s, data.in, v, block, team.Share(s.input_groups() * tiles));
    }
    team.Barrier();
    {
      const PhaseScope scope(data.recorder, kProduct);
      steps.multiply(s, data.packed, panels, items, v, tiles, m);
    }
    team.Barrier();
    const PhaseScope scope(data.recorder, kOutputTransform);
    steps.output(s, data, m, panels, block,
                 team.Share(g.out_grid.phases * panels.size() * kTileVecsOf<Real> * tiles));
  }
  void RunAllBlocks() const {
    const std::int64_t tiles = s.geometry.tiles();
    for (std::int64_t first = 0; first < tiles; first += s.block_tiles)
      RunBlock({first, std::min(first + s.block_tiles, tiles)});
  }
};

template <class Real>
void ForwardByPrivateBlocks(const Spec& s, const WinogradOperandsOf<Real>& data,
                            const ForwardSteps<Real>& steps, Team team) {
  const Geometry& g = s.geometry;
  const Range panels{0, g.phase_panels()}, items{0, g.points() * g.out_panels()};
  const ForwardPart<Real> part{s, data, steps, team.rank, Team{}, panels, items};
  for (Range block = data.tiles->take(team.rank, s.block_tiles); block.size() > 0;
       block = data.tiles->take(team.rank, s.block_tiles))
    part.RunBlock(block);
}

template <class Real>
void ForwardBySharedBlocks(const Spec& s, const WinogradOperandsOf<Real>& data,
                           const ForwardSteps<Real>& steps, Team team) {
  const Geometry& g = s.geometry;
  const Range own = team.Share(g.product_parts());
  const Range items{g.item_after(own.begin), g.item_after(own.end)};
  ForwardPart<Real>{s, data, steps, team.rank, team, {0, g.phase_panels()}, items}.RunAllBlocks();
}

template <class Real>
void ForwardByPrivatePanels(const Spec& s, const WinogradOperandsOf<Real>& data,
                            const ForwardSteps<Real>& steps, Team team) {
  const Geometry& g = s.geometry;
  const Range panels = team.Share(g.phase_panels());
  if (panels.size() == 0) return;
  const Range items{0, g.points() * g.out_grid.phases * panels.size()};
  ForwardPart<Real>{s, data, steps, team.rank, Team{}, panels, items}.RunAllBlocks();
}

// Packs items [panel][channel block] of a stride phase. Neighbouring points lie a large power of
// two apart, and map to few sets of the caches; so lines that are written whole are written by
// non-temporal stores.
template <class Real, int M, int R>
void PackItems(const Spec& s, const FilterViewOf<Real>& filter, Real* packed, Range items) {
  constexpr int points = (M + R - 1) * (M + R - 1);
  constexpr int kCols = kTileColsOf<Real>;
  using D = TagOf<Real>;
  const Geometry& g = s.geometry;
  const std::int64_t packed_point = s.buffers.packed_point;
  const Taps<R> taps(g);
  alignas(64) Real u[points][kCols];
  alignas(64) Real gathered[(kBlock * kTapsOf<R> + 3) * kCols];
  for (std::int64_t i = items.begin; i < items.end; ++i) {
    const std::int64_t panel = i / g.phase_blocks(), block = i % g.phase_blocks();
    const std::int64_t columns = g.panel_columns(panel), fours = s.panel_fours(panel);
    GatherTaps(g, filter, taps, block * kBlock, panel * kCols, gathered);
    for (std::int64_t phase = 0; phase < g.phases(); ++phase) {
      Real* const to = packed + s.packed_at(phase, panel, block);
      TransformTaps<M, R>(
          g, taps, phase, gathered, columns, kCols, [&](int) { return u[0]; },
          [&](int c) HWY_ATTR {
            if (fours > 0) {
              for (int point = 0; point < points; ++point)
                for (std::int64_t column = 0; column < 4 * fours; ++column)
                  to[point * packed_point + quad_at(fours, c, column)] = u[point][column];
              return;
            }
            for (int point = 0; point < points; ++point)
              for (int lane = 0; lane < columns; lane += kLanesOf<Real>)
                hn::Stream(hn::Load(D(), u[point] + lane), D(),
                           to + c * columns + point * packed_point + lane);
          });
    }
  }
  hwy::FlushStream();
}

// Forward without a packed filter. V of all tiles is the team's, or with a team of one the thread's
// own. U of some channels of a panel stays in L2 while all tiles are multiplied by it.
template <class Real, int M, int R>
void ForwardUnpacked(const Spec& s, const WinogradOperandsOf<Real>& data, Team everybody,
                     Team team) {
  const Geometry& g = s.geometry;
  const WinogradBuffers& b = s.buffers;
  const ForwardSteps<Real> steps = ForwardStepsOf<Real, M, R>(s.geometry);
  const Range all{0, g.tiles()};
  Real* const v = b.v.of(data.workspace, everybody.rank);
  Real* const u = b.filter.of(data.workspace, everybody.rank);
  Real* const gathered = b.taps.of(data.workspace, everybody.rank);
  Real* const m = b.m.of(data.workspace, everybody.rank);
  {
    const PhaseScope scope(data.recorder, kInputTransform);
    steps.input(s, data.in, v, all, team.Share(g.in_blocks() * all.size()));
  }
  team.Barrier();
  const Taps<R> taps(g);
  const bool in_phases = g.in_grid.phases > 1;
  // As in MultiplyItems.
  const std::int64_t phase_blocks = g.phase_blocks(), tiles = all.size();
  // Multiplies a stride phase, of input or output, of a panel by `blocks` channel blocks from
  // `first` on.
  const auto run_chunk = [&](std::int64_t panel, std::int64_t first, std::int64_t blocks,
                             std::int64_t phase) HWY_ATTR {
    const std::int64_t columns = g.panel_columns(panel);
    {
      const PhaseScope scope(data.recorder, kFilterTransform);
      for (std::int64_t i = 0; i < blocks; ++i)
        TransformTaps<M, R>(
            g, taps, phase, gathered + i * b.taps_block, columns, b.filter_point,
            [&](int c) { return u + (i * kBlock + c) * columns; }, [](int) {});
    }
    const PhaseScope scope(data.recorder, kProduct);
    const auto multiply = MultiplyFor<Real>(s, panel);
    const std::int64_t channels = std::min(blocks * kBlock, g.in.c - first * kBlock);
    const std::int64_t v_at = ((in_phases ? phase * phase_blocks : 0) + first) * b.padded_tiles;
    const std::int64_t m_at = (in_phases ? 0 : phase) * b.padded_tiles;
    for (std::int64_t point = 0; point < g.points(); ++point) {
      const auto phases = g.phases_at(point);
      Real* const to = m + point * b.m_point + m_at * kTileColsOf<Real>;
      if (phase < phases.first || phase >= phases.second) {
        if (!in_phases) std::fill_n(to, tiles * columns, Real(0));
        continue;
      }
      const Real* const v_of = v + point * b.v_point + v_at * kBlock;
      const Real* const u_of = u + point * b.filter_point;
      multiply(v_of, v_of + b.v_point, b.padded_tiles * kBlock, channels, u_of,
               u_of + b.filter_point, tiles, s.part_depth,
               first > 0 || (in_phases && phase > phases.first), to);
    }
  };
  const Range own = everybody.Share(g.phase_panels());
  for (std::int64_t panel = own.begin; panel < own.end; ++panel) {
    for (std::int64_t first = 0; first < phase_blocks; first += s.chunk_blocks) {
      const std::int64_t blocks = std::min(s.chunk_blocks, phase_blocks - first);
      {
        const PhaseScope scope(data.recorder, kFilterTransform);
        for (std::int64_t i = 0; i < blocks; ++i)
          GatherTaps(g, *data.filter, taps, (first + i) * kBlock, panel * kTileColsOf<Real>,
                     gathered + i * b.taps_block);
      }
      for (std::int64_t phase = 0; phase < g.phases(); ++phase)
        run_chunk(panel, first, blocks, phase);
    }
    const PhaseScope scope(data.recorder, kOutputTransform);
    steps.output(s, data, m, {panel, panel + 1}, all,
                 {0, g.out_grid.phases * kTileVecsOf<Real> * tiles});
  }
}

// f(M, R) for the geometry's F(tile, r), as integral constants.
template <class F>
void WithSizes(const Geometry& g, F&& f) {
  const auto is = [&](int tile, int r) { return g.tile == tile && g.r == r; };
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

template <class Real>
void Pack(const Spec& s, const FilterViewOf<Real>& filter, Real* packed, std::int64_t thread,
          std::int64_t threads) {
  const Geometry& g = s.geometry;
  const Range items = share(g.phase_panels() * g.phase_blocks(), thread, threads);
  WithSizes(g, [&](auto m, auto r) { PackItems<Real, m(), r()>(s, filter, packed, items); });
}

// f(team) for the parts that were planned for, by however many threads there are. For schedules
// whose threads share nothing.
template <class F>
void ForEachPart(const Spec& s, Team team, F&& f) {
  for (std::int64_t part = team.rank; part < s.threads; part += team.size) f(Team{part, s.threads});
}

// Forward with a packed filter.
template <class Real>
void ForwardPacked(const Spec& s, const WinogradOperandsOf<Real>& data,
                   const ForwardSteps<Real>& steps, Team team) {
  switch (s.schedule) {
    case WinogradSchedule::private_blocks:
      return ForwardByPrivateBlocks(s, data, steps, team);
    case WinogradSchedule::shared_blocks:
      return ForwardBySharedBlocks(s, data, steps, team);
    case WinogradSchedule::private_panels:
      return ForEachPart(s, team, [&](Team part) { ForwardByPrivatePanels(s, data, steps, part); });
    case WinogradSchedule::unpacked_shared:
    case WinogradSchedule::unpacked_private:
      return;  // those pack nothing
  }
}

template <class Real, int M, int R>
void RunForward(const Spec& s, const WinogradOperandsOf<Real>& data, Team team) {
  switch (s.schedule) {
    case WinogradSchedule::private_blocks:
    case WinogradSchedule::shared_blocks:
    case WinogradSchedule::private_panels:
      ForwardPacked(s, data, ForwardStepsOf<Real, M, R>(s.geometry), team);
      break;
    case WinogradSchedule::unpacked_shared:
      ForwardUnpacked<Real, M, R>(s, data, team, team);
      break;
    case WinogradSchedule::unpacked_private:
      ForEachPart(s, team, [&](Team part) { ForwardUnpacked<Real, M, R>(s, data, part, Team{}); });
      break;
  }
  if (data.output.non_temporal) hwy::FlushStream();
}

template <class Real, int M, int R>
void RunBackwardFilter(const Spec& s, const WinogradOperandsOf<Real>& data, Team team) {
  const GradientTransforms<Real> transforms = GradientTransformsOf<Real, M, R>(s.geometry);
  switch (s.schedule) {
    case WinogradSchedule::private_blocks:
      return GradientByPrivateBlocks(s, data, transforms, team);
    case WinogradSchedule::shared_blocks:
      return GradientBySharedBlocks(s, data, transforms, team);
    case WinogradSchedule::private_panels:
      return ForEachPart(s, team,
                         [&](Team part) { GradientByPrivatePanels(s, data, transforms, part); });
    case WinogradSchedule::unpacked_shared:
    case WinogradSchedule::unpacked_private:
      return;  // not planned: no filter is packed
  }
}

template <class Real>
void Run(const Spec& s, const WinogradOperandsOf<Real>& data, std::int64_t thread,
         std::int64_t threads) {
  WithSizes(s.geometry, [&](auto m, auto r) {
    if (s.geometry.pass == Pass::backward_filter)
      RunBackwardFilter<Real, m(), r()>(s, data, {thread, threads});
    else
      RunForward<Real, m(), r()>(s, data, {thread, threads});
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
