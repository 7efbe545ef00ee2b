#include "bench/input.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "conv/error.h"

namespace convlab {

std::string read_input(const std::string& path, const std::string& expected,
                       const std::string& flag) {
  const auto require = [&](bool fine) {
    if (!fine)
      throw InputError(fmt::format("{}cannot read '{}' ({}): expected {}",
                                   flag.empty() ? "" : flag + ": ", path, std::strerror(errno),
                                   expected));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  require(file != nullptr);
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file.get()))
    text.append(buffer, count);
  require(std::ferror(file.get()) == 0);
  return text;
}

}  // namespace convlab
