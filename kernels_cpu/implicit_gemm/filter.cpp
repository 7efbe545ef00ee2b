// backward_filter of implicit_gemm: see implicit_gemm.h.
//
// A tile is kTileChannels rows (input channels at one tap) by kTileColsOf<T> columns (output
// channels); its depth runs over pixels. A unit takes its pixels a chunk at a time: a panel's chunk
// of dy stays in L1 or L2 while every row of the rectangle is multiplied by it, x comes from L2,
// and the partial sums pass through the registers once a chunk.
#include <algorithm>
#include <cstddef>

#include "kernels_cpu/implicit_gemm/implicit_gemm.h"
#include "kernels_cpu/implicit_gemm/plain_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/implicit_gemm/filter.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Rows of a full tile of two vectors; a tile of one vector has twice as many. With AVX-512 a tile
// stays within a channel block.
constexpr int kTileChannels = kLanes == 16 ? 8 : 6;
template <class T, int kVecs>
constexpr int kRowsOf = kTileChannels* kTileVecsOf<T> / kVecs;

// Steps through the operands, in elements; `rows` are those of an output image.
template <class T>
struct FilterSteps {
  std::int64_t rows, x_image, x_row, x_pixel, dy_image, dy_row, dy_vec;

  explicit FilterSteps(const ConvProblem& p)
      : rows(p.p),
        x_image(p.x_desc().image_step()),
        x_row(p.stride_h * p.w * kBlock),
        x_pixel(p.q == 1 ? x_row : p.stride_w * kBlock),  // in a column a run goes down the rows
        dy_image(p.y_desc().image_step()),
        dy_row(p.q * kBlock),
        // The vectors of a panel may be of one channel block.
        dy_vec(kLanesOf<T> == kBlock ? p.y_desc().channel_step() : kLanesOf<T>) {}
};

// One tap of some channels against one panel, over `lines` output rows from row `first` of image n
// on.
template <class T>
struct TapJob {
  const T *x = nullptr, *dy = nullptr;     // image 0, of dy the panel
  const std::ptrdiff_t* row_at = nullptr;  // where the channels lie in x
  const FilterTap* tap = nullptr;
  std::int64_t n = 0, first = 0, lines = 0;
  T* sums = nullptr;
  std::int64_t pitch = 0;
  bool add = false;                 // to those of the pixels before these
  PrefetchToL1Of<T> prefetch = {};  // a part of the dy or x that comes next, a step a pixel
};

// A tile may have as few as 49 steps, so that anything computed in each call would show.
template <class T, int kRows, int kVecs>
HWY_NOINLINE void RunTap(const FilterSteps<T>& step, const TapJob<T>& job) {
  const FilterTap& tap = *job.tap;
  TileOf<Elements<T>, kRows, kVecs> tile;
  tile.SetZero();
  std::int64_t n = job.n, first = job.first;
  PrefetchToL1Of<T> prefetch = job.prefetch;
  for (std::int64_t left = job.lines; left > 0; ++n, first = 0) {
    const std::int64_t last = std::min(step.rows, first + left);
    left -= last - first;
    const std::int64_t begin = std::max(first, tap.begin), rows = std::min(last, tap.end) - begin;
    if (rows <= 0) continue;
    const T* a = job.x + (n * step.x_image + begin * step.x_row + tap.x_at);
    const T* b = job.dy + (n * step.dy_image + begin * step.dy_row + tap.dy_at);
    const std::int64_t runs = tap.joined ? 1 : rows, run = tap.width * (tap.joined ? rows : 1);
    for (std::int64_t i = 0; i < runs; ++i, a += step.x_row, b += step.dy_row) {
      const PanelBOf<T> panel{b, kBlock, step.dy_vec};
      if constexpr (kBlock % kRowsOf<T, kVecs> == 0)
        tile.template MultiplyAdd<1>({a + job.row_at[0], 1, step.x_pixel}, panel, run, prefetch);
      else
        tile.template MultiplyAddAt<1>(a, job.row_at, step.x_pixel, panel, run, prefetch);
      prefetch.data += run * prefetch.step;
    }
  }
  tile.Put(job.sums, job.pitch, job.add);
}

