// Reads the text of a problem from left to right: fields, each a name and a whole number, and at
// the end perhaps a layer's name. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace convlab {

std::string_view trim(std::string_view);

// The name of a problem in a net, and how often the layer occurs there.
struct LayerName {
  std::string name;
  std::int64_t count = 1;
};
// `n"name*count"`; empty for an empty name that occurs once.
std::string to_text(const LayerName&);

class ProblemReader {
 public:
  static constexpr std::int64_t largest_number = std::int64_t{1} << 60;

  // The text outlives the reader.
  explicit ProblemReader(std::string_view text) : text_(trim(text)) {}

  std::string_view text() const { return text_; }
  std::size_t position() const { return position_; }
  bool at_end() const { return position_ == text_.size(); }
  std::string_view rest() const { return text_.substr(position_); }
  void skip(std::size_t characters) { position_ += characters; }

  // A whole number of at least `minimum`.
  std::int64_t number(std::string_view what, std::int64_t minimum) {
    return number(what, minimum, text_.size());
  }
  // n, then the name to the end of the text, perhaps in quotes, perhaps ending in *count.
  LayerName layer_name();

  // Throws InputError that quotes the text near a position, and says which it is.
  [[noreturn]] void fail(std::size_t at, const std::string& message) const;
  // For a field that is missing. Points out a name that begins with a number: it may have been
  // meant as fields, with n for the batch.
  [[noreturn]] void fail_missing(const std::string& message) const;

 private:
  std::int64_t number(std::string_view what, std::int64_t minimum, std::size_t end);

  std::string_view text_;
  std::size_t position_ = 0;
  std::string_view name_;  // with its n
};

}  // namespace convlab
