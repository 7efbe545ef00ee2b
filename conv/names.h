// Parsing of closed sets of names, for every enum that has a text form.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string_view>

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

}  // namespace convlab
