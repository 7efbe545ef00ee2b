// The register-tiled loops of direct: see direct.cpp for the derivation.
#include <hwy/cache_control.h>

#include <algorithm>
#include <cstddef>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/direct/direct.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/direct/tiles.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/direct/panel-inl.h"
#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/gemm/tile_output-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Taps in the padding read this.
alignas(64) constexpr float kZeros[kBlock] = {};

// One panel, one chunk of its depth, one image.
struct ChunkJob {
  const float* in;  // the chunk's first channel
  const float* filter;
  std::int64_t blocks;
  TileOutput output;
};

// kRows pixels of the grid from `first` on, continuing into the next row.
template <int kRows, int kVecs>
HWY_NOINLINE void PixelTile(const DirectPixels& d, const PixelGrid& grid, const ChunkJob& job,
                            std::int64_t first) {
  std::int64_t h_in[kRows], w_in[kRows], out_at[kRows];
  std::int64_t h = first / grid.w, w = first % grid.w;
  const bool one_row = w + kRows <= grid.w;
  for (int i = 0; i < kRows; ++i) {
    h_in[i] = h * d.in_step_h;
    w_in[i] = w * d.in_step_w;
    out_at[i] =
        ((grid.first_h + h * d.out_step_h) * d.out.width + grid.first_w + w * d.out_step_w) *
        d.out.pixel;
    if (++w == grid.w) w = 0, ++h;
  }

  Tile<kRows, kVecs> tile;
  tile.SetZero();
  constexpr std::ptrdiff_t kCols = kVecs * kLanes;
  const float* b = job.filter;
  for (const Tap& tap : grid.taps) {
    const std::int64_t h0 = h_in[0] + tap.dh, w0 = w_in[0] + tap.dw;
    const auto inside = [&](int i) {
      return w_in[i] + tap.dw >= 0 && w_in[i] + tap.dw < d.in.width;
    };
    const bool first = inside(0), last = inside(kRows - 1);
    if (one_row && (h0 < 0 || h0 >= d.in.height)) {
      // All padding.
    } else if (one_row && (first || last) && inside(std::min(1, kRows - 1)) &&
               inside(std::max(0, kRows - 2))) {
      // At most the first or the last pixel is padding; the others lie evenly spaced.
      const PanelA a{job.in + (h0 * d.in.width + w0) * d.in.pixel, d.in_step_w * d.in.pixel,
                     d.in.block};
      const PanelB panel{b, kCols, kLanes};
      if (first && last)
        tile.template MultiplyAdd<kBlock>(a, panel, job.blocks);
      else if (last)
        tile.template MultiplyAdd<kBlock, 1, kRows>(a, panel, job.blocks);
      else
        tile.template MultiplyAdd<kBlock, 0, kRows - 1>(a, panel, job.blocks);
    } else {
      std::ptrdiff_t at[kRows];
      bool reads[kRows];
      for (int i = 0; i < kRows; ++i) {
        const std::int64_t ih = h_in[i] + tap.dh;
        reads[i] = ih >= 0 && ih < d.in.height && inside(i);
        at[i] = (ih * d.in.width + w_in[i] + tap.dw) * d.in.pixel;
      }
      for (std::int64_t block = 0; block < job.blocks; ++block) {
        const float* const in = job.in + block * d.in.block;
        std::ptrdiff_t row_at[kRows];
        for (int i = 0; i < kRows; ++i) row_at[i] = reads[i] ? at[i] : kZeros - in;
        tile.template MultiplyAddAt<kBlock>(in, row_at, 0,
                                            {b + block * kBlock * kCols, kCols, kLanes}, 1);
      }
    }
    b += job.blocks * kBlock * kCols;
  }
  job.output.Store(tile, out_at);
}

// The pixels of a run, which tiles do not cross: those of a full tile, or of a line if each line
// leaves half a tile. A tile within one line needs no look-up of taps pixel by pixel, and
// multiplies no zeros.
std::int64_t RunOfPixels(const PixelGrid& grid) {
  return grid.h > 1 && grid.w % kTileRows == kTileRows / 2 ? grid.w : kTileRows;
}

