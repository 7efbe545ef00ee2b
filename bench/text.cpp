#include "bench/text.h"

#include <fmt/format.h>

namespace convlab {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    // U+0080 to U+009F are controls too, in two bytes.
    const bool two_bytes = text[i] == '\xC2' && i + 1 < text.size() &&
                           static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                           static_cast<unsigned char>(text[i + 1]) < 0xA0;
    result += two_bytes || (is_control(text[i]) && text[i] != '\n') ? '?' : text[i];
    i += two_bytes;
  }
  return result;
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=,.:/@+%";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return std::string(word);
  if (printable(word) == word && word.find_first_of("'\n") == word.npos)
    return fmt::format("'{}'", word);
  std::string text = "$'";
  for (const char c : word)
    if (c == '\'' || c == '\\')
      text += fmt::format("\\{}", c);
    else if (is_control(c))
      text += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    else
      text += c;
  return text + "'";
}

}  // namespace convlab
