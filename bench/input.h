// Files that the command line names.
#pragma once

#include <string>

namespace convlab {

// All of a file, or of a pipe. Throws InputError, "FLAG: cannot read 'PATH' (why): expected WHAT".
std::string read_input(const std::string& path, const std::string& expected,
                       const std::string& flag = "");

}  // namespace convlab
