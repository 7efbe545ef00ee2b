#include "conv/text/names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace convlab {
namespace {

// The edits that lead from one to the other: a character more, less or another, or two neighbours
// swapped (optimal string alignment, after Damerau 1964 and Levenshtein 1966).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(above, row);
  }
  return above[b.size()];
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
