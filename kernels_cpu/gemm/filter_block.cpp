#include "kernels_cpu/gemm/filter_block.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/gemm/filter_block.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/simd/transpose_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Calls put(i, column, v) for kSquare<T> elements i of each column; columns lie column_step
// elements apart, and v is a vector of elements i from that column on.
template <class T, class Put>
HWY_INLINE void ForSquares(const T* from, std::int64_t column_step, std::int64_t columns,
                           const Put& put) {
  for (std::int64_t column = 0; column < columns; column += kLanesOf<T>)
    TransposeSquares(
        TagOf<T>(),
        [&](std::int64_t i) HWY_ATTR {
          return LoadBlocks<kSquare<T>>(TagOf<T>(), WholeSums<T>{from}, (column + i) * column_step,
                                        kSquare<T> * column_step);
        },
        [&](int i, auto v) HWY_ATTR { put(i, column, v); });
}

// backward_data: a channel's taps lie side by side, and so do its columns. For whole vectors of
// columns and at least as many taps as a square has. One square's taps of all channels are packed
// at a time; their lines stay in L1 until the next ones.
template <class T>
void PackSideBySide(const FilterViewOf<T>& filter, const FilterBlock& block, const T* from,
                    std::int64_t columns, const std::vector<std::int64_t>& tap_of,
                    std::int64_t tap_step, T* to) {
  constexpr std::int64_t side = kSquare<T>;
  const auto elements = std::int64_t(tap_of.size());
  for (std::int64_t done = 0; done < elements; done += side) {
    const std::int64_t first = std::min(done, elements - side);  // may overlap those before
    T* place[side];
    for (std::int64_t i = 0; i < side; ++i) {
      const std::int64_t tap = first + i < done ? -1 : tap_of[std::size_t(first + i)];
      place[i] = tap < 0 ? nullptr : to + tap * tap_step;
    }
    for (std::int64_t channel = 0; channel < block.channels; ++channel) {
      const T* const row = from + channel * filter.in_step;
      if (done == 0)  // two channels ahead, too far apart for the hardware prefetcher
        for (std::int64_t i = 0; i < columns * elements; i += kLineOf<T>)
          hwy::Prefetch(row + 2 * filter.in_step + i);
      const std::int64_t at = channel * block.packed_columns;
      ForSquares(row + first, elements, columns, [&](int i, std::int64_t column, auto v) HWY_ATTR {
        if (place[i]) hn::StoreU(v, TagOf<T>(), place[i] + at + column);
      });
    }
  }
}

