// Winograd's loops: see winograd.h and winograd_transforms-inl.h.
#include <hwy/cache_control.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels_cpu/winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/winograd_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm_kernel-inl.h"
#include "kernels_cpu/put_transposed-inl.h"
#include "kernels_cpu/winograd_filter-inl.h"
#include "kernels_cpu/winograd_fold-inl.h"
#include "kernels_cpu/winograd_tiles-inl.h"
#include "kernels_cpu/winograd_transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// A thread's place among those that share its buffers.
struct Team {
  std::int64_t rank = 0, size = 1;
  Range Share(std::int64_t count) const { return share(count, rank, size); }
  void Barrier() const {
    if (size > 1) {
#pragma omp barrier
    }
  }
};

// Of the phases in x that F(m, r) is for.
constexpr int PhaseStride(int r) { return r == 2 ? 2 : 1; }

// V = B^T d B for (channel block, tile) pairs; window(block, place, patch) is d.
template <class Input, class GetWindow>
HWY_INLINE void TransformWindows(const Shape& s, float* v, Range block, Range items,
                                 const GetWindow& window) {
  constexpr int T = Input::inputs;
  alignas(64) float patch[T * T * kBlock];
  const std::int64_t rows = s.rows(), point = s.v_point();
  ForEachTile(s, block, items, [&](std::int64_t b, std::int64_t tile, const TileAt& at) HWY_ATTR {
    const auto d = window(b, at, patch);
    for (int part = 0; part < kBlock; part += kLanes) {
      float* const to = v + (b * rows + tile) * kBlock + part;
      Nested<Input>([&](int r, int c) HWY_ATTR { return hn::LoadU(F32(), d.at(r, c) + part); },
                    [&](int i, int j, Vec value)
                        HWY_ATTR { hn::StoreU(value, F32(), to + (i * T + j) * point); });
    }
  });
}

template <class Input, int M, int kStride>
void TransformInput(const Shape& s, const float* in, float* v, Range block, Range items) {
  constexpr int T = Input::inputs;
  TransformWindows<Input>(
      s, v, block, items, [&](std::int64_t b, const TileAt& at, float* patch) HWY_ATTR {
        const std::int64_t phase = kStride == 1 ? 0 : b / s.phase_blocks();
        const Pixels<T, kStride> pixels(s, s.in, s.in_grid, phase, at.y * M - s.pad_h,
                                        at.x * M - s.pad_w);
        const float* const plane = in + pixels.Plane(s, s.in, at, b - phase * s.phase_blocks());
        if (s.ask_tiles) pixels.template AskForNext<M>(plane);
        return Window<T, kStride>(pixels, plane, s.in.w, patch);
      });
}

template <class Input, int M>
void TransformFolded(const Shape& s, const float* x, float* v, Range block, Range items) {
  constexpr int T = Input::inputs;
  const auto fold = s.stride == 4   ? FoldTile<T, 4>
                    : s.stride == 2 ? FoldTile<T, 2>
                                    : FoldTile<T, 1>;
  TransformWindows<Input>(s, v, block, items,
                          [&](std::int64_t b, const TileAt& at, float* patch) HWY_ATTR {
                            fold(*s.fold, x, at.mosaic, b, at.y * M, at.x * M, patch);
                            return FoldedWindow<T>{patch};
                          });
}

template <class Input, int M, int R>
auto InputTransform(const Shape& s) {
  if (s.folds()) return TransformFolded<Input, M>;
  return s.in_grid.phases == 1 ? TransformInput<Input, M, 1>
                               : TransformInput<Input, M, PhaseStride(R)>;
}

