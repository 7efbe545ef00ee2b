// Winograd's backward_filter: dw = A^T [ sum over tiles of V . (G dy G^T) ] A.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_WINOGRAD_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_WINOGRAD_GRADIENT_INL_H_
#undef CONVLAB_KERNELS_CPU_WINOGRAD_GRADIENT_INL_H_
#else
#define CONVLAB_KERNELS_CPU_WINOGRAD_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"
#include "kernels_cpu/winograd/filter-inl.h"
#include "kernels_cpu/winograd/input-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// G dy G^T for (panel's vector, tile) pairs of panels from first_panel on.
template <class Real, class Filter>
void TransformGradient(const Spec& s, const Real* dy, Real* m, std::int64_t first_panel,
                       Range block, Range items) {
  constexpr int M = Filter::inputs;
  constexpr int T = Filter::outputs;
  constexpr int kVecs = kTileVecsOf<Real>, kCols = kTileColsOf<Real>;
  const Geometry& g = s.geometry;
  const std::int64_t rows = s.buffers.padded_tiles, point = s.buffers.m_point;
  ForEachRun(g, block, items,
             [&](std::int64_t vec, std::int64_t tile, const TileAt& place, int count) HWY_ATTR {
               const std::int64_t own = vec / kVecs, lane = vec % kVecs * kLanesOf<Real>;
               const std::int64_t panel = first_panel + own, channel = panel * kCols + lane;
               const std::int64_t columns = g.panel_columns(panel);
               if (lane >= columns) return;
               Real* const to = m + own * rows * kCols + tile * columns + lane;
               const Pixels<M, kRunTiles * M> pixels(g, g.out, g.out_grid, 0, place.y * M,
                                                     place.x * M, count * M);
               const Real* const plane =
                   dy + pixels.Plane(g, g.out, place, channel / kBlock) + channel % kBlock;
               NestedRun<Real, Filter, M, kRunTiles>(
                   count,
                   [&](int c, VecOf<Real>* x) HWY_ATTR {
                     if (s.prefetch_input) pixels.template PrefetchColumn<M>(plane, c);
                     pixels.Load(plane, c, x);
                   },
                   [&](int t, int i, const VecOf<Real>* y) HWY_ATTR {
                     Real* at = to + t * columns + i * T * point;
                     HWY_UNROLL(8)
                     for (int j = 0; j < T; ++j, at += point) hn::StoreU(y[j], TagOf<Real>(), at);
                   });
             });
}

// S += V^T M for one point and chunk: channels x tiles by tiles x columns. Tiles go in parts for
// which M stays in L1 while all channels pass. S of all points exceeds L2, so its lines are
// prefetched before the product that is added to them. V and M of the next point lie next_v and
// next_m elements on: in each channel block, one register tile prefetches V and the other a vector
// of M.
template <class Real, int kVecs>
HWY_NOINLINE void MultiplyTransposed(const Real* v, std::ptrdiff_t block_step,
                                     std::ptrdiff_t next_v, std::int64_t channels, const Real* m,
                                     std::ptrdiff_t next_m, std::int64_t tiles, std::int64_t depth,
                                     bool first, Real* sums) {
  constexpr int kVec = kLanesOf<Real>;
  constexpr std::int64_t kCols = kVecs * kVec;
  const std::int64_t parts = ceil_div(tiles, depth);
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range own = share(tiles, part, parts);
    ForEachRowTile<kHalfBlock>(channels, [&](auto rows, std::int64_t row) HWY_ATTR {
      TileOf<Elements<Real>, decltype(rows)::value, kVecs> sum;
      sum.SetZero();
      Real* const to = sums + row * kCols;
      for (int i = 0; i < rows.value * kCols; i += kVec) __builtin_prefetch(to + i, 1);
      const std::int64_t block = row / kBlock;
      const Real* const a = v + block * block_step + own.begin * kBlock;
      const Real* const b = m + own.begin * kCols;
      using Prefetch = PrefetchToL2Of<Real>;
      const Prefetch next = row % kBlock < kHalfBlock
                                ? Prefetch{a + next_v, kBlock}
                                : Prefetch{b + next_m + block % kVecs * kVec, kCols};
      sum.template MultiplyAdd<1>({a + row % kBlock, 1, kBlock}, {b, kCols}, own.end - own.begin,
                                  next);
      sum.Put(to, kCols, !first || part > 0);
    });
  }
}

