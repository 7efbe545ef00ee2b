#include "conv/math/fft_tile_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "conv/error.h"
#include "conv/refusals.h"

namespace convlab {

std::optional<Refusal> refuse_tiled_fft(const ConvProblem& p, std::int64_t largest_tile) {
  if (auto refusal = refuse_all_but({DType::f32}, p)) return refusal;
  if (auto refusal = refuse_all_but_dense(p)) return refusal;
  const std::int64_t most = largest_filter(largest_tile);
  if (std::max(p.r, p.s) > most)
    return Refusal{Field::filter, fmt::format("a filter of at most {0}x{0}", most),
                   extent(p.r, p.s)};
  return {};
}

void check_fft_tile(const ConvProblem& p, std::int64_t tile, std::span<const std::int64_t> sides) {
  std::vector<std::int64_t> fit;
  for (const std::int64_t side : sides)
    if (std::max(p.r, p.s) <= largest_filter(side)) fit.push_back(side);
  if (std::find(fit.begin(), fit.end(), tile) == fit.end())
    throw InputError(fmt::format("fft_tiled: tile={}: expected one of {} for a filter of {}x{}",
                                 tile, fmt::join(fit, ", "), p.r, p.s));
}

double transform_flops(double n) {
  if (n == 1) return 0;
  if (n == 5) return 52;
  const double plain = std::fmod(n, 4) == 0 ? 2 : 1;
  return 2 * transform_flops(n / 2) + 4 * plain + 12 * (n / 2 - plain);
}

}  // namespace convlab
