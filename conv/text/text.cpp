#include "conv/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace convlab {
namespace {

struct Character {
  std::size_t bytes = 0;  // 0: not valid UTF-8
  char32_t code = 0;
};

// The first character: RFC 3629, without overlong forms, surrogates and codes beyond U+10FFFF.
Character first_character(std::string_view text) {
  const auto lead = static_cast<std::uint8_t>(text.front());
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  char32_t code = lead & (0xff >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<std::uint8_t>(text[i]);
    if ((next & 0xc0) != 0x80) return {};
    code = code << 6 | (next & 0x3f);
  }
  const bool overlong = code < (bytes == 4 ? 0x10000u : bytes == 3 ? 0x800u : 0x80u);
  if (overlong || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {bytes, code};
}

// C0, DEL, C1, and the two separators that also end a line.
bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = first_character(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

bool is_plain(std::string_view text) {
  while (!text.empty()) {
    const auto [bytes, code] = first_character(text);
    if (bytes == 0 || is_control(code)) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const auto [bytes, code] = first_character(text);
    const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    if (bytes == 0 || is_control(code))
      for (const char byte : character)
        shown += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(byte));
    else
      shown += character;
    text.remove_prefix(character.size());
  }
  return shown;
}

std::string printable_lines(std::string_view text) {
  std::string shown;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    shown += printable(text.substr(at, end - at));
    if (end < text.size()) shown += '\n';
    at = end + 1;
  }
  return shown;
}

}  // namespace convlab
