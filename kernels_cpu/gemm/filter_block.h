// Packs a filter from KCRS for the products over blocked activations. Internal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "conv/problem.h"
#include "kernels_cpu/gemm/pixel_grid.h"

namespace convlab::cpu {

// The filter of one group, from the pass's input to its output (in backward_data from y to x):
// steps between neighbouring channels, in elements. Taps lie side by side.
template <class T>
struct FilterViewOf {
  const T* w = nullptr;
  std::int64_t in_step = 0, out_step = 0;

  FilterViewOf(const ConvProblem& p, const void* filter, std::int64_t group = 0) {
    const std::int64_t taps = p.r * p.s, of_k = p.c / p.groups * taps;
    const bool data = p.pass == Pass::backward_data;
    w = static_cast<const T*>(filter) + group * (p.k / p.groups) * of_k;
    in_step = data ? of_k : taps;
    out_step = data ? taps : of_k;
  }
  const T* at(std::int64_t in, std::int64_t out) const { return w + in * in_step + out * out_step; }
};
using FilterView = FilterViewOf<float>;

// For each element of an r x s filter, which of the grid's taps it is; negative if none.
std::vector<std::int64_t> tap_of_element(const PixelGrid&, std::int64_t elements);

// A channel block of the input and a panel's columns of the output, from (in, out) on: how many of
// them exist, and how many are packed.
struct FilterBlock {
  std::int64_t in = 0, out = 0;
  std::int64_t channels = 0, columns = 0;
  std::int64_t packed_channels = 0, packed_columns = 0;
  bool in_fours = false;  // of columns, as QuadTile reads them: f32, at most 32
};

// to[tap * tap_step + channel * packed_columns + column], or in fours quad_at(...) in place of the
// latter two; zero where there is no channel or column.
void pack_block(const FilterViewOf<float>&, const FilterBlock&,
                const std::vector<std::int64_t>& tap_of, std::int64_t tap_step, float* to);
void pack_block(const FilterViewOf<double>&, const FilterBlock&,
                const std::vector<std::int64_t>& tap_of, std::int64_t tap_step, double* to);

// The position of a step of a column in B for QuadTile, with 4 * fours columns: [step / 4], and
// within that vectors [column % fours][column / fours][step % 4], so that a row's sums end up
// nearly in their order. With six fours, the first four are stored so, and then the other two.
constexpr std::int64_t quad_at(std::int64_t fours, std::int64_t step, std::int64_t column) {
  const std::int64_t before = column < 16 ? 0 : 4;
  const std::int64_t part = before > 0 ? fours - before : std::min<std::int64_t>(fours, 4);
  column -= 4 * before;
  return (step / 4 * fours + before + column % part) * 16 + column / part * 4 + step % 4;
}

}  // namespace convlab::cpu