// M = V U for one point and panel: tiles x channels by channels x columns, kVecs vectors of them: a
// panel has room for two, a last one may need one. Channels go in parts for which U stays in L1
// while all tiles pass; meanwhile the panel that comes next is fetched into L2, evenly spread, for
// its first touch would wait at each page. Each channel block asks for V of the next, or of the
// next point: all rows of a tile at once would wait for L2.
template <int kVecs>
HWY_NOINLINE void Multiply(const float* v, const float* next_v, std::ptrdiff_t block_step,
                           std::int64_t channels, const float* u, const float* next_u,
                           std::int64_t tiles, std::int64_t depth, bool add, float* m) {
  constexpr int kMostRows = kTileRows * kTileVecs / kVecs;          // what the registers hold
  constexpr std::int64_t lines = std::max(1, kVecs * kLanes / 16);  // of U a step, of 16 floats
  const std::int64_t blocks = ceil_div(channels, kBlock), whole = channels / kBlock;
  const std::int64_t parts = ceil_div(blocks * kBlock, depth);
  const std::int64_t fetches = ceil_div(kBlock * lines, ceil_div(tiles, kMostRows));
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range own = share(blocks, part, parts);
    ForEachEvenRowTile<kMostRows>(tiles, [&](auto rows, std::int64_t first) HWY_ATTR {
      Tile<decltype(rows)::value, kVecs> sum;
      float* const to = m + first * kTileCols;
      sum.SetZero();
      for (std::int64_t b = own.begin; b < own.end; ++b) {
        for (std::int64_t f = 0; f < fetches; ++f, next_u += kTileCols / lines)
          __builtin_prefetch(next_u, 0, 2);
        const float* const a = v + b * block_step + first * kBlock;
        const PanelB panel{u + b * kBlock * kTileCols};
        if (b < whole)
          sum.template MultiplyAddGroupAhead<kBlock>(
              a, panel, b + 1 < blocks ? a + block_step : next_v + first * kBlock);
        else
          sum.MultiplyAdd(&a, kBlock, panel, 1, channels - whole * kBlock);
      }
      sum.Put(to, kTileCols, add || part > 0);
    });
  }
}

// y = A^T m A for (vector of these panels of each phase, tile) pairs, then the epilogue.
template <class Output, int kStride>
void TransformOutput(const Shape& s, const WinogradOperands& data, const float* m, Range panels,
                     Range block, Range items) {
  constexpr int M = Output::outputs;
  constexpr int T = Output::inputs;
  const std::int64_t rows = s.rows(), point = s.m_point();
  ForEachTile(s, block, items, [&](std::int64_t vec, std::int64_t tile, const TileAt& at) HWY_ATTR {
    const std::int64_t own = vec / kTileVecs, lane = vec % kTileVecs * kLanes;
    const std::int64_t phase = kStride == 1 ? 0 : own / panels.size();
    const std::int64_t panel = panels.begin + own - phase * panels.size();
    const std::int64_t channel = panel * kTileCols + lane;
    if (channel >= s.out.padded_c()) return;
    const float* const from = m + (own * rows + tile) * kTileCols + lane;
    const Pixels<M, kStride> pixels(s, s.out, s.out_grid, phase, at.y * M, at.x * M);
    const std::ptrdiff_t plane = pixels.Plane(s, s.out, at, channel / kBlock) + channel % kBlock;
    // A store that waits for its line holds up those behind it; asked for now, lines come while the
    // tile is transformed.
    if (!data.stream)
      for (int y = 0; y < M; ++y)
        for (int x = 0; x < M; ++x)
          if (const std::ptrdiff_t pixel = pixels.at(y, x); pixel >= 0)
            __builtin_prefetch(data.out + plane + pixel, 1);
    Vec bias = hn::Zero(F32());
    if (data.bias != nullptr) {
      const std::int64_t left = std::clamp<std::int64_t>(s.out.c - channel, 0, kLanes);
      alignas(64) float padded[kLanes] = {};
      std::copy_n(data.bias + std::min(channel, s.out.c), left, padded);
      bias = hn::Load(F32(), padded);
    }
    Nested<Output>([&](int r, int c)
                       HWY_ATTR { return hn::LoadU(F32(), from + (c * T + r) * point); },
                   [&](int x, int y, Vec value) HWY_ATTR {
                     const std::ptrdiff_t pixel = pixels.at(y, x);
                     if (pixel < 0) return;
                     const std::ptrdiff_t to = plane + pixel;
                     value = hn::Add(value, bias);
                     if (data.residual != nullptr)
                       value = hn::Add(value, hn::LoadU(F32(), data.residual + to));
                     if (s.epilogue.relu) value = hn::Max(value, hn::Zero(F32()));
                     if (s.accumulate) value = hn::Add(value, hn::LoadU(F32(), data.out + to));
                     if (data.stream)
                       hn::Stream(value, F32(), data.out + to);
                     else
                       hn::StoreU(value, F32(), data.out + to);
                   });
  });
}

