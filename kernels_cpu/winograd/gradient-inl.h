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

#include "kernels_cpu/simd/put_transposed-inl.h"
#include "kernels_cpu/winograd/filter-inl.h"
#include "kernels_cpu/winograd/input-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// G dy G^T for (panel's vector, tile) pairs of panels from first_panel on.
template <class Filter>
void TransformGradient(const Spec& s, const float* dy, float* m, std::int64_t first_panel,
                       Range block, Range items) {
  constexpr int M = Filter::inputs;
  constexpr int T = Filter::outputs;
  const Geometry& g = s.geometry;
  const std::int64_t rows = s.buffers.padded_tiles, point = s.buffers.m_point;
  ForEachRun(g, block, items,
             [&](std::int64_t vec, std::int64_t tile, const TileAt& place, int count) HWY_ATTR {
               const std::int64_t own = vec / kTileVecs, lane = vec % kTileVecs * kLanes;
               const std::int64_t panel = first_panel + own, channel = panel * kTileCols + lane;
               const std::int64_t columns = g.panel_columns(panel);
               if (lane >= columns) return;
               float* const to = m + own * rows * kTileCols + tile * columns + lane;
               const Pixels<M, kRunTiles * M> pixels(g, g.out, g.out_grid, 0, place.y * M,
                                                     place.x * M, count * M);
               const float* const plane =
                   dy + pixels.Plane(g, g.out, place, channel / kBlock) + channel % kBlock;
               NestedRun<Filter, M, kRunTiles>(
                   count,
                   [&](int c, Vec* x) HWY_ATTR {
                     if (s.prefetch_input) pixels.template PrefetchColumn<M>(plane, c);
                     pixels.Load(plane, c, x);
                   },
                   [&](int t, int i, const Vec* y) HWY_ATTR {
                     float* at = to + t * columns + i * T * point;
                     HWY_UNROLL(8)
                     for (int j = 0; j < T; ++j, at += point) hn::StoreU(y[j], F32(), at);
                   });
             });
}

// S += V^T M for one point and chunk: channels x tiles by tiles x columns. Tiles go in parts for
// which M stays in L1 while all channels pass. S of all points exceeds L2, so its lines are
// prefetched before the product that is added to them. V and M of the next point lie next_v and
// next_m floats on: in each channel block, one register tile prefetches V and the other a vector of
// M.
template <int kVecs>
HWY_NOINLINE void MultiplyTransposed(const float* v, std::ptrdiff_t block_step,
                                     std::ptrdiff_t next_v, std::int64_t channels, const float* m,
                                     std::ptrdiff_t next_m, std::int64_t tiles, std::int64_t depth,
                                     bool first, float* sums) {
  constexpr std::int64_t kCols = kVecs * kLanes;
  const std::int64_t parts = ceil_div(tiles, depth);
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range own = share(tiles, part, parts);
    ForEachRowTile<kHalfBlock>(channels, [&](auto rows, std::int64_t row) HWY_ATTR {
      Tile<decltype(rows)::value, kVecs> sum;
      sum.SetZero();
      float* const to = sums + row * kCols;
      for (int i = 0; i < rows.value * kCols; i += kLanes) __builtin_prefetch(to + i, 1);
      const std::int64_t block = row / kBlock;
      const float* const a = v + block * block_step + own.begin * kBlock;
      const float* const b = m + own.begin * kCols;
      const PrefetchToL2 next = row % kBlock < kHalfBlock
                                    ? PrefetchToL2{a + next_v, kBlock}
                                    : PrefetchToL2{b + next_m + block % kVecs * kLanes, kCols};
      sum.template MultiplyAdd<1>({a + row % kBlock, 1, kBlock}, {b, kCols}, own.end - own.begin,
                                  next);
      sum.Put(to, kCols, !first || part > 0);
    });
  }
}

// The products of a block of tiles, of panels from first_panel on.
struct BlockProduct {
  const Spec& s;
  const float *v, *m;
  std::int64_t first_panel, tiles;
  std::int64_t phase_blocks = s.geometry.phase_blocks();  // divides

