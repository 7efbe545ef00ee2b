// Reads files that may be gzip-compressed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace convlab::nets {

// Reads a file piece by piece and unpacks it if it starts as a gzip file.
class PlainOrGzip {
 public:
  explicit PlainOrGzip(std::filesystem::path);  // throws InputError
  ~PlainOrGzip();
  PlainOrGzip(const PlainOrGzip&) = delete;
  PlainOrGzip& operator=(const PlainOrGzip&) = delete;

  // Up to `bytes` more: fewer only at the end. Throws InputError for a damaged or truncated file.
  // Memory grows with the data actually read, so a file that lies about its size cannot exhaust it.
  std::vector<std::uint8_t> read(std::int64_t bytes);
  // An upper bound on the output: gzip's best ratio times the file's length.
  std::int64_t most_bytes() const;

 private:
  std::filesystem::path path_;
  void* file_ = nullptr;  // zlib's gzFile
};

}  // namespace convlab::nets
