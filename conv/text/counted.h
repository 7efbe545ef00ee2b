// Numbers of things in messages.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace convlab {

// "1 thread", "2 threads"; with a plural of its own "1 pass", "2 passes".
inline std::string counted(std::integral auto n, std::string_view one, std::string_view many = {}) {
  if (n == 1) return fmt::format("{} {}", n, one);
  return many.empty() ? fmt::format("{} {}s", n, one) : fmt::format("{} {}", n, many);
}

}  // namespace convlab