// The same into plain dx, from the channels that it folds to.
template <class Output>
void TransformUnfolded(const Shape& s, const WinogradOperands& data, const float* m, Range panels,
                       Range block, Range items) {
  constexpr int M = Output::outputs;
  constexpr int T = Output::inputs;
  const auto unfold = s.stride == 4 ? UnfoldTile<M, 4> : UnfoldTile<M, 2>;
  const std::int64_t rows = s.rows(), point = s.m_point();
  ForEachTile(s, block, items, [&](std::int64_t vec, std::int64_t tile, const TileAt& at) HWY_ATTR {
    const std::int64_t own = vec / kTileVecs, lane = vec % kTileVecs * kLanes;
    const std::int64_t channel = (panels.begin + own) * kTileCols + lane;
    if (channel >= s.out.c) return;
    const float* const from = m + (own * rows + tile) * kTileCols + lane;
    alignas(64) float patch[M * M * kLanes];
    Nested<Output>([&](int r, int c)
                       HWY_ATTR { return hn::LoadU(F32(), from + (c * T + r) * point); },
                   [&](int x, int y, Vec value)
                       HWY_ATTR { hn::Store(value, F32(), patch + (y * M + x) * kLanes); });
    unfold(*s.fold, patch, at.mosaic, channel, at.y * M, at.x * M, s.accumulate, data.out);
  });
}

template <class Output, int R>
auto OutputTransform(const Shape& s) {
  if (s.unfolds()) return TransformUnfolded<Output>;
  return s.out_grid.phases == 1 ? TransformOutput<Output, 1>
                                : TransformOutput<Output, PhaseStride(R)>;
}

// One point of one panel u, for the phases that meet there; nothing is multiplied in a panel of
// another phase.
void MultiplyPanel(const Shape& s, const float* u, const float* next_u, const float* v,
                   std::int64_t point, std::int64_t out_phase, std::int64_t columns,
                   std::int64_t tiles, float* m) {
  const auto [first, last] = s.phases_at(point);
  if (s.out_grid.phases > 1 && (out_phase < first || out_phase >= last)) {
    std::fill_n(m, tiles * kTileCols, 0.f);
    return;
  }
  const bool phased = s.in_grid.phases > 1;
  const std::int64_t begin = phased ? first * s.phase_blocks() : 0;
  const std::int64_t channels = phased ? (last - first) * s.in.padded_c() : s.in.c;
  const std::int64_t skipped = begin * kBlock * kTileCols;
  const auto multiply = columns == kLanes ? Multiply<1> : Multiply<kTileVecs>;
  const float* const of_point = v + point * s.v_point() + begin * s.rows() * kBlock;
  multiply(of_point, of_point + s.v_point(), s.rows() * kBlock, channels, u + skipped,
           next_u + skipped, tiles, s.depth, false, m);
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
  const auto filter_at = [&](std::int64_t item) {
    const std::int64_t point = item / own_panels, own = item % own_panels;
    const std::int64_t panel =
        own / panels.size() * s.phase_panels() + panels.begin + own % panels.size();
    return data.packed + (point * s.out_panels() + panel) * s.packed_panel();
  };
  const Range mine = s.shared || s.panels ? Range{0, s.tiles()} : share(s.tiles(), thread, threads);
  float* const set = data.workspace + (s.shared ? 0 : thread * s.set_floats());
  float* const v = s.overlaid() ? set + s.m_floats() : set;
  float* const m = s.overlaid() ? set : v + s.v_floats();
  for (std::int64_t first = mine.begin; first < mine.end; first += s.block) {
    const Range block{first, std::min(first + s.block, mine.end)};
    const std::int64_t tiles = block.end - block.begin;
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
      const float* next = filter_at(items.begin);
      for (std::int64_t i = items.begin; i < items.end; ++i) {
        const std::int64_t point = i / own_panels, own = i % own_panels;
        const float* const u = std::exchange(next, filter_at(i + 1));
        MultiplyPanel(s, u, next, v, point, own / panels.size(),
                      s.panel_columns(panels.begin + own % panels.size()), tiles,
                      m + point * s.m_point() + own * s.rows() * kTileCols);
      }
    }
    team.Barrier();
    const PhaseScope scope(data.phases, 2);
    OutputTransform<typename Code::Output, R>(s)(s, data, m, panels, block,
                                                 team.Share(own_panels * kTileVecs * tiles));
  }
  if (data.stream) hwy::FlushStream();
}

