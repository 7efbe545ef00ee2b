// backward_filter of implicit_gemm: see implicit_gemm.h.
//
// A tile is kBlock / 2 rows (input channels at one tap) by kTileCols columns (output channels); its
// depth runs over pixels. A unit walks its pixels a chunk at a time: the chunk of dy of one panel
// stays in L1 or near while every row of the rectangle meets it, x comes from L2, and the sums go
// through the registers once per chunk.
#include <algorithm>
#include <cstddef>

#include "kernels_cpu/implicit_gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/implicit_gemm_filter.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm_kernel-inl.h"
#include "kernels_cpu/plain_rows-inl.h"
#include "kernels_cpu/put_transposed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// One tap of one channel block against one panel, over `lines` output rows from row `first` of
// image n on.
struct TapJob {
  const float *x, *dy;  // of the channel block, of the panel; image 0
  TapRange h, w;
  std::int64_t n, first, lines;
  float* sums;              // of the tap's first channel
  std::int64_t sums_pitch;  // from channel to channel
  bool add;                 // to what is there
  Ahead ahead;              // a part of the dy or x that comes next, a step a pixel
};

template <int kRows, int kVecs>
HWY_NOINLINE void RunTap(const FilterGemm& gemm, const TapJob& job, int channel) {
  const ConvProblem& p = gemm.problem;
  const std::int64_t x_image = p.x_desc().padded_c() * p.h * p.w;
  const std::int64_t dy_image = p.y_desc().padded_c() * p.p * p.q;
  const std::int64_t width = job.w.end - job.w.begin;
  // Rows that lie one behind the other in both operands make one run.
  const bool joined = width == p.q && p.w == p.q && p.stride_h == 1 && p.stride_w == 1;

  Tile<kRows, kVecs> tile;
  tile.SetZero();
  std::int64_t n = job.n, first = job.first;
  Ahead ahead = job.ahead;
  for (std::int64_t left = job.lines; left > 0; ++n, first = 0) {
    const std::int64_t last = std::min(p.p, first + left);
    left -= last - first;
    const std::int64_t begin = std::max(first, job.h.begin), end = std::min(last, job.h.end);
    if (begin >= end || width <= 0) continue;
    const std::int64_t h = begin * p.stride_h + job.h.offset;
    const std::int64_t w = job.w.begin * p.stride_w + job.w.offset;
    const float* a = job.x + n * x_image + (h * p.w + w) * kBlock + channel;
    const float* b = job.dy + n * dy_image + (begin * p.q + job.w.begin) * kBlock;
    const std::int64_t runs = joined ? 1 : end - begin;
    const std::int64_t run = joined ? (end - begin) * width : width;
    // In the 128-bit baseline both vectors of a panel are of one channel block.
    const std::int64_t vec_stride = kLanes == kBlock ? p.p * p.q * kBlock : kLanes;
    for (std::int64_t i = 0; i < runs; ++i) {
      tile.template MultiplyAdd<1>({a, 1, p.stride_w * kBlock}, {b, kBlock, vec_stride}, run,
                                   ahead);
      ahead.data += run * ahead.step;
      a += p.stride_h * p.w * kBlock;
      b += p.q * kBlock;
    }
  }
  tile.Put(job.sums + channel * job.sums_pitch, job.sums_pitch, job.add);
}

// kRows rows (c, tap) of a plain input against one panel, over one output row.
template <int kRows, int kVecs>
HWY_NOINLINE void RunPlainTile(const float* buffer, const std::ptrdiff_t* row_at, std::int64_t step,
                               PanelB b, std::int64_t pixels, float* sums, bool add) {
  Tile<kRows, kVecs> tile;
  tile.SetZero();
  tile.template MultiplyAddAt<1>(buffer, row_at, step, b, pixels);
  tile.Put(sums, kTileCols, add);
}

void CopySeen(const ConvProblem& p, const float* x, std::int64_t begin, std::int64_t end,
              float* to) {
  to += begin * p.p * p.q * kBlock;
  for (std::int64_t plane = begin; plane < end; ++plane)
    for (std::int64_t row = 0; row < p.p; ++row) {
      const float* from = x + (plane * p.h + row * p.stride_h) * p.w * kBlock;
      for (std::int64_t i = 0; i < p.q; ++i, from += p.stride_w * kBlock, to += kBlock)
        for (int lane = 0; lane < kBlock; lane += kLanes)
          hn::StoreU(hn::LoadU(F32(), from + lane), F32(), to + lane);
    }
}

