// Quoting of text from outside for a shell.
#pragma once

#include <string>
#include <string_view>

namespace convlab {

// One shell word on one line, quoted if needed; $'...' for bytes that are not printable text.
std::string shell_word(std::string_view);

}  // namespace convlab
