#include "nets/data/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "conv/error.h"

namespace convlab {
namespace {

[[noreturn]] void fail_to_read(const std::filesystem::path& path, const std::string& why) {
  throw InputError(fmt::format("{}: {}", path.string(), why));
}

// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::vector<std::uint8_t> read_file(const std::filesystem::path& path, std::int64_t most) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file < 0) fail_to_read(path, std::strerror(errno));
  std::error_code no_size;
  const auto size = std::filesystem::file_size(path, no_size);
  std::vector<std::uint8_t> bytes;
  // One byte more than it should have shows the end without another round.
  bytes.resize(no_size ? 1 << 16 : std::min(std::uintmax_t(most), size) + 1);
  for (std::size_t have = 0;;) {
    const ssize_t got = ::read(file, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read(path, std::strerror(errno));
    have += got;
    if (std::int64_t(have) > most)
      fail_to_read(path, fmt::format("has more than {} bytes, the most expected of it", most));
    if (got == 0) {
      bytes.resize(have);
      return bytes;
    }
    if (have == bytes.size()) bytes.resize(2 * have);
  }
}

PlainOrGzip::PlainOrGzip(std::filesystem::path path) : path_(std::move(path)) {
  errno = 0;
  file_ = gzopen(path_.c_str(), "rbe");
  if (!file_) fail_to_read(path_, errno ? std::strerror(errno) : "out of memory");
}

PlainOrGzip::~PlainOrGzip() { gzclose_r(static_cast<gzFile>(file_)); }

std::vector<std::uint8_t> PlainOrGzip::read(std::int64_t bytes) {
  constexpr std::int64_t piece = 1 << 24;
  std::vector<std::uint8_t> data;
  while (std::int64_t(data.size()) < bytes) {
    const std::size_t have = data.size();
    data.resize(have + std::min(bytes - std::int64_t(have), piece));
    const auto file = static_cast<gzFile>(file_);
    const int got = gzread(file, data.data() + have, unsigned(data.size() - have));
    int status = Z_OK;
    const char* const why = gzerror(file, &status);
    if (got < 0 || status == Z_BUF_ERROR) {
      if (status == Z_ERRNO) fail_to_read(path_, std::strerror(errno));
      fail_to_read(path_, status == Z_BUF_ERROR ? "is gzip cut short"
                                                : fmt::format("is damaged gzip ({})", why));
    }
    if (have + got < data.size()) {
      data.resize(have + got);
      break;
    }
  }
  return data;
}

void write_file_durably(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  const auto require = [&](bool done) {
    if (!done)
      throw EnvironmentError(
          fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  };
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  require(file >= 0);
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    require(wrote >= 0);
    bytes = bytes.subspan(wrote);
  }
  require(::fsync(file) == 0);
}

}  // namespace convlab
