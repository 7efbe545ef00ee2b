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

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The new contents. They have no name until they are whole, so that a process that is killed leaves
// nothing behind; on a file system that cannot do that, a name of this process.
class Draft {
 public:
  explicit Draft(const std::string& path)
      : name_(fmt::format("{}.{}.tmp", path, getpid())),
        file_{open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666)},
        named_(file_.number < 0) {
    // What a process of this number left when it was killed is overwritten.
    if (named_)
      file_.number =
          open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file_.number >= 0) return;
    const std::string text = fmt::format("cannot write '{}': {}", path, std::strerror(errno));
    if (errno == ENOSPC || errno == EDQUOT || errno == EMFILE || errno == ENFILE)
      throw EnvironmentError(text);
    throw InputError(text);
  }
  Draft(const Draft&) = delete;
  ~Draft() {
    if (named_) unlink(name_.c_str());
  }
  int file() const { return file_.number; }
  // False, with errno, when that fails.
  bool replace(const std::string& path) {
    if (!named_) {
      unlink(name_.c_str());
      const std::string self = fmt::format("/proc/self/fd/{}", file_.number);
      if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name_.c_str(), AT_SYMLINK_FOLLOW) != 0)
        return false;
      named_ = true;
    }
    if (std::rename(name_.c_str(), path.c_str()) != 0) return false;
    named_ = false;
    return true;
  }

 private:
  std::string name_;
  Descriptor file_;
  bool named_;
};

void require_no_other_kind(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw InputError(fmt::format("cannot write '{}': it is there and no file", path));
}

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

void require_replaceable(const std::string& path) {
  require_no_other_kind(path);
  const Draft draft(path);
}

void replace_file(const std::string& path, std::span<const ConstSpan> pieces) {
  require_no_other_kind(path);
  Draft draft(path);
  const auto require = [&](bool fine) {
    if (!fine)
      throw EnvironmentError(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  };
  for (const ConstSpan piece : pieces)
    for (std::size_t done = 0; done < piece.size();) {
      const ssize_t written = write(draft.file(), piece.data() + done, piece.size() - done);
      require(written > 0 || (written < 0 && errno == EINTR));
      done += std::size_t(std::max<ssize_t>(written, 0));
    }
  require(fsync(draft.file()) == 0 && draft.replace(path));
  const Descriptor folder{open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  // A file system that cannot sync directories says EINVAL.
  require(folder.number >= 0 && (fsync(folder.number) == 0 || errno == EINVAL));
}

}  // namespace convlab
