#include "kernels_cpu/gemm/panels.h"

#include <algorithm>
#include <limits>

#include "kernels_cpu/gemm/tile_shape.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/gemm/panels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/transpose_rows-inl.h"
#include "kernels_cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Rows of a full tile with so many vectors: 28, 24 or 16 accumulators of 32 registers, 12 or 8 of
// 16.
constexpr int TileRowsOf(int vectors) {
  if (kTileRows == 14) return vectors == 2 ? 14 : vectors == 4 ? 6 : 2;
  return vectors == 2 ? 6 : vectors == 4 ? 2 : 1;
}

std::int64_t MostRows(std::int64_t vectors) { return TileRowsOf(int(vectors)); }

// Two streams, a step of each at a time.
template <class T>
struct PrefetchTwo {
  PrefetchToL2Of<T> first, second;
  HWY_INLINE void Step(std::int64_t c) const {
    first.Step(c);
    second.Step(c);
  }
};

template <class T, int kVecs, class RowStep, class DepthStep>
struct PanelTiles {
  static constexpr int kColumns = kVecs * kLanesOf<T>;
  const T* a;  // from the first row and depth of the product on
  RowStep row_step;
  DepthStep depth_step;
  const T* b;             // of the panel, from that depth on
  const T *next, *after;  // prefetched: the panel after that, and `slice` of product.after
  std::int64_t slice;
  T* c;  // from the panel's first column on
  std::int64_t c_step, rows, depths, columns;
  bool add;

  template <int kRows>
  HWY_INLINE void Run(std::int64_t row) const {
    TileOf<Elements<T>, kRows, kVecs> tile;
    tile.SetZero();
    // Each tile prefetches its share: of the next panel unless it is the only one, which reads
    // panels as fast as they come.
    const std::int64_t of_next = kRows < rows ? kColumns * kRows / rows : 0,
                       of_after = ceil_div(slice * kRows, rows * depths);
    const PrefetchTwo<T> prefetch{{next + kColumns * row / rows * depths, of_next},
                                  {after + slice * row / rows, of_after}};
    tile.template MultiplyAdd<1>(PanelAOf<T>{a + row * row_step, row_step, depth_step},
                                 PanelBOf<T>{b, kColumns, kLanesOf<T>}, depths, prefetch);
    T* const to = c + row * c_step;
    if (columns >= kColumns) {
      tile.Put(to, c_step, add);
    } else {
      tile.ForEach([&](int i, int j, VecOf<T>& v) HWY_ATTR {
        const std::int64_t left = columns - j * kLanesOf<T>;
        if (left <= 0) return;
        const FirstLanes lanes{std::size_t(std::min<std::int64_t>(left, kLanesOf<T>))};
        T* const at = to + i * c_step + j * kLanesOf<T>;
        lanes.Store(add ? hn::Add(v, lanes.Load(at)) : v, at);
      });
    }
  }
};

// A step that is 1, as a constant: rows or steps of depth are then displacements.
using One = std::integral_constant<std::int64_t, 1>;

// A(row, d) to to[d * panel_block_rows + row].
template <class T>
void CopyBlock(const T* a, std::int64_t depth_step, std::int64_t rows, std::int64_t depths, T* to) {
  for (std::int64_t d = 0; d < depths; ++d, a += depth_step, to += panel_block_rows)
    ForEachVector<T>(rows,
                     [&](auto at, std::int64_t i) HWY_ATTR { at.Store(at.Load(a + i), to + i); });
}

