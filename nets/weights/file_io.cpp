#include "nets/weights/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "conv/error.h"

namespace convlab {
namespace {

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

// Removed unless it was renamed.
struct Temporary {
  std::string path;
  bool kept = false;
  ~Temporary() {
    if (!kept) unlink(path.c_str());
  }
};

}  // namespace

std::vector<std::byte> read_file(const std::string& path) {
  const auto require = [&](bool fine, const char* why) {
    if (!fine) throw InputError(fmt::format("cannot read '{}': {}", path, why));
  };
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  require(file.number >= 0, std::strerror(errno));
  struct stat status {};
  require(fstat(file.number, &status) == 0, std::strerror(errno));
  require(S_ISREG(status.st_mode), "it is no file");
  std::vector<std::byte> bytes(std::size_t(status.st_size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = read(file.number, bytes.data() + done, bytes.size() - done);
    require(count >= 0 || errno == EINTR, std::strerror(errno));
    require(count != 0, "it became shorter meanwhile");
    done += std::size_t(std::max<ssize_t>(count, 0));
  }
  return bytes;
}

void replace_file(const std::string& path, std::span<const ConstSpan> pieces) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw InputError(fmt::format("cannot write '{}': it is there and no file", path));
  // What a process of this number left when it was killed is overwritten.
  const std::string temporary_path = fmt::format("{}.{}.tmp", path, getpid());
  const Descriptor file{
      open(temporary_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666)};
  if (file.number < 0) {
    const std::string text = fmt::format("cannot write '{}': {}", path, std::strerror(errno));
    if (errno == ENOSPC || errno == EDQUOT || errno == EMFILE || errno == ENFILE)
      throw EnvironmentError(text);
    throw InputError(text);
  }
  Temporary temporary{temporary_path};
  const auto require = [&](bool fine) {
    if (!fine)
      throw EnvironmentError(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  };
  for (const ConstSpan piece : pieces)
    for (std::size_t done = 0; done < piece.size();) {
      const ssize_t written = write(file.number, piece.data() + done, piece.size() - done);
      require(written > 0 || (written < 0 && errno == EINTR));
      done += std::size_t(std::max<ssize_t>(written, 0));
    }
  require(fsync(file.number) == 0 && std::rename(temporary_path.c_str(), path.c_str()) == 0);
  temporary.kept = true;
  const std::string directory = std::filesystem::path(path).parent_path().string();
  const Descriptor folder{
      open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  // A file system that cannot sync directories says EINVAL.
  require(folder.number >= 0 && (fsync(folder.number) == 0 || errno == EINVAL));
}

}  // namespace convlab
