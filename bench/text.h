// Parts of shell commands.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace convlab {

// One shell word on one line, quoted if needed; $'...' for bytes that are not printable text.
std::string shell_word(std::string_view);

// Those of these variables that are set, to stand before a command: "NAME=value ".
std::string set_variables(std::initializer_list<const char*> names);
// Those that decide which code runs, and so the result.
std::string variables_in_force();

}  // namespace convlab