template <class T, int kVecs, bool kCopied>
void MultiplyTiles(const PanelShape& shape, const PanelProduct& product, Range rows, Range panels,
                   Range chunks) {
  using RowStep = std::conditional_t<kCopied, One, std::int64_t>;
  using DepthStep =
      std::conditional_t<kCopied, std::integral_constant<std::int64_t, panel_block_rows>, One>;
  constexpr int kColumns = kVecs * kLanesOf<T>;
  RowStep row_step{};
  if constexpr (!kCopied) row_step = product.row_step;
  const std::int64_t passes =
      chunks.size() * ceil_div(rows.size(), panel_block_rows) * shape.parts * panels.size();
  const std::int64_t slice = ceil_div(product.after_bytes / std::int64_t{sizeof(T)}, passes);
  // Prefetching the same line of B again costs nothing.
  const auto* after = static_cast<const T*>(product.after != nullptr ? product.after : product.b);
  for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    const Range depths = shape.depths_of(chunk);
    for (std::int64_t block = rows.begin; block < rows.end; block += panel_block_rows) {
      const std::int64_t height = std::min(panel_block_rows, rows.end - block);
      const T* a = static_cast<const T*>(product.a) + block * product.row_step +
                   depths.begin * product.depth_step;
      if constexpr (kCopied) {
        T* const copy = static_cast<T*>(product.copied_a);
        CopyBlock(a, product.depth_step, height, depths.size(), copy);
        a = copy;
      }
      const auto panel_at = [&](std::int64_t part, std::int64_t panel) {
        return static_cast<const T*>(product.b) +
               ((part * shape.panels() + panel) * shape.depth + depths.begin) * kColumns;
      };
      for (std::int64_t part = 0; part < shape.parts; ++part)
        for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
          const std::int64_t column = panel * kColumns;
          const T* const next = panel + 1 < panels.end   ? panel_at(part, panel + 1)
                                : part + 1 < shape.parts ? panel_at(part + 1, panels.begin)
                                                         : panel_at(0, panels.end);
          const PanelTiles<T, kVecs, RowStep, DepthStep> tiles{
              a,
              row_step,
              DepthStep(),
              panel_at(part, panel),
              next,
              after,
              slice,
              static_cast<T*>(product.c) + block * product.c_step + part * product.part_step +
                  column,
              product.c_step,
              height,
              depths.size(),
              shape.columns - column,
              product.add || chunk > chunks.begin};
          after += slice;
          // Even tiles: one of a few rows would wait for its B.
          ForEachEvenRowTile<TileRowsOf(kVecs)>(
              height, [&](auto n, std::int64_t row) HWY_ATTR { tiles.template Run<n.value>(row); });
        }
    }
  }
}

template <class T, int kVecs>
void MultiplyVectors(const PanelShape& shape, const PanelProduct& product, Range rows, Range panels,
                     Range chunks) {
  if (product.depth_step == 1)
    MultiplyTiles<T, kVecs, false>(shape, product, rows, panels, chunks);
  else
    MultiplyTiles<T, kVecs, true>(shape, product, rows, panels, chunks);
}

void Multiply(const PanelShape& shape, const PanelProduct& product, Range rows, Range panels,
              Range chunks) {
  with_type(shape.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (shape.vectors == 8)
      MultiplyVectors<T, 8>(shape, product, rows, panels, chunks);
    else if (shape.vectors == 4)
      MultiplyVectors<T, 4>(shape, product, rows, panels, chunks);
    else
      MultiplyVectors<T, 2>(shape, product, rows, panels, chunks);
  });
}

// A panel's columns are neighbours in the source.
template <class T>
void PackRows(const T* from, std::int64_t depth_step, std::int64_t columns,
              std::int64_t panel_columns, std::int64_t depths, T* to) {
  for (std::int64_t d = 0; d < depths; ++d, from += depth_step, to += panel_columns) {
    ForEachVector<T>(
        columns, [&](auto at, std::int64_t i) HWY_ATTR { at.Store(at.Load(from + i), to + i); });
    std::fill(to + columns, to + panel_columns, T(0));
  }
}

