// Text files from people and other programs: lists of problems, plans, results.
#pragma once

#include <cstddef>
#include <string>

namespace convlab {

// All of a file, or of stdin for "-", without a leading byte order mark. A pipe is read to its end.
// Throws InputError, "cannot read 'PATH' (why): expected WHAT", also for more than longest_text
// bytes: /dev/zero has no end.
inline constexpr std::size_t longest_text = 512 << 20;
std::string read_text_file(const std::string& path, const std::string& expected);

}  // namespace convlab
