// Texts that come from outside, fit for a shell.
#pragma once

#include <string>
#include <string_view>

namespace convlab {

// One word as a shell takes it, on one line: quoted where that is needed, $'...' for bytes that
// are no printable text.
std::string shell_word(std::string_view);

}  // namespace convlab