// G dy G^T for (panel's vector, tile) pairs of panels from first_panel on.
template <class Filter>
void TransformGradient(const Shape& s, const float* dy, float* m, std::int64_t first_panel,
                       Range block, Range items) {
  constexpr int M = Filter::inputs;
  constexpr int T = Filter::outputs;
  alignas(64) float patch[M * M * kBlock];
  const std::int64_t rows = s.rows(), point = s.m_point();
  ForEachTile(s, block, items, [&](std::int64_t vec, std::int64_t tile, const TileAt& at) HWY_ATTR {
    const std::int64_t own = vec / kTileVecs, lane = vec % kTileVecs * kLanes;
    const std::int64_t panel = first_panel + own, channel = panel * kTileCols + lane;
    if (lane >= s.panel_columns(panel)) return;
    float* const to = m + (own * rows + tile) * kTileCols + lane;
    const Pixels<M> pixels(s, s.out, s.out_grid, 0, at.y * M, at.x * M);
    const float* const plane = dy + pixels.Plane(s, s.out, at, channel / kBlock);
    if (s.ask_tiles) pixels.template AskForNext<M>(plane);
    const Window<M> g(pixels, plane, s.out.w, patch);
    Nested<Filter>([&](int r, int c)
                       HWY_ATTR { return hn::LoadU(F32(), g.at(r, c) + channel % kBlock); },
                   [&](int i, int j, Vec value)
                       HWY_ATTR { hn::StoreU(value, F32(), to + (i * T + j) * point); });
  });
}

// S += V^T M for one point and chunk: channels x tiles by tiles x columns. Tiles go in parts for
// which M stays in L1 while all channels pass. S, of all points, has left L2 since it was last
// here: its lines are asked for before the product that is added to them. V and M of the next
// point lie next_v and next_m floats on: in each channel block one row tile asks for V, the other
// for a vector of M.
template <int kVecs>
HWY_NOINLINE void MultiplyTransposed(const float* v, std::ptrdiff_t block_step,
                                     std::ptrdiff_t next_v, std::int64_t channels, const float* m,
                                     std::ptrdiff_t next_m, std::int64_t tiles, std::int64_t depth,
                                     bool first, float* sums) {
  const std::int64_t parts = ceil_div(tiles, depth);
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range own = share(tiles, part, parts);
    ForEachRowTile<kFilterRows>(channels, [&](auto rows, std::int64_t row) HWY_ATTR {
      Tile<decltype(rows)::value, kVecs> sum;
      sum.SetZero();
      float* const to = sums + row * kTileCols;
      for (int i = 0; i < rows.value * kTileCols; i += kLanes) __builtin_prefetch(to + i, 1);
      const std::int64_t block = row / kBlock;
      const float* const a = v + block * block_step + own.begin * kBlock;
      const float* const b = m + own.begin * kTileCols;
      const AheadToL2 next = row % kBlock < kFilterRows
                                 ? AheadToL2{a + next_v, kBlock}
                                 : AheadToL2{b + next_m + block % kTileVecs * kLanes, kTileCols};
      sum.template MultiplyAdd<1>({a + row % kBlock, 1, kBlock}, {b}, own.end - own.begin, next);
      sum.Put(to, kTileCols, !first || part > 0);
    });
  }
}

