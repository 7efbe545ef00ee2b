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

// Chunks of depth, so that the rows of A of a tile stay in L1; rows of A in a block that stays in
// L2 while all panels pass.
constexpr std::int64_t kDepthBytes = 3072, kBlockRows = 168;

std::int64_t MostRows(std::int64_t vectors) { return TileRowsOf(int(vectors)); }

template <class T, int kVecs, class RowStep, class DepthStep>
struct PanelTiles {
  static constexpr int kColumns = kVecs * kLanesOf<T>;
  const T* a;  // from the first row and depth of the product on
  RowStep row_step;
  DepthStep depth_step;
  const T* b;  // of the panel, from that depth on
  T* c;        // from the panel's first column on
  std::int64_t c_step, depths, columns;
  bool add;

  template <int kRows>
  HWY_INLINE void Run(std::int64_t row) const {
    TileOf<Elements<T>, kRows, kVecs> tile;
    tile.SetZero();
    tile.template MultiplyAdd<1>(PanelAOf<T>{a + row * row_step, row_step, depth_step},
                                 PanelBOf<T>{b, kColumns, kLanesOf<T>}, depths);
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

template <class T, int kVecs, class RowStep, class DepthStep>
void MultiplyTiles(const PanelShape& shape, const PanelProduct& product, RowStep row_step,
                   DepthStep depth_step, Range rows, Range panels) {
  constexpr int kColumns = kVecs * kLanesOf<T>;
  const std::int64_t chunks = ceil_div(shape.depth * std::int64_t{sizeof(T)}, kDepthBytes);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Range depths = share(shape.depth, chunk, chunks);
    for (std::int64_t block = rows.begin; block < rows.end; block += kBlockRows)
      for (std::int64_t part = 0; part < shape.parts; ++part)
        for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
          const std::int64_t column = panel * kColumns;
          const PanelTiles<T, kVecs, RowStep, DepthStep> tiles{
              static_cast<const T*>(product.a) + block * row_step + depths.begin * depth_step,
              row_step,
              depth_step,
              static_cast<const T*>(product.b) +
                  ((part * shape.panels() + panel) * shape.depth + depths.begin) * kColumns,
              static_cast<T*>(product.c) + block * product.c_step + part * product.part_step +
                  column,
              product.c_step,
              depths.size(),
              shape.columns - column,
              product.add || chunk > 0};
          // Even tiles: one of a few rows would wait for its B.
          ForEachEvenRowTile<TileRowsOf(kVecs)>(std::min(kBlockRows, rows.end - block),
                                                [&](auto n, std::int64_t row)
                                                    HWY_ATTR { tiles.template Run<n.value>(row); });
        }
  }
}

template <class T, int kVecs>
void MultiplyVectors(const PanelShape& shape, const PanelProduct& product, Range rows,
                     Range panels) {
  if (product.depth_step == 1)
    MultiplyTiles<T, kVecs>(shape, product, product.row_step, One(), rows, panels);
  else
    MultiplyTiles<T, kVecs>(shape, product, One(), product.depth_step, rows, panels);
}

void Multiply(const PanelShape& shape, const PanelProduct& product, Range rows, Range panels) {
  with_type(shape.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (shape.vectors == 8)
      MultiplyVectors<T, 8>(shape, product, rows, panels);
    else if (shape.vectors == 4)
      MultiplyVectors<T, 4>(shape, product, rows, panels);
    else
      MultiplyVectors<T, 2>(shape, product, rows, panels);
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

void multiply_panels(const PanelShape& shape, const PanelProduct& product, Range rows,
                     Range panels) {
  if (rows.size() > 0 && panels.size() > 0)
    HWY_DYNAMIC_DISPATCH(Multiply)(shape, product, rows, panels);
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