// A panel's depths are neighbours in the source: squares of it are transposed.
template <class T>
void PackColumns(const T* from, std::int64_t column_step, std::int64_t columns,
                 std::int64_t panel_columns, std::int64_t depths, T* to) {
  constexpr std::int64_t kSide = kTileColsOf<T>;
  alignas(64) T square[kSide * (kSide + kSquare<T>)];
  for (std::int64_t d = 0; d < depths; d += kSide)
    for (std::int64_t column = 0; column < panel_columns; column += kSide) {
      const std::int64_t width = std::clamp<std::int64_t>(columns - column, 0, kSide);
      const std::int64_t height = std::min(kSide, depths - d);
      if (width > 0)
        TransposeRows(from + column * column_step + d, column_step, width, height, square);
      const std::int64_t stored = std::min(kSide, panel_columns - column);
      for (std::int64_t i = 0; i < height; ++i) {
        T* const row = to + (d + i) * panel_columns + column;
        std::copy_n(square + i * kSide, width, row);
        std::fill(row + width, row + stored, T(0));
      }
    }
}

void Pack(const PanelShape& shape, const PanelSource& source, Range panels, Range depths,
          void* to) {
  with_type(shape.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t part = 0; part < shape.parts; ++part)
      for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const std::int64_t column = panel * shape.panel_columns;
        const std::int64_t columns = std::min(shape.panel_columns, shape.columns - column);
        const T* const from = static_cast<const T*>(source.data) + part * source.part_step +
                              column * source.column_step;
        T* const at =
            static_cast<T*>(to) +
            ((part * shape.panels() + panel) * shape.depth + depths.begin) * shape.panel_columns;
        if (source.column_step == 1)
          PackRows(from, source.depth_step, columns, shape.panel_columns, depths.size(), at);
        else
          PackColumns(from, source.column_step, columns, shape.panel_columns, depths.size(), at);
      }
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(MostRows);
HWY_EXPORT(Multiply);
HWY_EXPORT(Pack);

Range PanelShape::columns_of(Range panels) const {
  return {std::min(columns, panels.begin * panel_columns),
          std::min(columns, panels.end * panel_columns)};
}

PanelShape panel_shape(DType dtype, std::int64_t rows, std::int64_t depth, std::int64_t columns,
                       std::int64_t parts, std::int64_t threads, std::int64_t widest) {
  PanelShape best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t vectors = widest; vectors >= 2; vectors /= 2) {
    const std::int64_t most = HWY_DYNAMIC_DISPATCH(MostRows)(vectors);
    if (rows > most && vectors > 2) continue;
    PanelShape shape{dtype, depth, columns, parts, vectors, vectors * tile_shape(dtype).lanes};
    // Of the slowest thread. A tile of a few accumulators takes as long as one of five: less than
    // that, it waits for its multiply-adds longer than for B.
    const std::int64_t cost = ceil_div(shape.panels(), threads) *
                              std::max<std::int64_t>(5, std::min(rows, most) * vectors);
    if (cost < least) {
      least = cost;
      best = shape;
    }
  }
  return best;
}

void pack_panels(const PanelShape& shape, const PanelSource& source, Range panels, Range depths,
                 void* to) {
  HWY_DYNAMIC_DISPATCH(Pack)(shape, source, panels, depths, to);
}

void multiply_panels(const PanelShape& shape, const PanelProduct& product, Range rows, Range panels,
                     Range chunks) {
  if (rows.size() > 0 && panels.size() > 0)
    HWY_DYNAMIC_DISPATCH(Multiply)(shape, product, rows, panels, chunks);
}

void multiply_panels(const PanelShape& shape, const PanelProduct& product, Range rows,
                     Range panels) {
  multiply_panels(shape, product, rows, panels, {0, shape.chunks()});
}

void multiply_share(const PanelShape& shape, const PanelProduct& product, std::int64_t rows,
                    std::int64_t thread, std::int64_t threads) {
  if (shape.panels() >= threads)
    multiply_panels(shape, product, {0, rows}, share(shape.panels(), thread, threads));
  else
    multiply_panels(shape, product, share(rows, thread, threads), {0, shape.panels()});
}

}  // namespace convlab::cpu
#endif