// `stored` columns of a block from `first_column` on, at most kTileColsOf<T>.
template <class T>
void PackColumns(const FilterViewOf<T>& filter, const FilterBlock& block, std::int64_t first_column,
                 std::int64_t stored, const std::vector<std::int64_t>& tap_of,
                 std::int64_t tap_step, T* to) {
  constexpr std::int64_t lanes_of_vector = kLanesOf<T>, cols = kTileColsOf<T>, side = kSquare<T>;
  const auto elements = std::int64_t(tap_of.size()), fours = block.packed_columns / 4;
  const std::int64_t columns = std::min(stored, block.columns - first_column);
  const T* const from = filter.at(block.in, block.out + first_column);
  const bool side_by_side = filter.in_step != elements && filter.out_step == elements;
  if (side_by_side && elements >= side && columns == stored && !block.in_fours)
    return PackSideBySide(filter, block, from, columns, tap_of, tap_step, to + first_column);

  const auto place_of = [&](std::int64_t element, std::int64_t channel) -> T* {
    const std::int64_t tap = tap_of[std::size_t(element)];
    const std::int64_t at =
        block.in_fours ? quad_at(fours, channel, 0) : channel * block.packed_columns + first_column;
    return tap < 0 ? nullptr : to + tap * tap_step + at;
  };
  const auto put = [&](T* place, std::int64_t column, auto v) HWY_ATTR {
    if (!place) return;
    if (!block.in_fours) return hn::StoreU(v, TagOf<T>(), place + column);
    alignas(64) T lanes[lanes_of_vector];
    hn::Store(v, TagOf<T>(), lanes);
    for (std::int64_t i = 0; i < std::min(lanes_of_vector, stored - column); ++i)
      place[quad_at(fours, 0, column + i)] = lanes[i];
  };
  if (filter.out_step == 1) {  // columns lie side by side
    for (std::int64_t channel = 0; channel < block.channels; ++channel) {
      T* const place = place_of(0, channel);
      for (std::int64_t column = 0; column < stored; column += lanes_of_vector) {
        const T* const at = from + channel * filter.in_step + column;
        const std::int64_t there = std::max<std::int64_t>(columns - column, 0);
        put(place, column,
            there >= lanes_of_vector ? hn::LoadU(TagOf<T>(), at)
                                     : FirstLanes{std::size_t(there)}.Load(at));
      }
    }
    return;
  }
  alignas(64) T square[cols * cols] = {};
  // A column's channels and taps lie side by side, or the taps of one channel.
  const std::int64_t run = side_by_side ? 1 : block.channels;
  for (std::int64_t first = 0; first < block.channels; first += run) {
    std::int64_t channel = first, element = 0;
    for (std::int64_t i = 0; i < run * elements; i += cols) {
      const std::int64_t held = std::min(cols, run * elements - i);
      HoldRows(from + first * filter.in_step + i, filter.out_step, columns, held, square);
      for (std::int64_t j = 0; j < held; j += side) {
        T* places[side] = {};
        for (std::int64_t k = 0; k < std::min(side, held - j); ++k) {
          places[k] = place_of(element, channel);
          if (++element == elements) element = 0, ++channel;
        }
        ForSquares(square + j, cols, stored,
                   [&](int k, std::int64_t column, auto v) HWY_ATTR { put(places[k], column, v); });
      }
    }
  }
}

template <class T>
void PackBlock(const FilterViewOf<T>& filter, const FilterBlock& block,
               const std::vector<std::int64_t>& tap_of, std::int64_t tap_step, T* to) {
  const std::int64_t cols = block.packed_columns;
  const std::int64_t whole = block.in_fours ? block.channels / 4 * 4 : block.channels;
  if (const std::int64_t missing = block.packed_channels - whole; missing > 0)
    for (const std::int64_t tap : tap_of)
      if (tap >= 0) std::fill_n(to + tap * tap_step + whole * cols, missing * cols, T(0));
  constexpr std::int64_t at_once = kTileColsOf<T>;
  for (std::int64_t first = 0; first < cols; first += at_once)
    PackColumns(filter, block, first, std::min(at_once, cols - first), tap_of, tap_step, to);
}

void PackBlockF32(const FilterViewOf<float>& filter, const FilterBlock& block,
                  const std::vector<std::int64_t>& tap_of, std::int64_t tap_step, float* to) {
  PackBlock(filter, block, tap_of, tap_step, to);
}
void PackBlockF64(const FilterViewOf<double>& filter, const FilterBlock& block,
                  const std::vector<std::int64_t>& tap_of, std::int64_t tap_step, double* to) {
  PackBlock(filter, block, tap_of, tap_step, to);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(PackBlockF32);
HWY_EXPORT(PackBlockF64);

std::vector<std::int64_t> tap_of_element(const PixelGrid& grid, std::int64_t elements) {
  std::vector<std::int64_t> tap_of(std::size_t(elements), -1);
  for (std::size_t tap = 0; tap < grid.taps.size(); ++tap)
    tap_of[std::size_t(grid.taps[tap].rs)] = std::int64_t(tap);
  return tap_of;
}

void pack_block(const FilterViewOf<float>& filter, const FilterBlock& block,
                const std::vector<std::int64_t>& tap_of, std::int64_t tap_step, float* to) {
  HWY_DYNAMIC_DISPATCH(PackBlockF32)(filter, block, tap_of, tap_step, to);
}
void pack_block(const FilterViewOf<double>& filter, const FilterBlock& block,
                const std::vector<std::int64_t>& tap_of, std::int64_t tap_step, double* to) {
  HWY_DYNAMIC_DISPATCH(PackBlockF64)(filter, block, tap_of, tap_step, to);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