// Of a chunk of panels from first_panel on.
void MultiplyChunk(const Shape& s, const float* v, const float* m, std::int64_t point,
                   std::int64_t first_panel, std::int64_t chunk, std::int64_t tiles, bool first,
                   float* sums) {
  const std::int64_t own = chunk / s.panel_chunks(), of_panel = chunk % s.panel_chunks();
  const std::int64_t phase = of_panel / s.phase_chunks();
  const std::int64_t begin = of_panel % s.phase_chunks() * s.chunk;
  const std::int64_t channels = std::min(s.chunk * kBlock, s.in.c - begin * kBlock);
  const std::int64_t block_step = s.rows() * kBlock;
  float* const to = sums + point * s.s_point();
  const auto phases = s.phases_at(point);
  if (phase < phases.first || phase >= phases.second) {
    std::fill_n(to, channels * kTileCols, 0.f);
    return;
  }
  const auto multiply = s.panel_columns(first_panel + own) == kLanes
                            ? MultiplyTransposed<1>
                            : MultiplyTransposed<kTileVecs>;
  multiply(v + point * s.v_point() + (phase * s.phase_blocks() + begin) * block_step, block_step,
           s.v_point(), channels, m + point * s.m_point() + own * s.rows() * kTileCols, s.m_point(),
           tiles, s.depth, first, to);
}

