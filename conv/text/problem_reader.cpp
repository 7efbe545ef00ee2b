#include "conv/text/problem_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/math/saturating.h"
#include "conv/text/text.h"

namespace convlab {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The position of the `*` in a trailing `*digits`, or npos.
std::size_t count_suffix(std::string_view name) {
  const std::size_t star = name.find_last_not_of("0123456789");
  return star != name.npos && name[star] == '*' && star + 1 < name.size() ? star : name.npos;
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view blank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(blank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) + 1 - begin);
}

std::string to_text(const LayerName& layer) {
  // A name that itself ends in *digits needs an explicit count.
  const bool counted = layer.count != 1 || count_suffix(layer.name) != std::string::npos;
  if (layer.name.empty() && !counted) return {};
  return fmt::format("n\"{}{}\"", layer.name, counted ? fmt::format("*{}", layer.count) : "");
}

std::int64_t ProblemReader::number(std::string_view what, std::int64_t minimum, std::size_t end) {
  const std::size_t start = position_;
  std::int64_t value = 0;
  for (; position_ < end && is_digit(text_[position_]); ++position_) {
    value = saturating_add(saturating_mul(value, 10), text_[position_] - '0');
    if (value > largest_number) fail(start, fmt::format("{} is more than 2^60", what));
  }
  if (position_ == start || value < minimum)
    fail(start, fmt::format("{} takes a whole number of at least {}", what, minimum));
  return value;
}

LayerName ProblemReader::layer_name() {
  name_ = rest();
  std::size_t begin = position_ + 1, end = text_.size();
  if (begin < end && text_[begin] == '"') {
    if (end - begin < 2 || text_[end - 1] != '"')
      fail(begin, "the name's quote is not closed at the end of the text");
    ++begin;
    --end;
  }
  LayerName layer;
  std::string_view name = text_.substr(begin, end - begin);
  if (const std::size_t quote = name.find('"'); quote != name.npos)
    fail(begin + quote, "a name holds no quotes");
  if (!is_plain(name)) fail(begin, "a name is UTF-8 without control characters");
  if (const std::size_t star = count_suffix(name); star != name.npos) {
    position_ = begin + star + 1;
    layer.count = number("the count after '*'", 1, end);
    name = name.substr(0, star);
  }
  layer.name = name;
  position_ = text_.size();
  return layer;
}

void ProblemReader::fail_missing(const std::string& message) const {
  const bool may_be_fields = name_.size() > 1 && is_digit(name_[1]);
  fail(
      text_.size(),
      message + (may_be_fields ? ": n begins the layer's name, which ends the text; the batch is mb"
                               : ""));
}

// Of a long text, shows only the part near the position.
void ProblemReader::fail(std::size_t at, const std::string& message) const {
  constexpr std::size_t before = 60, after = 30;
  const std::size_t begin = at > before ? at - before : 0;
  std::string shown(text_.substr(begin, before + after));
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return c < ' ' || c == 127; }, '?');
  throw InputError(fmt::format("malformed problem '{}{}{}' at character {}: {}",
                               begin > 0 ? "..." : "", shown,
                               begin + shown.size() < text_.size() ? "..." : "", at + 1, message));
}

}  // namespace convlab
