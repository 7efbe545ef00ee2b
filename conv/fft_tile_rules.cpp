#include "conv/fft_tile_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/refusals.h"

namespace convlab {

std::optional<Refusal> refuse_tiled_fft(const ConvProblem& p) {
  if (p.dtype != DType::f32) return Refusal{fmt::format("needs f32, has {}", to_string(p.dtype))};
  if (auto refusal = refuse_all_but_dense(p)) return refusal;
  if (std::max(p.r, p.s) > largest_filter(32))
    return Refusal{fmt::format("needs a filter of at most {0}x{0}, has {1}x{2}", largest_filter(32),
                               p.r, p.s)};
  return {};
}

void check_fft_tile(const ConvProblem& p, std::int64_t tile) {
  if ((tile != 16 && tile != 32) || std::max(p.r, p.s) > largest_filter(tile))
    throw InputError(fmt::format("fft_tiled: tile={}: expected 16 for filters up to {}x{}, or 32",
                                 tile, largest_filter(16), largest_filter(16)));
}

double transform_flops(double n) {
  return n == 1 ? 0 : 2 * transform_flops(n / 2) + (n == 2 ? 4 : 8 + 12 * (n / 2 - 2));
}

}  // namespace convlab
