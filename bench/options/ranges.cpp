#include "bench/options/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "bench/options/flags.h"
#include "conv/error.h"

namespace convlab {

std::int64_t parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr std::int64_t most = std::int64_t{1} << 40;
  if (error != std::errc{} || stop != text.data() + text.size() || value < 1 || value > most)
    throw InputError(fmt::format("'{}': expected a whole number, 1 to {}", text, most));
  return value;
}

std::vector<std::int64_t> parse_range(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return {parse_count(text)};
  const std::size_t second = std::min(text.find(':', colon + 1), text.size());
  const std::int64_t low = parse_count(text.substr(0, colon)),
                     high = parse_count(text.substr(colon + 1, second - colon - 1));
  const std::string step = second < text.size() ? text.substr(second + 1) : "+1";
  const bool factor = step.starts_with('*');
  if (!factor && !step.starts_with('+'))
    throw InputError(fmt::format("'{}': expected LOW:HIGH:*FACTOR or LOW:HIGH:+STEP", text));
  const std::int64_t by = parse_count(step.substr(1));
  if (high < low)
    throw InputError(
        fmt::format("'{}': expected the lower value first, as in {}:{}", text, high, low));
  if (factor && by < 2) throw InputError(fmt::format("'{}': expected a FACTOR of 2 or more", text));
  std::vector<std::int64_t> values;
  for (std::int64_t v = low; v <= high; v = factor ? v * by : v + by) {
    values.push_back(v);
    if (values.size() > most_range_values)
      throw InputError(fmt::format(
          "'{}': more than {} values: expected a larger step, or a factor as in {}:{}:*2", text,
          most_range_values, low, high));
  }
  return values;
}

std::vector<std::int64_t> parse_ranges(const std::string& text) {
  std::vector<std::int64_t> values;
  for (const std::string& item : split_list(text))
    for (const std::int64_t value : parse_range(item)) {
      if (std::find(values.begin(), values.end(), value) != values.end())
        throw InputError(fmt::format("'{}' stands twice in '{}'", value, text));
      values.push_back(value);
    }
  return values;
}

}  // namespace convlab