// dw = A^T S A for a panel and some channels of one chunk, where S is the sum of `sets` copies
// `set_step` apart; `sums` points at the first of the channels.
template <class Output>
void TransformSums(const Shape& s, const float* sums, std::int64_t sets, std::int64_t set_step,
                   std::int64_t panel, std::int64_t phase, Range channels, float* dw) {
  constexpr int R = Output::outputs;
  constexpr int T = Output::inputs;
  const std::int64_t area = s.kernel * s.kernel, step = s.in.c / s.in_fold() * area;
  const std::int64_t columns = std::min<std::int64_t>(kTileCols, s.out.c - panel * kTileCols);
  const Taps<R> taps(s);
  alignas(64) float taps_of[kBlock][R * R][kTileCols];  // of some channels
  for (std::int64_t first = channels.begin; first < channels.end; first += kBlock) {
    const std::int64_t count = std::min<std::int64_t>(kBlock, channels.end - first);
    for (std::int64_t c = 0; c < count; ++c, sums += kTileCols)
      for (int lane = 0; lane < s.panel_columns(panel); lane += kLanes)
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
  float* const v = data.workspace + (s.shared ? 0 : thread * s.set_floats());
  float* const m = v + s.v_floats();
  float* const sums = m + s.m_floats();
  const std::int64_t chunk_channels = s.chunk * kBlock;
  for (std::int64_t first = mine.begin; first < mine.end; first += s.block) {
    const Range block{first, std::min(first + s.block, mine.end)};
    const std::int64_t tiles = block.end - block.begin;
    {
      const PhaseScope scope(data.phases, 0);
      InputTransform<typename Code::Input, M, R>(s)(s, data.in, v, block,
                                                    team.Share(s.in_blocks() * tiles));
      TransformGradient<typename Code::Filter>(s, data.dy, m, panels.begin, block,
                                               team.Share(panels.size() * kTileVecs * tiles));
    }
    team.Barrier();
    if (s.sums_at_once()) {
      float* const own_sums = sums + (s.shared ? thread : 0) * s.chunk_floats();
      const Range chunks = team.Share(own_chunks);
      for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
        {
          const PhaseScope scope(data.phases, 1);
          for (std::int64_t point = 0; point < s.points(); ++point)
            MultiplyChunk(s, v, m, point, panels.begin, chunk, tiles, true, own_sums);
        }
        const PhaseScope scope(data.phases, 2);
        const std::int64_t of_panel = chunk % s.panel_chunks();
        const std::int64_t c = of_panel % s.phase_chunks() * chunk_channels;
        TransformSums<typename Code::Output>(
            s, own_sums, 1, 0, panels.begin + chunk / s.panel_chunks(), of_panel / s.phase_chunks(),
            {c, std::min(c + chunk_channels, s.in.c)}, data.out);
      }
      return;
    }
    {
      const PhaseScope scope(data.phases, 1);
      const Range items = team.Share(s.points() * own_chunks);
      for (std::int64_t i = items.begin; i < items.end; ++i) {
        const std::int64_t point = i / own_chunks, chunk = i % own_chunks;
        MultiplyChunk(s, v, m, point, panels.begin, chunk, tiles, first == mine.begin,
                      sums + chunk * s.chunk_floats());
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
    const std::int64_t end = std::min({(chunk + 1) * chunk_channels, s.in.c, c + items.end - i});
    TransformSums<typename Code::Output>(
        s,
        all + (plane * s.phase_chunks() + chunk) * s.chunk_floats() +
            (c - chunk * chunk_channels) * kTileCols,
        users, s.set_floats(), panels.begin + plane / s.in_grid.phases, plane % s.in_grid.phases,
        {c, end}, data.out);
    i += end - c;
  }
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
    GatherTaps<R>(s, filter, taps, block * kBlock, panel * kTileCols, g);
    for (std::int64_t phase = 0; phase < s.phases(); ++phase) {
      float* const to = packed + s.packed_at(phase, panel, block);
      TransformTaps<M, R>(
          s, taps, phase, g, kTileCols, [&](int) { return u[0]; },
          [&](int c) HWY_ATTR {
            for (int point = 0; point < points; ++point)
              for (int lane = 0; lane < kTileCols; lane += kLanes)
                hn::Stream(hn::Load(F32(), u[point] + lane), F32(),
                           to + c * kTileCols + point * s.packed_point() + lane);
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
  const Team team{thread, threads};
  const Range block{0, s.tiles()};
  float* const v = data.workspace;
  float* const u = v + s.v_floats() + thread * (s.u_floats() + s.g_floats() + s.m_floats());
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
  // The phases, of input or output, meet a panel and `blocks` channel blocks from `first` on.
  const auto run_chunk = [&](std::int64_t panel, std::int64_t first, std::int64_t blocks,
                             std::int64_t phase) HWY_ATTR {
    {
      const PhaseScope scope(data.phases, 3);
      for (std::int64_t b = 0; b < blocks; ++b)
        TransformTaps<M, R>(
            s, taps, phase, g + b * s.g_block(), s.u_point(),
            [&](int c) { return u + (b * kBlock + c) * kTileCols; }, [](int) {});
    }
    const PhaseScope scope(data.phases, 1);
    const auto multiply = s.panel_columns(panel) == kLanes ? Multiply<1> : Multiply<kTileVecs>;
    const std::int64_t channels = std::min(blocks * kBlock, s.in.c - first * kBlock);
    const std::int64_t v_at = ((in_phased ? phase * s.phase_blocks() : 0) + first) * s.rows();
    const std::int64_t m_at = (in_phased ? 0 : phase) * s.rows();
    for (std::int64_t point = 0; point < s.points(); ++point) {
      const auto phases = s.phases_at(point);
      float* const to = m + point * s.m_point() + m_at * kTileCols;
      if (phase < phases.first || phase >= phases.second) {
        if (!in_phased) std::fill_n(to, s.tiles() * kTileCols, 0.f);
        continue;
      }
      const float* const v_of = v + point * s.v_point() + v_at * kBlock;
      const float* const u_of = u + point * s.u_point();
      multiply(v_of, v_of + s.v_point(), s.rows() * kBlock, channels, u_of, u_of + s.u_point(),
               s.tiles(), s.depth, first > 0 || (in_phased && phase > phases.first), to);
    }
  };
  const Range own = team.Share(s.phase_panels());
  for (std::int64_t panel = own.begin; panel < own.end; ++panel) {
    for (std::int64_t first = 0; first < s.phase_blocks(); first += s.chunk) {
      const std::int64_t blocks = std::min(s.chunk, s.phase_blocks() - first);
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
WinogradCosts Costs(const Shape& s) {
  WinogradCosts costs;
  WithSizes(s, [&](auto m, auto r) {
    if (s.pass == Pass::backward_filter) {
      using Code = Transforms<r(), m(), ScaledSide::output>;
      costs = {Flops<typename Code::Input>(), Flops<typename Code::Filter>(),
               Flops<typename Code::Output>()};
    } else {
      using Code = Transforms<m(), r(), ScaledSide::filter>;
      costs = {Flops<typename Code::Input>(), Flops<typename Code::Filter>(),
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

void winograd_run(const WinogradShape& s, const WinogradOperands& data) {
#pragma omp parallel num_threads(int(s.threads))
  HWY_DYNAMIC_DISPATCH(Run)(s, data, omp_get_thread_num(), omp_get_num_threads());
}

WinogradCosts winograd_costs(const WinogradShape& s) { return HWY_DYNAMIC_DISPATCH(Costs)(s); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
