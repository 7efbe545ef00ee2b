#include "nets/weights/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "conv/text/bytes.h"
#include "conv/text/text_file.h"

namespace convlab::nets {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

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

// The new contents. The file has no name until it is complete, so that a killed process leaves
// nothing behind. On a file system without nameless files it gets a name with this process's
// number.
class Draft {
 public:
  explicit Draft(const std::string& path)
      : name_(fmt::format("{}.{}.tmp", path, getpid())),
        file_{open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666)},
        named_(file_.number < 0) {
    // Overwrites the file of a killed process with the same number.
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
  // False, with errno, on failure.
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

// The target of a link, whether or not it exists.
std::string followed(const std::string& path) {
  constexpr int most_links = 40;  // the kernel's limit
  fs::path file = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(file, error)); ++links) {
    if (links == most_links)
      throw InputError(fmt::format("cannot write '{}': {}", path, std::strerror(ELOOP)));
    file = file.parent_path() / fs::read_symlink(file, error);
  }
  return file.string();
}

// The replaceable file at `path`, if there is one.
std::optional<struct stat> replaceable(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  if (!S_ISREG(status.st_mode))
    throw InputError(fmt::format("cannot write '{}': it is there and no file", path));
  return status;
}

}  // namespace

void MemorySource::read(std::size_t offset, Span to) const {
  if (!to.empty()) std::memcpy(to.data(), bytes_.data() + offset, to.size());
}

FileSource::FileSource(std::string path)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  require(descriptor_ >= 0, std::strerror(errno));
  struct stat status {};
  const bool known = fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const char* const why = known ? "it is no file" : std::strerror(errno);
    close(descriptor_);
    require(false, why);
  }
  size_ = std::size_t(status.st_size);
}

FileSource::~FileSource() { close(descriptor_); }

void FileSource::require(bool fine, const char* why) const {
  if (!fine) throw InputError(fmt::format("cannot read '{}': {}", path_, why));
}

void FileSource::read(std::size_t offset, Span to) const {
  for (std::size_t done = 0; done < to.size();) {
    const ssize_t count =
        pread(descriptor_, to.data() + done, to.size() - done, off_t(offset + done));
    require(count >= 0 || errno == EINTR, std::strerror(errno));
    require(count != 0, "it became shorter meanwhile");
    done += std::size_t(std::max<ssize_t>(count, 0));
  }
}

void require_replaceable(const std::string& link) {
  const std::string path = followed(link);
  static_cast<void>(replaceable(path));
  const Draft draft(path);
}

std::vector<std::byte> read_file(const std::string& path) {
  const FileSource file(path);
  return in_file(path, [&] {
    std::vector<std::byte> bytes(file.size());
    file.read(0, bytes);
    return bytes;
  });
}

std::vector<std::string> lines_of(const std::string& text) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  std::vector<std::string> lines;
  for (std::size_t at = text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0;
       at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

std::vector<std::string> read_lines(const std::string& path) {
  if (const std::size_t size = FileSource(path).size(); size > longest_text)
    throw InputError(fmt::format("cannot read '{}': it has {}, expected text of at most {}", path,
                                 show_bytes(std::int64_t(size)),
                                 show_bytes(std::int64_t(longest_text))));
  const std::vector<std::byte> bytes = read_file(path);
  return lines_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string kind_of_content(ConstSpan first) {
  const std::string_view text(reinterpret_cast<const char*>(first.data()),
                              std::min(first.size(), kind_bytes));
  const auto begins = [&](std::string_view magic) { return text.starts_with(magic); };
  if (begins("version https://git-lfs"sv))
    return "a git-lfs pointer (`git lfs pull` brings the file itself)";
  const bool zip = begins("PK\3\4"sv);
  const bool pickle = text.size() > 1 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5;
  if (pickle || (zip && text.find("data.pkl") != text.npos))
    return "PyTorch's own format, a .pth (safetensors.torch.save_file(torch.load('x.pth'), "
           "'x.safetensors') converts it)";
  if (zip) return "a zip archive, as an .npz";
  if (begins("\x93NUMPY"sv)) return "a single array, an .npy";
  if (begins("\x89HDF"sv)) return "HDF5";
  if (begins("\x1f\x8b"sv)) return "packed by gzip";
  if (begins("<"sv)) return "a web page or XML";
  if (begins("\x89PNG"sv)) return "a PNG";
  if (begins("\xff\xd8\xff"sv)) return "a JPEG";
  if (begins("GIF8"sv)) return "a GIF";
  if (begins("RIFF"sv) && text.substr(0, 12).ends_with("WEBP")) return "a WebP";
  if (begins("II*\0"sv) || begins("MM\0*"sv)) return "a TIFF";
  if (begins("BM"sv)) return "a BMP";
  return "";
}

void replace_file(const std::string& link, std::span<const ConstSpan> pieces) {
  const std::string path = followed(link);
  const std::optional<struct stat> old = replaceable(path);
  Draft draft(path);
  const auto require = [&](bool fine) {
    if (!fine)
      throw EnvironmentError(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  };
  if (old) {
    // Only root may change a file's owner; otherwise the new file stays the writer's.
    const bool given = fchown(draft.file(), old->st_uid, old->st_gid) == 0;
    require(fchmod(draft.file(), old->st_mode & (given ? 07777 : 0777)) == 0);
  }
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

}  // namespace convlab::nets
