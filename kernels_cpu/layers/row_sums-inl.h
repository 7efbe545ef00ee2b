// Sums for the elements of one row of an output, in the type of the arithmetic.
//
// Per-target header: include it after hwy/foreach_target.h.
#if defined(CONVLAB_KERNELS_CPU_LAYERS_ROW_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVLAB_KERNELS_CPU_LAYERS_ROW_SUMS_INL_H_
#undef CONVLAB_KERNELS_CPU_LAYERS_ROW_SUMS_INL_H_
#else
#define CONVLAB_KERNELS_CPU_LAYERS_ROW_SUMS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels_cpu/half/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Some columns of a row, and some lanes of each: all lanes, or one column.
struct RowPart {
  std::int64_t column, columns, lane, lanes;

  std::int64_t at(std::int64_t of_column, std::int64_t of_lane) const {
    return (of_column - column) * lanes + of_lane - lane;
  }
};

// f(sums, part) for all parts of a row; the sums start at zero. A row that is stored as it is
// computed is one part, and holds its sums. Those of a row of 16 bits are rounded once.
template <class S, class F>
HWY_INLINE void ForEachRowPart(S* row, std::int64_t columns, std::int64_t lanes, const F& f) {
  using T = Computed<S>;
  if constexpr (is_computed_as_stored<S>) {
    std::fill_n(row, columns * lanes, T(0));
    f(row, RowPart{0, columns, 0, lanes});
  } else {
    constexpr std::int64_t most = 2048;
    HWY_ALIGN T sums[most];
    const std::int64_t part_lanes = std::min(most, lanes), part_columns = most / part_lanes;
    for (std::int64_t column = 0; column < columns; column += part_columns)
      for (std::int64_t lane = 0; lane < lanes; lane += part_lanes) {
        const RowPart part{column, std::min(part_columns, columns - column), lane,
                           std::min(part_lanes, lanes - lane)};
        const std::int64_t count = part.columns * part.lanes;
        std::fill_n(sums, count, T(0));
        f(sums, part);
        S* const to = row + column * lanes + lane;
        ForEachStored<T>(
            count, [&](auto at, std::int64_t i) HWY_ATTR { at.Store(at.Load(sums + i), to + i); });
      }
  }
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