// Covers `rows` rows with tiles: f(std::integral_constant<int, n>, first).
template <class T, int kVecs, class F>
HWY_INLINE void ForEachFilterTile(std::int64_t rows, F&& f) {
  const std::int64_t rest = rows % kRowsOf<T, kVecs>, full = rows - rest;
  ForEachRowTile<kRowsOf<T, kVecs>>(full, f);
  ForEachRowTile<4 * kTileVecsOf<T> / kVecs>(rest, f, full);  // not by halves: 4 of 6
}

std::int64_t RowCost(std::int64_t channels) {
  const std::int64_t rest = channels % kTileChannels;
  std::int64_t cost = channels - rest;
  ForEachFilterTile<float, kTileVecs>(rest, [&](auto rows, std::int64_t) HWY_ATTR {
    cost += std::max<std::int64_t>(4, rows.value);
  });
  return cost;
}

// kRows rows (c, tap) of a plain input against one panel, over one output row.
template <class T, int kRows, int kVecs>
HWY_NOINLINE void RunPlainTile(const T* buffer, const std::ptrdiff_t* row_at, std::int64_t step,
                               PanelBOf<T> b, std::int64_t pixels, T* sums, bool add) {
  TileOf<Elements<T>, kRows, kVecs> tile;
  tile.SetZero();
  tile.template MultiplyAddAt<1>(buffer, row_at, step, b, pixels);
  tile.Put(sums, kTileColsOf<T>, add);
}

template <class T>
int PanelVecs(const FilterGemm& gemm, std::int64_t panel) {
  const TileShape shape{kLanesOf<T>, kBlock, kTileRows, kTileColsOf<T>};
  return static_cast<int>(shape.panel_cols(gemm.problem.k - panel * shape.cols) / shape.lanes);
}

// `planes` stretches of memory, `apart` elements from start to start, prefetched `step` elements a
// pixel; after the last one, that one again.
template <class T>
struct Stretches {
  const T* data;
  std::int64_t planes, stretch, apart;
  std::ptrdiff_t step;
  std::int64_t at = 0;

  HWY_INLINE PrefetchToL1Of<T> Take(std::int64_t pixels) {
    const PrefetchToL1Of<T> prefetch{data + at, step};
    at += pixels * step;
    if (at >= stretch) {
      at = 0;
      if (--planes > 0) data += apart;
    }
    return prefetch;
  }
};

