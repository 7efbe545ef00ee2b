#include "conv/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "conv/error.h"

namespace convlab {
namespace {

bool is_choice(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  return !text.empty() && is_letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::optional<ConfigValue> parse_value(std::string_view text) {
  if (is_choice(text)) return std::string(text);
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed_to, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || parsed_to != end || error != std::errc{}) return {};
  return number;
}

}  // namespace

Config Config::parse(std::string_view text) {
  Config config;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t equals = item.find('=');
    const bool has_name = equals != 0 && equals != std::string_view::npos;
    const std::optional<ConfigValue> value =
        has_name ? parse_value(item.substr(equals + 1)) : std::nullopt;
    if (!value)
      throw InputError(fmt::format(
          "malformed config '{}': '{}': expected name=value, as in tile=4,schedule=shared", text,
          item));
    if (config.has(item.substr(0, equals)))
      throw InputError(
          fmt::format("malformed config '{}': '{}' stands twice", text, item.substr(0, equals)));
    config.set(std::string(item.substr(0, equals)), *value);
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
    if (rest.empty()) throw InputError(fmt::format("malformed config '{}': ends in a comma", text));
  }
  if (const std::string canonical = config.text(); canonical != text)
    throw InputError(fmt::format("malformed config '{}': expected '{}'", text, canonical));
  return config;
}

std::string Config::text() const {
  std::string text;
  for (const auto& [name, value] : values_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name,
                        std::visit([](const auto& v) { return fmt::format("{}", v); }, value));
  return text;
}

const ConfigValue* Config::find(std::string_view name) const {
  for (const auto& [n, value] : values_)
    if (n == name) return &value;
  return nullptr;
}

bool Config::has(std::string_view name) const { return find(name) != nullptr; }

std::int64_t Config::get(std::string_view name) const {
  const ConfigValue* const value = find(name);
  if (!value) throw InputError(fmt::format("config '{}' has no '{}'", text(), name));
  if (const auto* const number = std::get_if<std::int64_t>(value)) return *number;
  throw InputError(fmt::format("config '{}': {}: expected a number", text(), name));
}

const std::string& Config::choice(std::string_view name) const {
  const ConfigValue* const value = find(name);
  if (!value) throw InputError(fmt::format("config '{}' has no '{}'", text(), name));
  if (const auto* const choice = std::get_if<std::string>(value)) return *choice;
  throw InputError(fmt::format("config '{}': {}: expected a name, not a number", text(), name));
}

void Config::require_only(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : values_) {
    if (std::ranges::find(names, name) != names.end()) continue;
    const std::string expected =
        names.size() == 0 ? "none" : fmt::format("one of {}", fmt::join(names, ", "));
    throw InputError(
        fmt::format("config '{}': unknown name '{}': expected {}", text(), name, expected));
  }
}

void Config::set(std::string name, ConfigValue value) {
  if (name.empty() || name.find_first_of("=,") != std::string::npos)
    throw InputError(fmt::format("config: '{}' is no name: expected one without = and ,", name));
  if (const auto* const choice = std::get_if<std::string>(&value); choice && !is_choice(*choice))
    throw InputError(
        fmt::format("config: {}: '{}': expected letters, digits and _", name, *choice));
  for (auto& [n, v] : values_)
    if (n == name) {
      v = std::move(value);
      return;
    }
  values_.emplace_back(std::move(name), std::move(value));
}

}  // namespace convlab