// The products of a block of tiles, of panels from first_panel on.
template <class Real>
struct BlockProduct {
  const Spec& s;
  const Real *v, *m;
  std::int64_t first_panel, tiles;
  std::int64_t phase_blocks = s.geometry.phase_blocks();  // divides

  // S of a point and chunk, in the sums of that chunk.
  void Multiply(std::int64_t point, std::int64_t chunk, bool first, Real* sums) const {
    const Geometry& g = s.geometry;
    const WinogradBuffers& b = s.buffers;
    const std::int64_t of_phase = chunk / b.phase_chunks;
    const std::int64_t begin = (chunk - of_phase * b.phase_chunks) * s.chunk_blocks;
    const std::int64_t own = of_phase / g.in_grid.phases;
    const std::int64_t phase = of_phase - own * g.in_grid.phases;
    const std::int64_t channels = std::min(s.chunk_blocks * kBlock, g.in.c - begin * kBlock);
    const std::int64_t block_step = b.padded_tiles * kBlock;
    const std::int64_t columns = g.panel_columns(first_panel + own);
    Real* const to = sums + point * b.sums_point;
    const auto phases = g.phases_at(point);
    if (phase < phases.first || phase >= phases.second) {
      std::fill_n(to, channels * columns, Real(0));
      return;
    }
    auto multiply = MultiplyTransposed<Real, kTileVecsOf<Real>>;
    if constexpr (kLanesOf<Real> == kBlock) {
      if (columns == kBlock) multiply = MultiplyTransposed<Real, 1>;
    }
    multiply(v + point * b.v_point + (phase * phase_blocks + begin) * block_step, block_step,
             b.v_point, channels, m + point * b.m_point + own * b.padded_tiles * kTileColsOf<Real>,
             b.m_point, tiles, s.part_depth, first, to);
  }
};

// dw = A^T S A for a panel and some channels of one chunk, where S is the sum of so many copies,
// copy_step apart; `sums` points at the first of the channels.
template <class Real, class Output>
void TransformSums(const Spec& s, const Real* sums, std::int64_t copies, std::int64_t copy_step,
                   std::int64_t panel, std::int64_t phase, Range channels, Real* dw) {
  constexpr int R = Output::outputs;
  constexpr int kCols = kTileColsOf<Real>;
  using D = TagOf<Real>;
  const Geometry& g = s.geometry;
  const std::int64_t area = g.kernel * g.kernel, step = g.in.c / g.in_fold() * area;
  const std::int64_t pitch = g.panel_columns(panel), point = s.buffers.sums_point;
  const std::int64_t columns = std::min(pitch, g.out.c - panel * kCols);
  const Taps<R> taps(g);
  alignas(64) Real taps_of[kBlock][R * R][kCols];  // of some channels
  for (std::int64_t first = channels.begin; first < channels.end; first += kBlock) {
    const std::int64_t count = std::min<std::int64_t>(kBlock, channels.end - first);
    for (std::int64_t c = 0; c < count; ++c, sums += pitch)
      for (int lane = 0; lane < pitch; lane += kLanesOf<Real>) {
        const Real* at = sums + lane;  // walks through the points, which Nested takes in order
        Nested<Real, Output>(
            [&](int, int) HWY_ATTR {
              VecOf<Real> sum = hn::LoadU(D(), at);
              for (std::int64_t copy = 1; copy < copies; ++copy)
                sum = hn::Add(sum, hn::LoadU(D(), at + copy * copy_step));
              at += point;
              return sum;
            },
            [&](int r, int col, VecOf<Real> value)
                HWY_ATTR { hn::Store(value, D(), taps_of[c][r * R + col] + lane); });
      }
    Real* const to = dw + panel * kCols * step;
    if (g.stride == 1) {  // all taps of all channels, in their order
      PutTransposed(WholeSums{taps_of[0][0]}, g.accumulate, count * area, columns,
                    to + first * area, step);
      continue;
    }
    for (std::int64_t c = 0; c < count; ++c) {
      const int* const tap_at = taps.of[g.tap_phase(first + c, phase)];
      Real* at = to + (first + c) / g.in_fold() * area;
      for (std::int64_t k = 0; k < columns; ++k, at += step)
        for (int rs = 0; rs < R * R; ++rs)
          if (const int tap = tap_at[rs]; tap >= 0)
            at[tap] = taps_of[c][rs][k] + (g.accumulate ? at[tap] : Real(0));
    }
  }
}

