#include "kernels_cpu/filter_block.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/filter_block.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm_kernel-inl.h"
#include "kernels_cpu/transpose_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// `stored` columns of a block from `first` on, at most kTileCols.
void PackColumns(const FilterView& filter, const FilterBlock& block, std::int64_t first_column,
                 std::int64_t stored, const std::vector<std::int64_t>& tap_of,
                 std::int64_t tap_step, float* to) {
  const auto elements = std::int64_t(tap_of.size());
  const std::int64_t columns = std::min(stored, block.columns - first_column);
  const float* const from = filter.at(block.in, block.out + first_column);
  const auto put = [&](const float* row, std::int64_t tap, std::int64_t channel) HWY_ATTR {
    if (tap < 0) return;
    if (block.in_fours) {
      for (std::int64_t column = 0; column < stored; ++column)
        to[tap * tap_step + quad_at(block.packed_columns / 4, channel, column)] = row[column];
      return;
    }
    float* const place = to + tap * tap_step + channel * block.packed_columns + first_column;
    for (std::int64_t i = 0; i < stored; i += kLanes)
      hn::StoreU(hn::Load(F32(), row + i), F32(), place + i);
  };
  alignas(64) float rows[(kTileCols + 3) * kTileCols] = {};
  if (filter.out_step == 1) {  // columns lie side by side
    for (std::int64_t channel = 0; channel < block.channels; ++channel) {
      std::copy_n(from + channel * filter.in_step, columns, rows);
      put(rows, tap_of[0], channel);
    }
    return;
  }
  // A column's channels and taps lie side by side, or the taps of one channel.
  const std::int64_t run = filter.in_step == elements ? block.channels : 1;
  for (std::int64_t first = 0; first < block.channels; first += run) {
    // The next channel's, which the machine would not foresee.
    for (std::int64_t i = 0; run == 1 && i < columns * elements; i += 16)
      hwy::Prefetch(from + (first + 1) * filter.in_step + i);
    std::int64_t channel = first, element = 0;
    for (std::int64_t i = 0; i < run * elements; i += kTileCols) {
      const std::int64_t floats = std::min<std::int64_t>(kTileCols, run * elements - i);
      TransposeSquare(from + first * filter.in_step + i, filter.out_step, columns, floats, rows);
      for (std::int64_t j = 0; j < floats; ++j) {
        put(rows + j * kTileCols, tap_of[std::size_t(element)], channel);
        if (++element == elements) element = 0, ++channel;
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
