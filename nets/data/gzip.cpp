#include "nets/data/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "conv/error.h"

namespace convlab::nets {
namespace {

[[noreturn]] void fail_to_read(const std::filesystem::path& path, const std::string& why) {
  throw InputError(fmt::format("{}: {}", path.string(), why));
}

}  // namespace

PlainOrGzip::PlainOrGzip(std::filesystem::path path) : path_(std::move(path)) {
  errno = 0;
  file_ = gzopen(path_.c_str(), "rbe");
  if (!file_) fail_to_read(path_, errno ? std::strerror(errno) : "out of memory");
}

PlainOrGzip::~PlainOrGzip() { gzclose_r(static_cast<gzFile>(file_)); }

std::int64_t PlainOrGzip::most_bytes() const {
  // Deflate's best ratio: 258 bytes for two bits.
  const auto length = std::int64_t(std::filesystem::file_size(path_));
  return gzdirect(static_cast<gzFile>(file_)) ? length : 1032 * length;
}

std::vector<std::uint8_t> PlainOrGzip::read(std::int64_t bytes) {
  constexpr std::int64_t piece = 1 << 24;
  std::vector<std::uint8_t> data;
  data.reserve(std::min(bytes, most_bytes()));
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

}  // namespace convlab::nets
