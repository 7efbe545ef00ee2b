#include "conv/config.h"

#include <fmt/format.h>

#include <charconv>

#include "conv/error.h"

namespace convlab {

Config Config::parse(std::string_view text) {
  Config config;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t equals = item.find('=');
    std::int64_t value = 0;
    const char* end = item.data() + item.size();
    const bool has_both =
        equals != 0 && equals != std::string_view::npos && equals + 1 < item.size();
    const auto [parsed_to, error] =
        std::from_chars(has_both ? item.data() + equals + 1 : end, end, value);
    if (!has_both || parsed_to != end || error != std::errc{})
      throw InputError(fmt::format("malformed config '{}': '{}' is not name=integer", text, item));
    if (config.has(item.substr(0, equals)))
      throw InputError(
          fmt::format("malformed config '{}': '{}' stands twice", text, item.substr(0, equals)));
    config.set(std::string(item.substr(0, equals)), value);
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
    if (rest.empty()) throw InputError(fmt::format("malformed config '{}': ends in a comma", text));
  }
  return config;
}

std::string Config::text() const {
  std::string text;
  for (const auto& [name, value] : values_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  return text;
}

bool Config::has(std::string_view name) const {
  for (const auto& [n, value] : values_)
    if (n == name) return true;
  return false;
}

std::int64_t Config::get(std::string_view name) const {
  for (const auto& [n, value] : values_)
    if (n == name) return value;
  throw InputError(fmt::format("config '{}' has no '{}'", text(), name));
}

void Config::set(std::string name, std::int64_t value) {
  if (name.empty() || name.find_first_of("=,") != std::string::npos)
    throw InputError(fmt::format("config: '{}' is no name: expected one without = and ,", name));
  for (auto& [n, v] : values_)
    if (n == name) {
      v = value;
      return;
    }
  values_.emplace_back(std::move(name), value);
}

}  // namespace convlab
