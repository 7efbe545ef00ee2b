// JSON from outside the program. One line says what is wrong, where, and what would be right.
#pragma once

#include <string>

namespace convlab {

// Throws InputError, "NAME: line 3, column 7: not JSON (unexpected end of input): expected ...".
void require_json(const std::string& text, const std::string& name, const std::string& expected);

// The JSON library's message without its tag "[json.exception.type_error.302] ".
std::string without_json_tag(const std::string& what);

}  // namespace convlab
