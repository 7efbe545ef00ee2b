#include "nets/distributed/strategy.h"

#include <array>

#include "conv/text/names.h"

namespace convlab::nets {
namespace {

constexpr std::array<std::string_view, 3> strategy_names{"overlapped", "after", "server"};

}  // namespace

std::string_view to_string(Strategy strategy) { return strategy_names[std::size_t(strategy)]; }

Strategy parse_strategy(std::string_view text) {
  return Strategy(index_of_name("exchange", text, strategy_names));
}

}  // namespace convlab::nets
