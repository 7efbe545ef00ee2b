#include "conv/text/names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace convlab {
namespace {

// Levenshtein's edit distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(
          row[j + 1], std::min({row[j + 1] + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)}));
  }
  return row[b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::size_t longest_sensible = 40;  // the distance is quadratic in the length
  std::string lower(name.substr(0, longest_sensible));
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  std::size_t best = std::max<std::size_t>(2, lower.size() / 3);
  std::vector<std::string> nearest;
  for (const std::string& candidate : known) {
    const std::size_t d = distance(lower, candidate);
    if (d < best) nearest.clear();
    if (d <= best) nearest.push_back(candidate);
    best = std::min(best, d);
  }
  return nearest.empty() ? fmt::format("expected one of {}", fmt::join(known, " "))
                         : fmt::format("did you mean {}?", fmt::join(nearest, " "));
}

}  // namespace convlab