  // S of a point and chunk, in the sums of that chunk.
  void Multiply(std::int64_t point, std::int64_t chunk, bool first, float* sums) const {
    const Geometry& g = s.geometry;
    const WinogradBuffers& b = s.buffers;
    const std::int64_t of_phase = chunk / b.phase_chunks;
    const std::int64_t begin = (chunk - of_phase * b.phase_chunks) * s.chunk_blocks;
    const std::int64_t own = of_phase / g.in_grid.phases;
    const std::int64_t phase = of_phase - own * g.in_grid.phases;
    const std::int64_t channels = std::min(s.chunk_blocks * kBlock, g.in.c - begin * kBlock);
    const std::int64_t block_step = b.padded_tiles * kBlock;
    const std::int64_t columns = g.panel_columns(first_panel + own);
    float* const to = sums + point * b.sums_point;
    const auto phases = g.phases_at(point);
    if (phase < phases.first || phase >= phases.second) {
      std::fill_n(to, channels * columns, 0.f);
      return;
    }
    const auto multiply = columns == kLanes ? MultiplyTransposed<1> : MultiplyTransposed<kTileVecs>;
    multiply(v + point * b.v_point + (phase * phase_blocks + begin) * block_step, block_step,
             b.v_point, channels, m + point * b.m_point + own * b.padded_tiles * kTileCols,
             b.m_point, tiles, s.part_depth, first, to);
  }
};

// dw = A^T S A for a panel and some channels of one chunk, where S is the sum of so many copies,
// copy_step apart; `sums` points at the first of the channels.
template <class Output>
void TransformSums(const Spec& s, const float* sums, std::int64_t copies, std::int64_t copy_step,
                   std::int64_t panel, std::int64_t phase, Range channels, float* dw) {
  constexpr int R = Output::outputs;
  const Geometry& g = s.geometry;
  const std::int64_t area = g.kernel * g.kernel, step = g.in.c / g.in_fold() * area;
  const std::int64_t pitch = g.panel_columns(panel), point = s.buffers.sums_point;
  const std::int64_t columns = std::min(pitch, g.out.c - panel * kTileCols);
  const Taps<R> taps(g);
  alignas(64) float taps_of[kBlock][R * R][kTileCols];  // of some channels
  for (std::int64_t first = channels.begin; first < channels.end; first += kBlock) {
    const std::int64_t count = std::min<std::int64_t>(kBlock, channels.end - first);
    for (std::int64_t c = 0; c < count; ++c, sums += pitch)
      for (int lane = 0; lane < pitch; lane += kLanes) {
        const float* at = sums + lane;  // walks through the points, which Nested takes in order
        Nested<Output>(
            [&](int, int) HWY_ATTR {
              Vec sum = hn::LoadU(F32(), at);
              for (std::int64_t copy = 1; copy < copies; ++copy)
                sum = hn::Add(sum, hn::LoadU(F32(), at + copy * copy_step));
              at += point;
              return sum;
            },
            [&](int r, int col, Vec value)
                HWY_ATTR { hn::Store(value, F32(), taps_of[c][r * R + col] + lane); });
      }
    float* const to = dw + panel * kTileCols * step;
    if (g.stride == 1) {  // all taps of all channels, in their order
      PutTransposed(WholeSums{taps_of[0][0]}, g.accumulate, count * area, columns,
                    to + first * area, step);
      continue;
    }
    for (std::int64_t c = 0; c < count; ++c) {
      const int* const tap_at = taps.of[g.tap_phase(first + c, phase)];
      float* at = to + (first + c) / g.in_fold() * area;
      for (std::int64_t k = 0; k < columns; ++k, at += step)
        for (int rs = 0; rs < R * R; ++rs)
          if (const int tap = tap_at[rs]; tap >= 0)
            at[tap] = taps_of[c][rs][k] + (g.accumulate ? at[tap] : 0.f);
    }
  }
}

// The transforms of F(r, tile), one size each.
struct GradientTransforms {
  void (*input)(const Spec&, const float* x, float* v, Range block, Range items);
  void (*gradient)(const Spec&, const float* dy, float* m, std::int64_t first_panel, Range block,
                   Range items);
  void (*sums)(const Spec&, const float* sums, std::int64_t copies, std::int64_t copy_step,
               std::int64_t panel, std::int64_t phase, Range channels, float* dw);
};
template <int M, int R>
GradientTransforms GradientTransformsOf(const Geometry& g) {
  using Code = Transforms<R, M, ScaledSide::output>;
  return {InputTransform<typename Code::Input, M, R>(g), TransformGradient<typename Code::Filter>,
          TransformSums<typename Code::Output>};
}

