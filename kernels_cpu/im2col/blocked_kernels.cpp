// The loops of im2col_blocked: see blocked.cpp for the derivation.
#include <algorithm>
#include <cstddef>

#include "kernels_cpu/im2col/blocked.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/im2col/blocked_kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/put_transposed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

constexpr int kPanelVecs = 3;
constexpr std::int64_t kPanelCols = kPanelVecs * kLanes;

// How vectors of columns share panels: all have 3, but the last two 2 each rather than 3 and 1.
struct ColumnPanels {
  std::int64_t vecs;

  std::int64_t count() const { return ceil_div(vecs, std::int64_t{kPanelVecs}); }
  Range of(std::int64_t panel) const {
    return {begin(panel), panel + 1 == count() ? vecs : begin(panel + 1)};
  }
  // Where pixel 0 of a vector of columns lies in [panel][pixel][column].
  std::int64_t at(std::int64_t vec, std::int64_t pixels) const {
    const std::int64_t last = count() - 1;
    const std::int64_t panel = vec >= begin(last) ? last : vec / kPanelVecs;
    return panel * pixels * kPanelCols + (vec - begin(panel)) * kLanes;
  }

 private:
  std::int64_t begin(std::int64_t panel) const {
    const bool early = panel > 0 && panel + 1 == count() && vecs % kPanelVecs == 1;
    return panel * kPanelVecs - (early ? 1 : 0);
  }
};

// One thread's part of columns[panel][pixel][column], of a chunk.
void FillColumns(const BlockedColumns& f, const ColumnsChunk& chunk, const float* x, float* columns,
                 std::int64_t thread, std::int64_t threads) {
  const ConvProblem& p = f.problem;
  const std::int64_t taps = p.r * p.s, pixels = chunk.images.size() * chunk.rows.size() * p.q;
  const std::int64_t plane = p.x_desc().channel_step(), image = p.x_desc().image_step();
  const std::int64_t begin_h = chunk.rows.begin * p.stride_h - p.pad_h;
  const std::int64_t end_h = chunk.rows.end * p.stride_h - p.pad_h;
  const ColumnPanels panels{f.filter() / kLanes};
  const Range own = share(p.c / kLanes, thread, threads);
  // One vector of channels of one pixel: [tap][channel] as x has it, [channel][tap] as dw has it.
  alignas(64) float seen[BlockedColumns::most_taps * kTileCols];
  alignas(64) float columns_of_pixel[BlockedColumns::most_taps * kLanes];
  float* place[BlockedColumns::most_taps];  // of each vector of columns
  for (std::int64_t vec = own.begin; vec < own.end; ++vec) {
    const std::int64_t c = vec * kLanes;
    for (std::int64_t i = 0; i < taps; ++i) place[i] = columns + panels.at(vec * taps + i, pixels);
    for (std::int64_t n = chunk.images.begin; n < chunk.images.end; ++n) {
      const float* const from = x + n * image + c / kBlock * plane + c % kBlock;
      for (std::int64_t top = begin_h; top < end_h; top += p.stride_h)
        for (std::int64_t left = -p.pad_w; left < p.q * p.stride_w - p.pad_w; left += p.stride_w) {
          float* tap = seen;
          for (std::int64_t h = top; h < top + p.r * p.dilation_h; h += p.dilation_h)
            for (std::int64_t w = left; w < left + p.s * p.dilation_w;
                 w += p.dilation_w, tap += kTileCols) {
              const bool inside = h >= 0 && h < p.h && w >= 0 && w < p.w;
              const float* const at = from + (h * p.w + w) * kBlock;
              hn::StoreU(inside ? hn::LoadU(F32(), at) : hn::Zero(F32()), F32(), tap);
            }
          if (taps > 1) PutTransposed(WholeSums{seen}, false, taps, kLanes, columns_of_pixel, taps);
          const float* const values = taps > 1 ? columns_of_pixel : seen;
          for (std::int64_t i = 0; i < taps; ++i) {
            hn::StoreU(hn::LoadU(F32(), values + i * kLanes), F32(), place[i]);
            place[i] += kPanelCols;
          }
        }
    }
  }
}

// The steps that all tiles share, in floats: in the columns from one image, pixel and vector to the
// next, in dy from image to image, in dw from filter to filter.
struct ColumnsJob {
  std::int64_t images, pixels, image, pixel, vec, dy_image, filter;
  bool accumulate;
};

