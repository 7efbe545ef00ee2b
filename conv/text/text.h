// Text from outside (names in files, paths, arguments), checked before it is shown or stored.
#pragma once

#include <string>
#include <string_view>

namespace convlab {

// Well-formed UTF-8.
bool is_utf8(std::string_view);
// Well-formed UTF-8 without control characters, so that it stays on one line.
bool is_plain(std::string_view);

// The text with every byte that is not plain as \xHH, so that it cannot control a terminal.
std::string printable(std::string_view);
// The same line by line.
std::string printable_lines(std::string_view);

}  // namespace convlab
