#include "nets/zoo/described_name.h"

#include <fmt/format.h>

#include <charconv>

#include "conv/error.h"

namespace convlab::nets {

DescribedName::DescribedName(std::string_view name, std::string_view prefix,
                             std::string_view example)
    : name_(name), example_(example) {
  if (!name.starts_with(prefix)) fail(fmt::format("it does not begin with {}", prefix));
  std::string_view rest = name.substr(prefix.size());
  if (const std::size_t colon = rest.find(':'); colon != rest.npos) {
    has_word_ = true;
    word_ = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
  }
  for (bool last = false; !last;) {
    const std::size_t dash = rest.find('-');
    last = dash == rest.npos;
    Part part{rest.substr(0, dash)};
    const std::size_t times = part.text.find('x');
    part.width = number(part.text.substr(0, times), largest_width);
    if (times != part.text.npos) part.repeat = number(part.text.substr(times + 1), largest_repeat);
    parts_.push_back(part);
    if (!last) rest = rest.substr(dash + 1);
  }
}

void DescribedName::fail(const std::string& why) const {
  throw InputError(
      fmt::format("malformed net '{}': {}; expected something like {}", name_, why, example_));
}

std::int64_t DescribedName::number(std::string_view text, std::int64_t largest) const {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > largest)
    fail(fmt::format("'{}' is not a whole number from 1 to {}", text, largest));
  return value;
}

}  // namespace convlab::nets