template <class T>
void RunBlocked(const FilterGemm& gemm, const T* x, const T* dy, T* sums, Range panels,
                Range blocks, std::int64_t part) {
  constexpr std::int64_t kCols = kTileColsOf<T>;
  const ConvProblem& p = gemm.problem;
  const std::int64_t taps = p.r * p.s;
  const std::int64_t dy_plane = p.y_desc().channel_step(), x_plane = p.x_desc().channel_step();
  const FilterSteps<T> step(p);
  const Range own = share(p.n * p.p, part, gemm.parts);
  const Range channels{blocks.begin * kBlock, std::min(p.c, blocks.end * kBlock)};
  // The first calls that read a chunk of dy or x would wait for memory; those after them find it in
  // the caches and leave memory idle. So each call prefetches a part of what comes next, in turn of
  // the next panel's dy and of the next chunk's x.
  constexpr std::int64_t dy_planes = kCols / kBlock;
  static_assert(kCols % kBlock == 0);
  const std::int64_t calls = ceil_div(ceil_div(channels.size(), kTileChannels) * taps, 2);
  const std::ptrdiff_t dy_step = ceil_div(dy_planes * kBlock, calls);
  const std::ptrdiff_t x_step = ceil_div(blocks.size() * step.x_row, p.q * calls * panels.size());
  for (std::int64_t line = own.begin; line < own.end; line += gemm.chunk_lines) {
    const std::int64_t n = line / p.p, first = line % p.p;
    const std::int64_t lines = std::min(own.end - line, gemm.chunk_lines);
    const std::int64_t next_n = (line + lines) / p.p, next_first = (line + lines) % p.p;
    Stretches<T> next_x{
        .data = x + next_n * step.x_image + next_first * step.x_row + blocks.begin * x_plane,
        .planes = blocks.size(),
        .stretch = lines * step.x_row,
        .apart = x_plane,
        .step = x_step};
    T* panel_sums = sums;
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const T* const panel_dy = dy + panel * dy_planes * dy_plane;
      // After the last panel comes the first one's next chunk.
      const bool last = panel + 1 == panels.end;
      const T* const next =
          last ? dy + panels.begin * dy_planes * dy_plane + next_n * step.dy_image +
                     next_first * step.dy_row
               : panel_dy + dy_planes * dy_plane + n * step.dy_image + first * step.dy_row;
      Stretches<T> next_dy{.data = next,
                           .planes = dy_planes,
                           .stretch = lines * step.dy_row,
                           .apart = dy_plane,
                           .step = dy_step};
      bool prefetch_dy = true;
      const auto run_panel = [&](auto vecs) HWY_ATTR {
        const auto run_rows = [&](auto rows, std::int64_t row) HWY_ATTR {
          TapJob<T> job{.x = x,
                        .dy = panel_dy,
                        .row_at = gemm.row_at.data() + channels.begin + row,
                        .n = n,
                        .first = first,
                        .lines = lines,
                        .sums = panel_sums + row * taps * kCols,
                        .pitch = taps * kCols,
                        .add = line > own.begin};
          for (const FilterTap& tap : gemm.taps) {
            job.tap = &tap;
            job.prefetch = (prefetch_dy ? next_dy : next_x).Take(lines * p.q);
            RunTap<T, rows.value, vecs.value>(step, job);
            job.sums += kCols;
            prefetch_dy = !prefetch_dy;
          }
        };
        ForEachFilterTile<T, vecs.value>(channels.size(), run_rows);
      };
      if (PanelVecs<T>(gemm, panel) == 1)
        run_panel(std::integral_constant<int, 1>());
      else
        run_panel(std::integral_constant<int, kTileVecsOf<T>>());
      panel_sums += blocks.size() * gemm.block_rows * kCols;
    }
  }
}

template <class T>
void RunPlain(const FilterGemm& gemm, const T* x, const T* dy, T* sums, T* buffer, Range panels,
              std::int64_t part) {
  constexpr std::int64_t kCols = kTileColsOf<T>;
  const ConvProblem& p = gemm.problem;
  const TensorDesc x_desc = p.x_desc(), dy_desc = p.y_desc();
  const std::int64_t vec_stride = kLanesOf<T> == kBlock ? dy_desc.channel_step() : kLanesOf<T>;
  const Range own = share(p.n * p.p, part, gemm.parts);
  for (std::int64_t line = own.begin; line < own.end; ++line) {
    const std::int64_t n = line / p.p, h = line % p.p;
    copy_plain_rows(gemm.plain, x + n * x_desc.image_step(), h * p.stride_h - p.pad_h, -p.pad_w,
                    buffer);
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int vecs = PanelVecs<T>(gemm, panel);
      const PanelBOf<T> b{dy + dy_desc.offset(n, panel * kCols, h, 0), kBlock, vec_stride};
      T* const to = sums + (panel - panels.begin) * gemm.block_rows * kCols;
      ForEachTile(gemm.block_rows, [&](auto rows, std::int64_t row) HWY_ATTR {
        const auto run = vecs == 1 ? RunPlainTile<T, rows.value, 1>
                                   : RunPlainTile<T, rows.value, kTileVecsOf<T>>;
        run(buffer, gemm.row_at.data() + row, p.stride_w, b, p.q, to + row * kCols,
            line > own.begin);
      });
    }
  }
}

Range PanelRange(const FilterGemm& gemm, std::int64_t rectangle) {
  const std::int64_t of_group = rectangle % gemm.rectangles();
  return share(gemm.panels, of_group / gemm.block_splits, gemm.panel_splits);
}
Range BlockRange(const FilterGemm& gemm, std::int64_t rectangle) {
  return share(gemm.blocks, rectangle % gemm.block_splits, gemm.block_splits);
}