// What a thread does in backward_filter, alone or in a team: panels of dw, tiles, buffers.
struct GradientPart {
  const Spec& s;
  const WinogradOperands& data;
  const GradientTransforms& transforms;
  Team team;
  Range panels, tiles;
  float *v, *m, *sums;

  GradientPart(const Spec& spec, const WinogradOperands& operands,
               const GradientTransforms& of_size, std::int64_t thread, Team its_team,
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
                            team.Share(panels.size() * kTileVecs * block.size()));
      }
      team.Barrier();
      {
        const PhaseScope scope(data.recorder, kProduct);
        const BlockProduct product{s, v, m, panels.begin, block.size()};
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
  void WriteSums(const float* all, std::int64_t copies, std::int64_t copy_step, Range rows) const {
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
                      copies, copy_step, panel, plane % g.in_grid.phases, {c, end}, data.out);
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
    BlockProduct product{s, v, m, panels.begin, tiles.size()};
    for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      const std::int64_t panel = chunk / panel_chunks, of_panel = chunk - panel * panel_chunks;
      const std::int64_t first_of_m = panel / b.m_panels * b.m_panels;
      const std::int64_t in_m = chunk - first_of_m * panel_chunks;
      if (chunk == chunks.begin || in_m == 0) {
        const PhaseScope scope(data.recorder, kInputTransform);
        const std::int64_t count = std::min(b.m_panels, panels.size() - first_of_m);
        product.first_panel = panels.begin + first_of_m;
        transforms.gradient(s, data.dy, m, product.first_panel, tiles,
                            {0, count * kTileVecs * tiles.size()});
      }
      {
        const PhaseScope scope(data.recorder, kProduct);
        for (std::int64_t point = 0; point < g.points(); ++point)
          product.Multiply(point, in_m, true, sums);
      }
      const PhaseScope scope(data.recorder, kOutputTransform);
      const std::int64_t c = of_panel % b.phase_chunks * chunk_channels;
      transforms.sums(s, sums, 1, 0, panels.begin + panel, of_panel / b.phase_chunks,
                      {c, std::min(c + chunk_channels, g.in.c)}, data.out);
    }
  }
};

// Each thread sums over its own tiles; then all add up the threads' sums.
inline void GradientByPrivateBlocks(const Spec& s, const WinogradOperands& data,
                                    const GradientTransforms& transforms, Team team) {
  // A thread has at least one tile, or none and no sums.
  const std::int64_t tiles = s.geometry.tiles(), users = std::min(team.size, tiles);
  const Range own = team.rank < users ? share(tiles, team.rank, users) : Range{};
  const GradientPart part(s, data, transforms, team.rank, Team{}, {0, s.geometry.out_panels()},
                          own);
  part.SumBlocks();
  team.Barrier();
  const WinogradBuffer& sums = s.buffers.sums;
  part.WriteSums(sums.of(data.workspace, 0), users, sums.thread_step, team.Share(part.Rows()));
}

inline void GradientBySharedBlocks(const Spec& s, const WinogradOperands& data,
                                   const GradientTransforms& transforms, Team team) {
  const GradientPart part(s, data, transforms, team.rank, team, {0, s.geometry.out_panels()},
                          {0, s.geometry.tiles()});
  if (s.final_sums) return part.WriteFinalSums();
  part.SumBlocks();
  part.WriteSums(part.sums, 1, 0, team.Share(part.Rows()));
}

inline void GradientByPrivatePanels(const Spec& s, const WinogradOperands& data,
                                    const GradientTransforms& transforms, Team team) {
  const Range panels = team.Share(s.geometry.out_panels());
  if (panels.size() == 0) return;
  const GradientPart part(s, data, transforms, team.rank, Team{}, panels, {0, s.geometry.tiles()});
  if (s.final_sums) return part.WriteFinalSums();
  part.SumBlocks();
  part.WriteSums(part.sums, 1, 0, {0, part.Rows()});
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
