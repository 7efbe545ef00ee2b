// Closed sets of names: parsing every enum's text form, and suggestions for a typo.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "conv/error.h"

namespace convlab {

// The position of `text` in `names`. Throws InputError that lists them.
template <std::size_t N>
std::size_t index_of_name(std::string_view what, std::string_view text,
                          const std::array<std::string_view, N>& names) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == text) return i;
  throw InputError(
      fmt::format("unknown {} '{}': expected one of {}", what, text, fmt::join(names, ", ")));
}

// "did you mean X?" of the known names nearest to `name` by edit distance; "expected one of ..."
// when none is within 2, or a third of a longer name.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

}  // namespace convlab