int PanelVecs(const FilterGemm& gemm, std::int64_t panel) {
  const TileShape shape{kLanes, kBlock, kTileRows, kTileCols};
  return static_cast<int>(shape.panel_cols(gemm.problem.k - panel * kTileCols) / kLanes);
}

void RunBlocked(const FilterGemm& gemm, const float* x, const float* dy, float* sums, Range panels,
                Range blocks, std::int64_t part) {
  const ConvProblem& p = gemm.problem;
  const std::int64_t taps = p.r * p.s, dy_plane = p.p * p.q * kBlock;
  const Range own = share(p.n * p.p, part, gemm.parts);
  // The first calls that read a chunk of dy or x would wait for memory, which those after them,
  // finding the chunk in the caches, leave idle. So the calls for the first half of a block's
  // channels ask for the next panel's dy, a part each, those for the second half for the x that the
  // block meets next.
  constexpr std::int64_t dy_planes = kTileCols / kBlock;
  const std::int64_t dy_calls = blocks.size() * taps;
  const std::int64_t x_calls = panels.size() * taps;
  const std::int64_t x_line = p.stride_h * p.w * kBlock;
  const std::ptrdiff_t dy_step = ceil_div(dy_planes * kBlock, dy_calls);
  const std::ptrdiff_t x_step = ceil_div(x_line, p.q * x_calls);
  for (std::int64_t line = own.begin; line < own.end; line += gemm.chunk_lines) {
    const std::int64_t n = line / p.p, first = line % p.p;
    const std::int64_t lines = std::min(own.end - line, gemm.chunk_lines);
    const std::int64_t dy_chunk = lines * p.q * kBlock;
    const float* const next_x = x + (line + lines) / p.p * p.x_desc().padded_c() * p.h * p.w +
                                (line + lines) % p.p * x_line;
    float* block_sums = sums;
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int vecs = PanelVecs(gemm, panel);
      // After the last panel comes the first one's next chunk.
      const bool last = panel + 1 == panels.end;
      const std::int64_t next_line = last ? line + lines : line;
      const float* const next_dy = dy + next_line / p.p * p.y_desc().padded_c() * p.p * p.q +
                                   next_line % p.p * p.q * kBlock +
                                   (last ? panels.begin : panel + 1) * kTileCols * p.p * p.q;
      std::int64_t dy_call = 0;
      for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
        std::int64_t x_call = (panel - panels.begin) * taps;
        for (std::int64_t r = 0; r < p.r; ++r)
          for (std::int64_t s = 0; s < p.s; ++s, ++dy_call, ++x_call) {
            const std::int64_t dy_at = dy_planes * dy_chunk * dy_call / dy_calls;
            TapJob job{
                .x = x + block * kBlock * p.h * p.w,
                .dy = dy + panel * kTileCols * p.p * p.q,
                .h = gemm.inside_h[std::size_t(r)],
                .w = gemm.inside_w[std::size_t(s)],
                .n = n,
                .first = first,
                .lines = lines,
                .sums = block_sums + (r * p.s + s) * kTileCols,
                .sums_pitch = taps * kTileCols,
                .add = line > own.begin,
                .ahead = {next_dy + dy_at / dy_chunk * dy_plane + dy_at % dy_chunk, dy_step}};
            if (vecs == 1) {
              RunTap<kBlock, 1>(gemm, job, 0);
            } else {
              RunTap<kBlock / 2, kTileVecs>(gemm, job, 0);
              job.ahead = {next_x + block * kBlock * p.h * p.w + lines * x_line * x_call / x_calls,
                           x_step};
              RunTap<kBlock / 2, kTileVecs>(gemm, job, kBlock / 2);
            }
          }
        block_sums += gemm.block_rows * kTileCols;
      }
    }
  }
}

