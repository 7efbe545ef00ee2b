#include "conv/text/text_file.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "conv/error.h"
#include "conv/text/bytes.h"

namespace convlab {

std::string read_text_file(const std::string& path, const std::string& expected) {
  const auto fail = [&](const std::string& why) {
    throw InputError(fmt::format("cannot read '{}' ({}): expected {}", path, why, expected));
  };
  const auto require = [&](bool fine) {
    if (!fine) fail(std::strerror(errno));
  };
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(nullptr, &std::fclose);
  if (path != "-") opened.reset(std::fopen(path.c_str(), "rbe"));
  std::FILE* const file = path == "-" ? stdin : opened.get();
  require(file);
  std::string text;
  std::array<char, 1 << 14> buffer{};
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file)) {
    text.append(buffer.data(), n);
    if (text.size() > longest_text)
      fail(fmt::format("longer than {}", show_bytes(std::int64_t(longest_text))));
  }
  require(!std::ferror(file));
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

}  // namespace convlab