template <int kRows, int kVecs>
HWY_NOINLINE void MultiplyTile(const ColumnsJob& job, const float* columns, const float* dy,
                               const float* next_dy, float* dw) {
  Tile<kRows, kVecs> tile;
  tile.SetZero();
  for (std::int64_t n = 0; n < job.images;
       ++n, dy += job.dy_image, next_dy += job.dy_image, columns += job.image)
    tile.template MultiplyAdd<1>({dy, 1, kBlock}, {columns, job.pixel, job.vec}, job.pixels,
                                 PrefetchToL2{next_dy, kBlock});
  tile.Put(dw, job.filter, job.accumulate);
}

void MultiplyColumns(const BlockedColumns& f, const ColumnsChunk& chunk, const float* columns,
                     const float* dy, float* dw, std::int64_t thread, std::int64_t threads) {
  const ConvProblem& p = f.problem;
  const TensorDesc x_desc = p.x_desc(), dy_desc = p.y_desc();
  const std::int64_t plane = dy_desc.channel_step(), row = p.q * kBlock;
  const std::int64_t pixels = chunk.rows.size() * p.q;
  const bool first = chunk.images.begin == 0 && chunk.rows.begin == 0;
  const ColumnsJob job{.images = chunk.images.size(),
                       .pixels = pixels,
                       .image = f.in_place ? x_desc.image_step() : pixels * kPanelCols,
                       .pixel = f.in_place ? kBlock : kPanelCols,
                       .vec = f.in_place ? x_desc.channel_step() : kLanes,
                       .dy_image = dy_desc.image_step(),
                       .filter = f.filter(),
                       .accumulate = p.accumulate || !first};
  if (f.in_place) columns += chunk.images.begin * job.image + chunk.rows.begin * row;
  dy += chunk.images.begin * job.dy_image + chunk.rows.begin * row;
  const std::int64_t panel_floats = job.images * job.image;
  const ColumnPanels panels{f.filter() / kLanes};
  const std::int64_t tiles = ceil_div(p.k, std::int64_t{kHalfBlock});
  const std::int64_t row_threads = std::min(tiles, threads);
  const std::int64_t column_threads = threads / row_threads;
  if (thread >= row_threads * column_threads) return;
  const Range own_tiles = share(tiles, thread / column_threads, row_threads);
  const Range own = share(panels.count(), thread % column_threads, column_threads);
  const std::int64_t end = std::min(p.k, own_tiles.end * kHalfBlock);
  constexpr std::int64_t at_once = 3 * kHalfBlock;  // filters that a panel is multiplied by
  for (std::int64_t group = own.begin; group < own.end; group += f.panels)
    for (std::int64_t k = own_tiles.begin * kHalfBlock; k < end; k += at_once)
      for (std::int64_t panel = group; panel < std::min(own.end, group + f.panels); ++panel) {
        const Range vecs = panels.of(panel);
        // The last panel's tiles prefetch the next filters' dy, which comes from memory.
        const bool last = panel + 1 == std::min(own.end, group + f.panels);
        const float* const from =
            columns + (f.in_place ? vecs.begin * x_desc.channel_step() : panel * panel_floats);
        ForEachRowTile<kHalfBlock>(
            std::min(at_once, end - k),
            [&](auto rows, std::int64_t i) HWY_ATTR {
              const auto run = vecs.size() == 3   ? MultiplyTile<rows.value, 3>
                               : vecs.size() == 2 ? MultiplyTile<rows.value, 2>
                                                  : MultiplyTile<rows.value, 1>;
              const std::int64_t next = last && i + at_once < end ? i + at_once : i;
              run(job, from, dy + i / kBlock * plane + i % kBlock, dy + next / kBlock * plane,
                  dw + i * job.filter + vecs.begin * kLanes);
            },
            k);
      }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(FillColumns);
HWY_EXPORT(MultiplyColumns);

void fill_columns(const BlockedColumns& f, const ColumnsChunk& chunk, const float* x,
                  float* columns, std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(FillColumns)(f, chunk, x, columns, thread, threads);
}
void multiply_columns(const BlockedColumns& f, const ColumnsChunk& chunk, const float* columns,
                      const float* dy, float* dw, std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(MultiplyColumns)(f, chunk, columns, dy, dw, thread, threads);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