void PixelStrip(const DirectPixels& d, const PixelGrid& grid, const DirectOperands& data,
                std::int64_t image, std::int64_t begin, std::int64_t end, std::int64_t index) {
  const Panel panel(d.panels, index);
  alignas(64) float bias[kTileCols] = {};
  if (data.output.bias != nullptr)
    std::copy_n(data.output.bias + panel.channel, panel.channels, bias);
  const std::int64_t taps = std::int64_t(grid.taps.size()), chunk = d.chunk(grid);
  const OutputEpilogue<float> output =
      data.output.at(image * d.out.image + panel.at(d.out), 0).with_biases(bias);
  for (std::int64_t block = 0; block < d.in_blocks; block += chunk) {
    const ChunkJob job{
        data.in + image * d.in.image + (panel.group * d.in_blocks + block) * d.in.block,
        data.filter + grid.filter +
            (index * d.in_blocks * kTileCols + block * panel.vecs * kLanes) * taps * kBlock,
        std::min(chunk, d.in_blocks - block),
        {output.part(block == 0, block + chunk >= d.in_blocks), d.out.block}};
    const std::int64_t run = RunOfPixels(grid) == grid.w ? grid.w : end - begin;
    for (std::int64_t at = begin; at < end; at += run)
      ForEachTile(
          std::min(run, end - at),
          [&](auto rows, std::int64_t first) HWY_ATTR {
            panel.vecs == 1 ? PixelTile<rows.value, 1>(d, grid, job, first)
                            : PixelTile<rows.value, kTileVecs>(d, grid, job, first);
          },
          at);
  }
}

void Pixels(const DirectPixels& d, const DirectOperands& data, std::int64_t thread) {
  const Range panels = share(d.panels.count(), thread % d.panel_threads, d.panel_threads);
  for (const PixelGrid& grid : d.grids) {
    const std::int64_t pixels = grid.h * grid.w, run = RunOfPixels(grid);
    const std::int64_t runs = ceil_div(pixels, run);
    const Range own = share(d.n * runs, thread / d.panel_threads, d.row_threads);
    for (std::int64_t i = own.begin; i < own.end;) {
      const std::int64_t image = i / runs, begin = i % runs * run;
      const std::int64_t count =
          std::min({own.end - i, runs - i % runs, std::max<std::int64_t>(1, d.strip / run)});
      const std::int64_t end = std::min(pixels, begin + count * run);
      for (std::int64_t panel = panels.begin; panel < panels.end; ++panel)
        PixelStrip(d, grid, data, image, begin, end, panel);
      i += count;
    }
  }
  if (data.output.non_temporal) hwy::FlushStream();
}

// The outputs along one dimension whose tap falls inside the input; output 0 reads it at `at`.
HWY_INLINE Range Inside(std::int64_t at, std::int64_t stride, std::int64_t input,
                        std::int64_t outputs) {
  const std::int64_t first = at >= 0 ? 0 : std::min(outputs, ceil_div(-at, stride));
  const std::int64_t last = at >= input ? 0 : std::min(outputs, (input - 1 - at) / stride + 1);
  return {first, std::max(first, last)};
}

// sums[tap][channel][column] of one panel and channel block += rows [begin, end) of one image. In a
// single column the pixels that follow each other are those of a tap's rows, in one run.
template <int kVecs>
HWY_NOINLINE void FilterStrip(const DirectFilter& d, const float* x, const float* dy,
                              std::int64_t begin, std::int64_t end, bool load, float* sums) {
  const ConvProblem& p = d.problem;
  constexpr std::int64_t kCols = kVecs * kLanes;
  const bool column = p.q == 1;
  const std::ptrdiff_t x_step = (column ? p.stride_h * p.w : p.stride_w) * d.x.pixel;
  const PanelB row_of_dy{nullptr, d.dy.pixel, VectorAt(d.dy.block, 1)};
  for (std::int64_t r = 0; r < p.r; ++r)
    for (std::int64_t s = 0; s < p.s; ++s) {
      const std::int64_t top = r * p.dilation_h - p.pad_h, left = s * p.dilation_w - p.pad_w;
      const Range all_rows = Inside(top, p.stride_h, p.h, p.p);
      const Range rows{std::max(begin, all_rows.begin), std::min(end, all_rows.end)};
      const Range columns = Inside(left, p.stride_w, p.w, p.q);
      const std::int64_t w = columns.begin * p.stride_w + left;
      const std::int64_t row_step = column ? std::max<std::int64_t>(1, rows.size()) : 1;
      for (int c = 0; c < kBlock; c += kHalfBlock, sums += kHalfBlock * kCols) {
        Tile<kHalfBlock, kVecs> tile;
        tile.SetZero();
        for (std::int64_t row = rows.begin; row < rows.end; row += row_step) {
          const std::int64_t h = row * p.stride_h + top;
          PanelB b = row_of_dy;
          b.data = dy + (row * p.q + columns.begin) * d.dy.pixel;
          tile.template MultiplyAdd<1>({x + (h * p.w + w) * d.x.pixel + c, 1, x_step}, b,
                                       columns.size() * row_step);
        }
        tile.ForEach([&](int i, int j, Vec& v) HWY_ATTR {
          float* const to = sums + i * kCols + j * kLanes;
          hn::StoreU(load ? hn::Add(v, hn::LoadU(F32(), to)) : v, F32(), to);
        });
      }
    }
}

