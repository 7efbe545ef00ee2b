// Texts that come from outside, fit for a terminal or a shell.
#pragma once

#include <string>
#include <string_view>

namespace convlab {

// With `?` in place of control characters, which a terminal would obey; lines stay lines.
std::string printable(std::string_view);

// One word as a shell takes it, on one line: quoted where that is needed, $'...' for bytes that
// are no printable text.
std::string shell_word(std::string_view);

}  // namespace convlab
