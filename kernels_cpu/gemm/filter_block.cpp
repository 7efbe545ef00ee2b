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

// put(i, column, v) of four floats i of each column, column_step floats apart: v is their vector
// from that column on.
template <class Put>
HWY_INLINE void ForFourFloats(const float* from, std::int64_t column_step, std::int64_t columns,
                              const Put& put) {
  for (std::int64_t column = 0; column < columns; column += kLanes) {
    const auto load = [&](std::int64_t i) HWY_ATTR {
      return LoadFours(F32(), WholeSums{from}, (column + i) * column_step, 4 * column_step);
    };
    TransposeFours(F32(), load(0), load(1), load(2), load(3),
                   [&](int i, auto v) HWY_ATTR { put(i, column, v); });
  }
}

// Backwards: a channel's taps lie side by side, and so do its columns. Of whole vectors of columns
// and at least four taps: four of all channels at a time, whose lines L1 holds until the next four.
void PackSideBySide(const FilterView& filter, const FilterBlock& block, const float* from,
                    std::int64_t columns, const std::vector<std::int64_t>& tap_of,
                    std::int64_t tap_step, float* to) {
  const auto elements = std::int64_t(tap_of.size());
  for (std::int64_t done = 0; done < elements; done += 4) {
    const std::int64_t first = std::min(done, elements - 4);  // may meet the four before
    float* place[4];
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t tap = first + i < done ? -1 : tap_of[std::size_t(first + i)];
      place[i] = tap < 0 ? nullptr : to + tap * tap_step;
    }
    for (std::int64_t channel = 0; channel < block.channels; ++channel) {
      const float* const row = from + channel * filter.in_step;
      if (done == 0)  // two channels ahead, which the machine would not foresee
        for (std::int64_t i = 0; i < columns * elements; i += 16)
          hwy::Prefetch(row + 2 * filter.in_step + i);
      const std::int64_t at = channel * block.packed_columns;
      ForFourFloats(row + first, elements, columns,
                    [&](int i, std::int64_t column, auto v) HWY_ATTR {
                      if (place[i]) hn::StoreU(v, F32(), place[i] + at + column);
                    });
    }
  }
}

// `stored` columns of a block from `first_column` on, at most kTileCols.
void PackColumns(const FilterView& filter, const FilterBlock& block, std::int64_t first_column,
                 std::int64_t stored, const std::vector<std::int64_t>& tap_of,
                 std::int64_t tap_step, float* to) {
  const auto elements = std::int64_t(tap_of.size()), fours = block.packed_columns / 4;
  const std::int64_t columns = std::min(stored, block.columns - first_column);
  const float* const from = filter.at(block.in, block.out + first_column);
  const bool side_by_side = filter.in_step != elements && filter.out_step == elements;
  if (side_by_side && elements >= 4 && columns == stored && !block.in_fours)
    return PackSideBySide(filter, block, from, columns, tap_of, tap_step, to + first_column);

  const auto place_of = [&](std::int64_t element, std::int64_t channel) -> float* {
    const std::int64_t tap = tap_of[std::size_t(element)];
    const std::int64_t at =
        block.in_fours ? quad_at(fours, channel, 0) : channel * block.packed_columns + first_column;
    return tap < 0 ? nullptr : to + tap * tap_step + at;
  };
  const auto put = [&](float* place, std::int64_t column, auto v) HWY_ATTR {
    if (!place) return;
    if (!block.in_fours) return hn::StoreU(v, F32(), place + column);
    alignas(64) float lanes[kLanes];
    hn::Store(v, F32(), lanes);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(kLanes, stored - column); ++i)
      place[quad_at(fours, 0, column + i)] = lanes[i];
  };
  if (filter.out_step == 1) {  // columns lie side by side
    for (std::int64_t channel = 0; channel < block.channels; ++channel) {
      float* const place = place_of(0, channel);
      for (std::int64_t column = 0; column < stored; column += kLanes) {
        const float* const at = from + channel * filter.in_step + column;
        const std::int64_t there = std::max<std::int64_t>(columns - column, 0);
        put(place, column,
            there >= kLanes ? hn::LoadU(F32(), at) : FirstLanes{std::size_t(there)}.Load(at));
      }
    }
    return;
  }
  alignas(64) float square[kTileCols * kTileCols] = {};
  // A column's channels and taps lie side by side, or the taps of one channel.
  const std::int64_t run = side_by_side ? 1 : block.channels;
  for (std::int64_t first = 0; first < block.channels; first += run) {
    std::int64_t channel = first, element = 0;
    for (std::int64_t i = 0; i < run * elements; i += kTileCols) {
      const std::int64_t floats = std::min<std::int64_t>(kTileCols, run * elements - i);
      HoldRows(from + first * filter.in_step + i, filter.out_step, columns, floats, square);
      for (std::int64_t j = 0; j < floats; j += 4) {
        float* places[4] = {};
        for (std::int64_t k = 0; k < std::min<std::int64_t>(4, floats - j); ++k) {
          places[k] = place_of(element, channel);
          if (++element == elements) element = 0, ++channel;
        }
        ForFourFloats(square + j, kTileCols, stored,
                      [&](int k, std::int64_t column, auto v)
                          HWY_ATTR { put(places[k], column, v); });
      }
    }
  }
}

void PackBlock(const FilterView& filter, const FilterBlock& block,
               const std::vector<std::int64_t>& tap_of, std::int64_t tap_step, float* to) {
  const std::int64_t cols = block.packed_columns;
  const std::int64_t whole = block.in_fours ? block.channels / 4 * 4 : block.channels;
  if (const std::int64_t missing = block.packed_channels - whole; missing > 0)
    for (const std::int64_t tap : tap_of)
      if (tap >= 0) std::fill_n(to + tap * tap_step + whole * cols, missing * cols, 0.f);
  for (std::int64_t first = 0; first < cols; first += kTileCols)
    PackColumns(filter, block, first, std::min<std::int64_t>(kTileCols, cols - first), tap_of,
                tap_step, to);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(PackBlock);

FilterView::FilterView(const ConvProblem& p, const void* filter, std::int64_t group) {
  const std::int64_t taps = p.r * p.s, of_k = p.c / p.groups * taps;
  const bool data = p.pass == Pass::backward_data;
  w = static_cast<const float*>(filter) + group * (p.k / p.groups) * of_k;
  in_step = data ? of_k : taps;
  out_step = data ? taps : of_k;
}

std::vector<std::int64_t> tap_of_element(const PixelGrid& grid, std::int64_t elements) {
  std::vector<std::int64_t> tap_of(std::size_t(elements), -1);
  for (std::size_t tap = 0; tap < grid.taps.size(); ++tap)
    tap_of[std::size_t(grid.taps[tap].rs)] = std::int64_t(tap);
  return tap_of;
}

void pack_block(const FilterView& filter, const FilterBlock& block,
                const std::vector<std::int64_t>& tap_of, std::int64_t tap_step, float* to) {
  HWY_DYNAMIC_DISPATCH(PackBlock)(filter, block, tap_of, tap_step, to);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
