// Names that describe a net by numbers: "mlp:20-256x5-1:relu".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convlab::nets {

inline constexpr std::int64_t largest_width = 1 << 20, largest_repeat = 1 << 10;

// PREFIX PART-PART-...[:WORD]. A part is a width, perhaps with a repeat: "256x5".
class DescribedName {
 public:
  struct Part {
    std::string_view text;
    std::int64_t width = 1;
    std::int64_t repeat = 0;  // 0: none is given
  };

  // The name and the example outlive it. Throws InputError for a name that does not have this form.
  DescribedName(std::string_view name, std::string_view prefix, std::string_view example);

  const std::vector<Part>& parts() const { return parts_; }
  std::string_view word() const { return word_; }  // behind the next colon; may be empty
  bool has_word() const { return has_word_; }
  // Throws InputError: "malformed net NAME: WHY; expected something like EXAMPLE".
  [[noreturn]] void fail(const std::string& why) const;

 private:
  std::int64_t number(std::string_view text, std::int64_t largest) const;

  std::string_view name_, example_, word_;
  bool has_word_ = false;
  std::vector<Part> parts_;
};

}  // namespace convlab::nets