// The transforms of F(r, tile), one size each.
template <class Real>
struct GradientTransforms {
  void (*input)(const Spec&, const Real* x, Real* v, Range block, Range items);
  void (*gradient)(const Spec&, const Real* dy, Real* m, std::int64_t first_panel, Range block,
                   Range items);
  void (*sums)(const Spec&, const Real* sums, std::int64_t copies, std::int64_t copy_step,
               std::int64_t panel, std::int64_t phase, Range channels, Real* dw);
};
template <class Real, int M, int R>
GradientTransforms<Real> GradientTransformsOf(const Geometry& g) {
  using Code = Transforms<R, M, ScaledSide::output>;
  return {InputTransform<Real, typename Code::Input, M, R>(g),
          TransformGradient<Real, typename Code::Filter>,
          TransformSums<Real, typename Code::Output>};
}

// What a thread does in backward_filter, alone or in a team: panels of dw, tiles, buffers.
template <class Real>
struct GradientPart {
  const Spec& s;
  const WinogradOperandsOf<Real>& data;
  const GradientTransforms<Real>& transforms;
  Team team;
  Range panels, tiles;
  Real *v, *m, *sums;

  GradientPart(const Spec& spec, const WinogradOperandsOf<Real>& operands,
               const GradientTransforms<Real>& of_size, std::int64_t thread, Team its_team,
               Range its_panels, Range its_tiles)
      : s(spec),
        data(operands),
        transforms(of_size),
        team(its_team),
        panels(its_panels),
        tiles(its_tiles),
        v(s.buffers.v.of(data.workspace, thread)),
        m(s.buffers.m.of(data.workspace, thread)),
        sums(s.buffers.sums.of(data.workspace, thread)) {}

  void TransformBlock(Range block) const {
    const PhaseScope scope(data.recorder, kInputTransform);
    transforms.input(s, data.in, v, block, team.Share(s.geometry.in_blocks() * block.size()));
  }

  // S of all tiles, a block at a time.
  void SumBlocks() const {
    const std::int64_t chunks = panels.size() * s.buffers.panel_chunks;
    for (std::int64_t first = tiles.begin; first < tiles.end; first += s.block_tiles) {
      const Range block{first, std::min(first + s.block_tiles, tiles.end)};
      TransformBlock(block);
      {
        const PhaseScope scope(data.recorder, kInputTransform);
        transforms.gradient(s, data.dy, m, panels.begin, block,
                            team.Share(panels.size() * kTileVecsOf<Real> * block.size()));
      }
      team.Barrier();
      {
        const PhaseScope scope(data.recorder, kProduct);
        const BlockProduct<Real> product{s, v, m, panels.begin, block.size()};
        const Range items = team.Share(s.geometry.points() * chunks);
        for (std::int64_t i = items.begin; i < items.end; ++i) {
          const std::int64_t point = i / chunks, chunk = i % chunks;
          product.Multiply(point, chunk, first == tiles.begin, sums + chunk * s.buffers.sums_chunk);
        }
      }
      team.Barrier();
    }
  }

  // dw from so many copies of S: rows [panel][phase][channel].
  void WriteSums(const Real* all, std::int64_t copies, std::int64_t copy_step, Range rows) const {
    const PhaseScope scope(data.recorder, kOutputTransform);
    const Geometry& g = s.geometry;
    const WinogradBuffers& b = s.buffers;
    const std::int64_t chunk_channels = s.chunk_blocks * kBlock;
    for (std::int64_t i = rows.begin; i < rows.end;) {
      const std::int64_t plane = i / g.in.c, c = i % g.in.c, chunk = c / chunk_channels;
      const std::int64_t panel = panels.begin + plane / g.in_grid.phases;
      const std::int64_t end = std::min({(chunk + 1) * chunk_channels, g.in.c, c + rows.end - i});
      transforms.sums(s,
                      all + (plane * b.phase_chunks + chunk) * b.sums_chunk +
                          (c - chunk * chunk_channels) * g.panel_columns(panel),
                      copies, copy_step, panel, plane % g.in_grid.phases, {c, end},
                      data.output.out);
      i += end - c;
    }
  }
  std::int64_t Rows() const { return panels.size() * s.geometry.in_grid.phases * s.geometry.in.c; }