template <class T>
void RunUnitOf(const FilterGemm& gemm, const T* x, const T* dy, T* sums, T* buffer,
               std::int64_t rectangle, std::int64_t part) {
  const std::int64_t group = rectangle / gemm.rectangles();
  x += gemm.problem.x_desc().offset(0, group * gemm.problem.c, 0, 0);
  dy += gemm.problem.y_desc().offset(0, group * gemm.problem.k, 0, 0);
  const Range panels = PanelRange(gemm, rectangle), blocks = BlockRange(gemm, rectangle);
  if (gemm.plain_x)
    RunPlain(gemm, x, dy, sums, buffer, panels, part);
  else
    RunBlocked(gemm, x, dy, sums, panels, blocks, part);
}

void RunUnit(const FilterGemm& gemm, const void* x, const void* dy, void* sums, void* buffer,
             std::int64_t rectangle, std::int64_t part) {
  const auto run = [&](auto element) {
    using T = decltype(element);
    RunUnitOf(gemm, static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(sums),
              static_cast<T*>(buffer), rectangle, part);
  };
  gemm.problem.dtype == DType::f64 ? run(double()) : run(float());
}

template <class T>
void FinishRectangleOf(const FilterGemm& gemm, const T* sums, std::size_t part_stride, T* dw,
                       std::int64_t rectangle) {
  constexpr std::int64_t kCols = kTileColsOf<T>;
  const ConvProblem& p = gemm.problem;
  const Range panels = PanelRange(gemm, rectangle), blocks = BlockRange(gemm, rectangle);
  const std::int64_t filter = p.c * p.r * p.s;
  dw += rectangle / gemm.rectangles() * p.k * filter;
  const std::int64_t block_sums = gemm.block_rows * kCols;
  // One cache line of sums at a time goes to as many rows of dw, so that each line is read once.
  // Each row is written from end to end, which the hardware prefetcher follows, and few rows share
  // a cache set if they lie a power of two apart.
  constexpr std::int64_t group = 16;
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const std::int64_t columns = std::min(kCols, p.k - panel * kCols);
    for (std::int64_t column = 0; column < columns; column += group)
      for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
        const std::int64_t first = block * gemm.block_rows;
        const T* const from = sums + (block - blocks.begin) * block_sums + column;
        const auto put = [&](const auto& of_parts) HWY_ATTR {
          PutTransposed(of_parts, p.accumulate, std::min(gemm.block_rows, filter - first),
                        std::min(group, columns - column),
                        dw + (panel * kCols + column) * filter + first, filter);
        };
        gemm.parts == 1 ? put(WholeSums{from}) : put(PartSums{from, part_stride, gemm.parts});
      }
    sums += blocks.size() * block_sums;
  }
}

void FinishRectangle(const FilterGemm& gemm, const void* sums, std::size_t part_stride, void* dw,
                     std::int64_t rectangle) {
  const auto finish = [&](auto element) {
    using T = decltype(element);
    FinishRectangleOf(gemm, static_cast<const T*>(sums), part_stride, static_cast<T*>(dw),
                      rectangle);
  };
  gemm.problem.dtype == DType::f64 ? finish(double()) : finish(float());
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(RowCost);
HWY_EXPORT(RunUnit);
HWY_EXPORT(FinishRectangle);

std::int64_t row_cost(std::int64_t channels) { return HWY_DYNAMIC_DISPATCH(RowCost)(channels); }

void run_unit(const FilterGemm& gemm, const void* x, const void* dy, void* sums, void* buffer,
              std::int64_t rectangle, std::int64_t part) {
  HWY_DYNAMIC_DISPATCH(RunUnit)(gemm, x, dy, sums, buffer, rectangle, part);
}

void finish_rectangle(const FilterGemm& gemm, const void* sums, std::size_t part_stride, void* dw,
                      std::int64_t rectangle) {
  HWY_DYNAMIC_DISPATCH(FinishRectangle)(gemm, sums, part_stride, dw, rectangle);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
