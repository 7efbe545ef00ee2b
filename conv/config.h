// The tunable choices of one algorithm, as text and as numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace convlab {

// Ordered name=integer pairs; prints as "tile=4,rows=14", empty as "". Round-trips through text,
// which is how the store and the tables hold it.
class Config {
 public:
  Config() = default;
  Config(std::initializer_list<std::pair<std::string, std::int64_t>> values) : values_(values) {}

  static Config parse(std::string_view text);  // throws InputError
  std::string text() const;

  bool has(std::string_view name) const;
  std::int64_t get(std::string_view name) const;  // throws InputError when absent
  void set(std::string name, std::int64_t value);
  const auto& values() const { return values_; }

  friend bool operator==(const Config&, const Config&) = default;

 private:
  std::vector<std::pair<std::string, std::int64_t>> values_;
};

}  // namespace convlab
