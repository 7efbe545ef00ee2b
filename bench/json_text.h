// JSON that comes from outside: what is wrong with it, where, and what would be right, in a line.
#pragma once

#include <string>

namespace convlab {

// Throws InputError, "NAME: line 3, column 7: not JSON (unexpected end of input): expected ...".
void require_json(const std::string& text, const std::string& name, const std::string& expected);

// What the JSON library says, without its tag "[json.exception.type_error.302] ".
std::string without_json_tag(const std::string& what);

}  // namespace convlab