  // dw, where all tiles are in one block: each chunk's S goes on to dw while it is in cache. M has
  // m_panels panels at a time.
  void WriteFinalSums() const {
    const Geometry& g = s.geometry;
    const WinogradBuffers& b = s.buffers;
    const std::int64_t panel_chunks = b.panel_chunks, chunk_channels = s.chunk_blocks * kBlock;
    TransformBlock(tiles);
    team.Barrier();
    const Range chunks = team.Share(panels.size() * panel_chunks);  // [panel][of_panel]
    BlockProduct<Real> product{s, v, m, panels.begin, tiles.size()};
    for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      const std::int64_t panel = chunk / panel_chunks, of_panel = chunk - panel * panel_chunks;
      const std::int64_t first_of_m = panel / b.m_panels * b.m_panels;
      const std::int64_t in_m = chunk - first_of_m * panel_chunks;
      if (chunk == chunks.begin || in_m == 0) {
        const PhaseScope scope(data.recorder, kInputTransform);
        const std::int64_t count = std::min(b.m_panels, panels.size() - first_of_m);
        product.first_panel = panels.begin + first_of_m;
        transforms.gradient(s, data.dy, m, product.first_panel, tiles,
                            {0, count * kTileVecsOf<Real> * tiles.size()});
      }
      {
        const PhaseScope scope(data.recorder, kProduct);
        for (std::int64_t point = 0; point < g.points(); ++point)
          product.Multiply(point, in_m, true, sums);
      }
      const PhaseScope scope(data.recorder, kOutputTransform);
      const std::int64_t c = of_panel % b.phase_chunks * chunk_channels;
      transforms.sums(s, sums, 1, 0, panels.begin + panel, of_panel / b.phase_chunks,
                      {c, std::min(c + chunk_channels, g.in.c)}, data.output.out);
    }
  }
};

// Each thread sums over its own tiles; then all add up the threads' sums.
template <class Real>
void GradientByPrivateBlocks(const Spec& s, const WinogradOperandsOf<Real>& data,
                             const GradientTransforms<Real>& transforms, Team team) {
  // A thread has at least one tile, or none and no sums.
  const std::int64_t tiles = s.geometry.tiles(), users = std::min(team.size, tiles);
  const Range own = team.rank < users ? share(tiles, team.rank, users) : Range{};
  const GradientPart<Real> part(s, data, transforms, team.rank, Team{},
                                {0, s.geometry.out_panels()}, own);
  part.SumBlocks();
  team.Barrier();
  const WinogradBuffer& sums = s.buffers.sums;
  part.WriteSums(sums.of(data.workspace, 0), users, sums.thread_step, team.Share(part.Rows()));
}

template <class Real>
void GradientBySharedBlocks(const Spec& s, const WinogradOperandsOf<Real>& data,
                            const GradientTransforms<Real>& transforms, Team team) {
  const GradientPart<Real> part(s, data, transforms, team.rank, team, {0, s.geometry.out_panels()},
                                {0, s.geometry.tiles()});
  if (s.final_sums) return part.WriteFinalSums();
  part.SumBlocks();
  part.WriteSums(part.sums, 1, 0, team.Share(part.Rows()));
}

template <class Real>
void GradientByPrivatePanels(const Spec& s, const WinogradOperandsOf<Real>& data,
                             const GradientTransforms<Real>& transforms, Team team) {
  const Range panels = team.Share(s.geometry.out_panels());
  if (panels.size() == 0) return;
  const GradientPart<Real> part(s, data, transforms, team.rank, Team{}, panels,
                                {0, s.geometry.tiles()});
  if (s.final_sums) return part.WriteFinalSums();
  part.SumBlocks();
  part.WriteSums(part.sums, 1, 0, {0, part.Rows()});
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
