// Reading what may be packed by gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace convlab::nets {

// Reads a file piece by piece, unpacking gzip on the way where the file begins like it.
class PlainOrGzip {
 public:
  explicit PlainOrGzip(std::filesystem::path);  // throws InputError
  ~PlainOrGzip();
  PlainOrGzip(const PlainOrGzip&) = delete;
  PlainOrGzip& operator=(const PlainOrGzip&) = delete;

  // Up to `bytes` more: fewer only at the end. Throws InputError for a damaged or truncated file.
  // Takes memory for what is there, so that no more is used than a file holds that lies about it.
  std::vector<std::uint8_t> read(std::int64_t bytes);
  // No more than this can come out: what gzip makes of the file's length at best.
  std::int64_t most_bytes() const;

 private:
  std::filesystem::path path_;
  void* file_ = nullptr;  // zlib's gzFile
};

}  // namespace convlab::nets
