// The tunable choices of one algorithm.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "conv/text/names.h"

namespace convlab {

// An integer, or one of several names: letters, digits and _, no digit first.
using ConfigValue = std::variant<std::int64_t, std::string>;

// Ordered name=value pairs; prints as "tile=4,schedule=shared", empty as "". Round-trips through
// text, which is how the store and the tables hold it.
class Config {
 public:
  Config() = default;
  Config(std::initializer_list<std::pair<std::string, ConfigValue>> values) : values_(values) {}

  // Throws InputError for text that no config prints, as "tile=02".
  static Config parse(std::string_view text);
  std::string text() const;

  bool has(std::string_view name) const;
  // Throw InputError when it is absent or of the other kind.
  std::int64_t get(std::string_view name) const;
  const std::string& choice(std::string_view name) const;
  // The same as an enumerator whose values are positions in `names`; InputError lists the names.
  template <class Enum, std::size_t N>
  Enum choice(std::string_view name, const std::array<std::string_view, N>& names) const {
    return Enum(index_of_name(name, choice(name), names));
  }
  // Throws InputError for any other name, listing `names`: an algorithm refuses a config that it
  // does not know rather than ignoring a part of it.
  void require_only(std::initializer_list<std::string_view> names) const;
  void set(std::string name, ConfigValue value);
  const auto& values() const { return values_; }

  friend bool operator==(const Config&, const Config&) = default;

 private:
  const ConfigValue* find(std::string_view name) const;  // null when absent
  std::vector<std::pair<std::string, ConfigValue>> values_;
};

}  // namespace convlab
