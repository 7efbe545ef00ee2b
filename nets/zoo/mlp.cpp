#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "conv/error.h"
#include "nets/tensor.h"
#include "nets/zoo/zoo.h"

namespace convlab::nets {
namespace {

constexpr std::string_view prefix = "mlp:";
constexpr std::int64_t largest_width = 1 << 20, largest_depth = 1 << 10;

struct Description {
  std::vector<std::int64_t> widths;  // inputs, hidden layers, outputs
  Activation::Kind activation = Activation::Kind::tanh;
};

[[noreturn]] void fail(std::string_view name, const std::string& why) {
  throw InputError(
      fmt::format("malformed net '{}': {}; expected something like mlp:20-256x5-1", name, why));
}

std::int64_t parse_number(std::string_view name, std::string_view text, std::int64_t largest) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > largest)
    fail(name, fmt::format("'{}' is not a whole number from 1 to {}", text, largest));
  return value;
}

Description parse(std::string_view name) {
  Description result;
  std::string_view rest = name.substr(prefix.size());
  if (const std::size_t colon = rest.find(':'); colon != rest.npos) {
    const std::string_view word = rest.substr(colon + 1);
    if (word == "relu")
      result.activation = Activation::Kind::relu;
    else if (word == "sigmoid")
      result.activation = Activation::Kind::sigmoid;
    else if (word != "tanh")
      fail(name, fmt::format("'{}' is not tanh, relu or sigmoid", word));
    rest = rest.substr(0, colon);
  }
  int parts = 0;
  for (bool last = false; !last; ++parts) {
    const std::size_t dash = rest.find('-');
    last = dash == rest.npos;
    const std::string_view part = rest.substr(0, dash);
    const std::size_t times = part.find('x');
    const bool hidden = parts > 0 && !last;
    if (times != part.npos && !hidden)
      fail(name, fmt::format("'{}' repeats, but inputs and outputs stand once", part));
    const std::int64_t width = parse_number(name, part.substr(0, times), largest_width);
    const std::int64_t depth =
        times == part.npos ? 1 : parse_number(name, part.substr(times + 1), largest_depth);
    result.widths.insert(result.widths.end(), depth, width);
    if (static_cast<std::int64_t>(result.widths.size()) > largest_depth + 2)
      fail(name, fmt::format("it has more than {} hidden layers", largest_depth));
    if (!last) rest = rest.substr(dash + 1);
  }
  if (parts < 2) fail(name, "it has no outputs");
  return result;
}

}  // namespace

Graph mlp(std::string_view name, std::int64_t batch) {
  if (name.substr(0, prefix.size()) != prefix) fail(name, "it does not begin with mlp:");
  const Description description = parse(name);
  const auto& widths = description.widths;
  Graph net{std::string(name)};
  Tensor x = input(net, {batch, widths.front(), 1, 1});
  for (std::size_t i = 1; i < widths.size(); ++i) {
    x = x.linear(fmt::format("fc{}", i), widths[i]);
    if (i + 1 < widths.size())
      x = x.apply(fmt::format("act{}", i), Activation{description.activation});
  }
  return net;
}

}  // namespace convlab::nets
