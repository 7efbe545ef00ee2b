// Text that comes from outside (names in files, paths, arguments), before it is shown or kept.
#pragma once

#include <string>
#include <string_view>

namespace convlab {

// Well-formed UTF-8.
bool is_utf8(std::string_view);
// Well-formed UTF-8 without control characters, so that it stays on its line.
bool is_plain(std::string_view);

// The text with every byte that is not plain as \xHH: a terminal obeys none of it.
std::string printable(std::string_view);
// The same line by line.
std::string printable_lines(std::string_view);

}  // namespace convlab
