#include "bench/text.h"

#include <fmt/format.h>

#include <cstdlib>

#include "conv/text/text.h"

namespace convlab {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

}  // namespace

std::string shell_word(std::string_view word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=,.:/@+%";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return std::string(word);
  if (is_plain(word) && word.find('\'') == word.npos) return fmt::format("'{}'", word);
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

std::string set_variables(std::initializer_list<const char*> names) {
  std::string text;
  for (const char* const name : names)
    if (const char* const value = std::getenv(name); value && *value != '\0')
      text += fmt::format("{}={} ", name, shell_word(value));
  return text;
}

std::string variables_in_force() {
  return set_variables(
      {"CONVLAB_ISA", "CONVLAB_AMX", "CONVLAB_AVX512_BF16", "CONVLAB_MACHINE", "CONVLAB_TWIN"});
}

}  // namespace convlab
