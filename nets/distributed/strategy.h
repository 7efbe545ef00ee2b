// When and how the gradients of synchronous SGD travel between workers.
#pragma once

#include <cstdint>
#include <string_view>

namespace convlab::nets {

enum class Strategy : std::uint8_t {
  overlapped,  // all-reduced while backward computes
  after,       // all-reduced after backward
  server,      // through one worker, while backward computes
};
inline constexpr Strategy all_strategies[] = {Strategy::overlapped, Strategy::after,
                                              Strategy::server};
std::string_view to_string(Strategy);
Strategy parse_strategy(std::string_view);  // throws InputError

}  // namespace convlab::nets