// dw (+)= the sum of the copies of one unit: [tap][channel][column] becomes [column][channel][tap],
// four (channel, tap) at a time.
template <int kVecs>
HWY_NOINLINE void FinishUnit(const DirectFilter& d, const float* sums, std::int64_t copies,
                             std::int64_t copy, const Panel& panel, std::int64_t block, float* dw) {
  const ConvProblem& p = d.problem;
  constexpr std::int64_t kCols = kVecs * kLanes;
  const std::int64_t area = p.r * p.s, channels = p.c / p.groups;
  const std::int64_t elements = std::min<std::int64_t>(kBlock, channels - block * kBlock) * area;
  dw += (panel.channel * channels + block * kBlock) * area;
  const hn::CappedTag<float, 4> d4;
  for (std::int64_t element = 0; element < elements; element += 4) {
    const std::int64_t count = std::min<std::int64_t>(4, elements - element);
    for (int j = 0; j < kVecs; ++j) {
      Vec v[4];
      for (std::int64_t i = 0; i < 4; ++i) {
        const std::int64_t e = element + std::min(i, count - 1);
        const float* from = sums + (e % area * kBlock + e / area) * kCols + j * kLanes;
        v[i] = hn::LoadU(F32(), from);
        for (std::int64_t n = 1; n < copies; ++n)
          v[i] = hn::Add(v[i], hn::LoadU(F32(), from += copy));
      }
      alignas(64) float four[4 * kLanes];  // [column][element]
      hn::StoreInterleaved4(v[0], v[1], v[2], v[3], F32(), four);
      const std::int64_t columns = std::min<std::int64_t>(kLanes, panel.channels - j * kLanes);
      for (std::int64_t k = 0; k < columns; ++k) {
        float* const to = dw + (j * kLanes + k) * channels * area + element;
        const float* const value = four + 4 * k;
        if (count == 4) {
          const auto sum = hn::LoadU(d4, value);
          hn::StoreU(p.accumulate ? hn::Add(sum, hn::LoadU(d4, to)) : sum, d4, to);
        } else {
          for (std::int64_t i = 0; i < count; ++i)
            to[i] = p.accumulate ? to[i] + value[i] : value[i];
        }
      }
    }
  }
}

void FinishFilter(const DirectFilter& d, const DirectOperands& data, std::int64_t unit,
                  const float* sums, std::int64_t copies) {
  const Panel panel(d.panels, unit / d.in_blocks);
  const std::int64_t block = unit % d.in_blocks, copy = d.units() * d.unit_floats;
  panel.vecs == 1 ? FinishUnit<1>(d, sums, copies, copy, panel, block, data.output.out)
                  : FinishUnit<kTileVecs>(d, sums, copies, copy, panel, block, data.output.out);
}

void Filter(const DirectFilter& d, const DirectOperands& data, std::int64_t thread) {
  const ConvProblem& p = d.problem;
  const Range units = share(d.units(), thread % d.filter_threads, d.filter_threads);
  const std::int64_t copy = thread / d.filter_threads;
  const Range rows = share(d.n * p.p, copy, d.row_threads);
  for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
    const Panel panel(d.panels, unit / d.in_blocks);
    const std::int64_t block = panel.group * d.in_blocks + unit % d.in_blocks;
    const bool whole = d.row_threads == 1;
    float* const sums = data.workspace + (whole ? thread : copy * d.units() + unit) * d.unit_floats;
    for (std::int64_t row = rows.begin; row < rows.end;) {
      const std::int64_t image = row / p.p, begin = row % p.p;
      const std::int64_t end = std::min({p.p, begin + d.strip, begin + rows.end - row});
      const float* const x = data.in + image * d.x.image + block * d.x.block;
      const float* const dy = data.dy + image * d.dy.image + panel.at(d.dy);
      const bool load = row > rows.begin;
      panel.vecs == 1 ? FilterStrip<1>(d, x, dy, begin, end, load, sums)
                      : FilterStrip<kTileVecs>(d, x, dy, begin, end, load, sums);
      row += end - begin;
    }
    if (whole) FinishFilter(d, data, unit, sums, 1);
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(Pixels);
HWY_EXPORT(Filter);
HWY_EXPORT(FinishFilter);

void direct_pixels(const DirectPixels& d, const DirectOperands& data, std::int64_t thread) {
  HWY_DYNAMIC_DISPATCH(Pixels)(d, data, thread);
}
void direct_filter(const DirectFilter& d, const DirectOperands& data, std::int64_t thread) {
  HWY_DYNAMIC_DISPATCH(Filter)(d, data, thread);
}
void direct_finish_filter(const DirectFilter& d, const DirectOperands& data, std::int64_t unit) {
  HWY_DYNAMIC_DISPATCH(FinishFilter)
  (d, data, unit, data.workspace + unit * d.unit_floats, d.row_threads);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
