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
void TransformGradient(const Shape& s, const float* dy, float* m, std::int64_t first_panel,
                       Range block, Range items) {
  constexpr int M = Filter::inputs;
  constexpr int T = Filter::outputs;
  const std::int64_t rows = s.rows(), point = s.m_point();
  ForEachRun(s, block, items,
             [&](std::int64_t vec, std::int64_t tile, const TileAt& place, int count) HWY_ATTR {
               const std::int64_t own = vec / kTileVecs, lane = vec % kTileVecs * kLanes;
               const std::int64_t panel = first_panel + own, channel = panel * kTileCols + lane;
               const std::int64_t columns = s.panel_columns(panel);
               if (lane >= columns) return;
               float* const to = m + own * rows * kTileCols + tile * columns + lane;
               const Pixels<M, kRunTiles * M> pixels(s, s.out, s.out_grid, 0, place.y * M,
                                                     place.x * M, count * M);
               const float* const plane =
                   dy + pixels.Plane(s, s.out, place, channel / kBlock) + channel % kBlock;
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
// which M stays in L1 while all channels pass. S, of all points, has left L2 since it was last
// here: its lines are prefetched before the product that is added to them. V and M of the next
// point lie next_v and next_m floats on: in each channel block one row tile prefetches V, the other
// for a vector of M.
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
  const Shape& s;
  const float *v, *m;
  std::int64_t first_panel, tiles;
  // Divided once, as in MultiplyItems.
  std::int64_t v_point = s.v_point(), m_point = s.m_point(), s_point = s.s_point();
  std::int64_t phase_chunks = s.phase_chunks(), phase_blocks = s.phase_blocks();

  // S of a point and chunk, in the sums of that chunk.
  void Multiply(std::int64_t point, std::int64_t chunk, bool first, float* sums) const {
    const std::int64_t of_phase = chunk / phase_chunks;
    const std::int64_t begin = (chunk - of_phase * phase_chunks) * s.chunk;
    const std::int64_t own = of_phase / s.in_grid.phases;
    const std::int64_t phase = of_phase - own * s.in_grid.phases;
    const std::int64_t channels = std::min(s.chunk * kBlock, s.in.c - begin * kBlock);
    const std::int64_t block_step = s.rows() * kBlock;
    const std::int64_t columns = s.panel_columns(first_panel + own);
    float* const to = sums + point * s_point;
    const auto phases = s.phases_at(point);
    if (phase < phases.first || phase >= phases.second) {
      std::fill_n(to, channels * columns, 0.f);
      return;
    }
    const auto multiply = columns == kLanes ? MultiplyTransposed<1> : MultiplyTransposed<kTileVecs>;
    multiply(v + point * v_point + (phase * phase_blocks + begin) * block_step, block_step, v_point,
             channels, m + point * m_point + own * s.rows() * kTileCols, m_point, tiles, s.depth,
             first, to);
  }
};

// dw = A^T S A for a panel and some channels of one chunk, where S is the sum of `sets` copies
// `set_step` apart; `sums` points at the first of the channels.
template <class Output>
void TransformSums(const Shape& s, const float* sums, std::int64_t sets, std::int64_t set_step,
                   std::int64_t panel, std::int64_t phase, Range channels, float* dw) {
  constexpr int R = Output::outputs;
  constexpr int T = Output::inputs;
  const std::int64_t area = s.kernel * s.kernel, step = s.in.c / s.in_fold() * area;
  const std::int64_t pitch = s.panel_columns(panel);
  const std::int64_t columns = std::min(pitch, s.out.c - panel * kTileCols);
  const Taps<R> taps(s);
  alignas(64) float taps_of[kBlock][R * R][kTileCols];  // of some channels
  for (std::int64_t first = channels.begin; first < channels.end; first += kBlock) {
    const std::int64_t count = std::min<std::int64_t>(kBlock, channels.end - first);
    for (std::int64_t c = 0; c < count; ++c, sums += pitch)
      for (int lane = 0; lane < pitch; lane += kLanes)
        Nested<Output>(
            [&](int r, int col) HWY_ATTR {
              const float* const at = sums + (r * T + col) * s.s_point() + lane;
              Vec sum = hn::LoadU(F32(), at);
              for (std::int64_t set = 1; set < sets; ++set)
                sum = hn::Add(sum, hn::LoadU(F32(), at + set * set_step));
              return sum;
            },
            [&](int r, int col, Vec value)
                HWY_ATTR { hn::Store(value, F32(), taps_of[c][r * R + col] + lane); });
    float* const to = dw + panel * kTileCols * step;
    if (s.stride == 1) {  // all taps of all channels, in their order
      PutTransposed(WholeSums{taps_of[0][0]}, s.accumulate, count * area, columns,
                    to + first * area, step);
      continue;
    }
    for (std::int64_t c = 0; c < count; ++c) {
      const int* const tap_at = taps.of[s.tap_phase(first + c, phase)];
      float* at = to + (first + c) / s.in_fold() * area;
      for (std::int64_t k = 0; k < columns; ++k, at += step)
        for (int rs = 0; rs < R * R; ++rs)
          if (const int tap = tap_at[rs]; tap >= 0)
            at[tap] = taps_of[c][rs][k] + (s.accumulate ? at[tap] : 0.f);
    }
  }
}

template <int M, int R>
void BackwardFilterThread(const Shape& s, const WinogradOperands& data, std::int64_t thread,
                          std::int64_t threads) {
  using Code = Transforms<R, M, ScaledSide::output>;
  const Team everybody{thread, threads};
  const Team team = s.shared ? everybody : Team{};
  const Range panels = s.panels ? share(s.out_panels(), thread, threads) : Range{0, s.out_panels()};
  if (panels.size() == 0) return;
  const std::int64_t own_chunks = panels.size() * s.panel_chunks();
  // Whose sums are added at the end. Every thread has at least one tile, or none at all: its sums
  // do not exist then.
  const bool all_tiles = s.shared || s.panels;
  const std::int64_t users = all_tiles ? 1 : std::min(threads, s.tiles());
  const Range mine = all_tiles        ? Range{0, s.tiles()}
                     : thread < users ? share(s.tiles(), thread, users)
                                      : Range{};
  const bool at_once = s.sums_at_once();
  const std::int64_t owners = s.owners(), own = owners > 1 ? thread : 0;
  float* const v = data.workspace + (s.shared ? 0 : thread * s.set_floats());
  float* const m = v + s.v_floats() + own * s.m_floats();
  float* const sums = v + s.v_floats() + owners * s.m_floats() + own * s.chunk_floats();
  const std::int64_t chunk_channels = s.chunk * kBlock, chunk_floats = s.chunk_floats();
  const auto transform_gradient = [&](std::int64_t first_panel, Range block, Range items) {
    TransformGradient<typename Code::Filter>(s, data.dy, m, first_panel, block, items);
  };
  for (std::int64_t first = mine.begin; first < mine.end; first += s.block) {
    const Range block{first, std::min(first + s.block, mine.end)};
    const std::int64_t tiles = block.size();
    {
      const PhaseScope scope(data.phases, 0);
      InputTransform<typename Code::Input, M, R>(s)(s, data.in, v, block,
                                                    team.Share(s.in_blocks() * tiles));
      if (!at_once)
        transform_gradient(panels.begin, block, team.Share(panels.size() * kTileVecs * tiles));
    }
    team.Barrier();
    if (at_once) {
      const Range chunks = team.Share(own_chunks);  // [panel][of_panel]
      const std::int64_t m_panels = s.m_panels(), panel_chunks = s.panel_chunks();
      BlockProduct product{s, v, m, panels.begin, tiles};
      for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
        const std::int64_t panel = chunk / panel_chunks, of_panel = chunk - panel * panel_chunks;
        const std::int64_t first_of_m = panel / m_panels * m_panels;
        const std::int64_t in_m = chunk - first_of_m * panel_chunks;
        if (chunk == chunks.begin || in_m == 0) {
          const PhaseScope scope(data.phases, 0);
          const std::int64_t count = std::min(m_panels, panels.size() - first_of_m);
          product.first_panel = panels.begin + first_of_m;
          transform_gradient(product.first_panel, block, {0, count * kTileVecs * tiles});
        }
        {
          const PhaseScope scope(data.phases, 1);
          for (std::int64_t point = 0; point < s.points(); ++point)
            product.Multiply(point, in_m, true, sums);
        }
        const PhaseScope scope(data.phases, 2);
        const std::int64_t c = of_panel % s.phase_chunks() * chunk_channels;
        TransformSums<typename Code::Output>(s, sums, 1, 0, panels.begin + panel,
                                             of_panel / s.phase_chunks(),
                                             {c, std::min(c + chunk_channels, s.in.c)}, data.out);
      }
      return;
    }
    const BlockProduct product{s, v, m, panels.begin, tiles};
    {
      const PhaseScope scope(data.phases, 1);
      const Range items = team.Share(s.points() * own_chunks);
      for (std::int64_t i = items.begin; i < items.end; ++i) {
        const std::int64_t point = i / own_chunks, chunk = i % own_chunks;
        product.Multiply(point, chunk, first == mine.begin, sums + chunk * chunk_floats);
      }
    }
    team.Barrier();
  }
  if (!s.panels) everybody.Barrier();
  const PhaseScope scope(data.phases, 2);
  const float* const all = s.panels ? sums : data.workspace + s.v_floats() + s.m_floats();
  const std::int64_t rows = panels.size() * s.in_grid.phases * s.in.c;
  const Range items = s.panels ? Range{0, rows} : everybody.Share(rows);
  for (std::int64_t i = items.begin; i < items.end;) {
    const std::int64_t plane = i / s.in.c, c = i % s.in.c, chunk = c / chunk_channels;
    const std::int64_t panel = panels.begin + plane / s.in_grid.phases;
    const std::int64_t end = std::min({(chunk + 1) * chunk_channels, s.in.c, c + items.end - i});
    TransformSums<typename Code::Output>(
        s,
        all + (plane * s.phase_chunks() + chunk) * s.chunk_floats() +
            (c - chunk * chunk_channels) * s.panel_columns(panel),
        users, s.set_floats(), panel, plane % s.in_grid.phases, {c, end}, data.out);
    i += end - c;
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