void RunPlain(const FilterGemm& gemm, const float* x, const float* dy, float* sums, float* buffer,
              Range panels, std::int64_t part) {
  const ConvProblem& p = gemm.problem;
  const std::int64_t vec_stride = kLanes == kBlock ? p.p * p.q * kBlock : kLanes;
  const Range own = share(p.n * p.p, part, gemm.parts);
  for (std::int64_t line = own.begin; line < own.end; ++line) {
    const std::int64_t n = line / p.p, h = line % p.p;
    CopyPlainRows(gemm.plain, x + n * p.c * p.h * p.w, h * p.stride_h - p.pad_h, -p.pad_w, buffer);
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int vecs = PanelVecs(gemm, panel);
      const PanelB b{
          dy + (n * p.y_desc().padded_c() + panel * kTileCols) * p.p * p.q + h * p.q * kBlock,
          kBlock, vec_stride};
      float* const to = sums + (panel - panels.begin) * gemm.block_rows * kTileCols;
      ForEachRowTile(gemm.block_rows, [&](auto rows, std::int64_t row) HWY_ATTR {
        const auto run =
            vecs == 1 ? RunPlainTile<rows.value, 1> : RunPlainTile<rows.value, kTileVecs>;
        run(buffer, gemm.row_at.data() + row, p.stride_w, b, p.q, to + row * kTileCols,
            line > own.begin);
      });
    }
  }
}

Range PanelRange(const FilterGemm& gemm, std::int64_t rectangle) {
  return share(gemm.panels, rectangle / gemm.block_splits, gemm.panel_splits);
}
Range BlockRange(const FilterGemm& gemm, std::int64_t rectangle) {
  return share(gemm.blocks, rectangle % gemm.block_splits, gemm.block_splits);
}

void RunUnit(const FilterGemm& gemm, const float* x, const float* dy, float* sums, float* buffer,
             std::int64_t rectangle, std::int64_t part) {
  const Range panels = PanelRange(gemm, rectangle), blocks = BlockRange(gemm, rectangle);
  if (gemm.plain_x)
    RunPlain(gemm, x, dy, sums, buffer, panels, part);
  else
    RunBlocked(gemm, x, dy, sums, panels, blocks, part);
}

void FinishRectangle(const FilterGemm& gemm, const float* sums, std::size_t part_stride, float* dw,
                     std::int64_t rectangle) {
  const ConvProblem& p = gemm.problem;
  const Range panels = PanelRange(gemm, rectangle), blocks = BlockRange(gemm, rectangle);
  const std::int64_t filter = p.c * p.r * p.s;
  const std::int64_t block_floats = gemm.block_rows * kTileCols;
  // Eight rows of dw together, each written from end to end: long runs that the hardware
  // prefetches, few enough to share a cache set when rows are a power of two apart.
  constexpr std::int64_t group = 8;
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const std::int64_t columns = std::min<std::int64_t>(kTileCols, p.k - panel * kTileCols);
    for (std::int64_t column = 0; column < columns; column += group)
      for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
        const std::int64_t first = block * gemm.block_rows;
        PutTransposed(
            {sums + (block - blocks.begin) * block_floats + column, part_stride, gemm.parts},
            p.accumulate, std::min(gemm.block_rows, filter - first),
            std::min(group, columns - column), dw + (panel * kTileCols + column) * filter + first,
            filter);
      }
    sums += blocks.size() * block_floats;
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(CopySeen);
HWY_EXPORT(RunUnit);
HWY_EXPORT(FinishRectangle);

void copy_seen(const ConvProblem& p, const float* x, std::int64_t begin, std::int64_t end,
               float* to) {
  HWY_DYNAMIC_DISPATCH(CopySeen)(p, x, begin, end, to);
}

void run_unit(const FilterGemm& gemm, const float* x, const float* dy, float* sums, float* buffer,
              std::int64_t rectangle, std::int64_t part) {
  HWY_DYNAMIC_DISPATCH(RunUnit)(gemm, x, dy, sums, buffer, rectangle, part);
}

void finish_rectangle(const FilterGemm& gemm, const float* sums, std::size_t part_stride, float* dw,
                      std::int64_t rectangle) {
  HWY_DYNAMIC_DISPATCH(FinishRectangle)(gemm, sums, part_stride, dw, rectangle);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
