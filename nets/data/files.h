// Bytes from files and back, with errors that name the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace convlab {

// All of a file. Throws InputError for one that cannot be read, or has more than `most` bytes.
std::vector<std::uint8_t> read_file(const std::filesystem::path&, std::int64_t most);

// Reads a file piece by piece, unpacking gzip on the way where the file begins like it.
class PlainOrGzip {
 public:
  explicit PlainOrGzip(std::filesystem::path);  // throws InputError
  ~PlainOrGzip();
  PlainOrGzip(const PlainOrGzip&) = delete;
  PlainOrGzip& operator=(const PlainOrGzip&) = delete;

  // Up to `bytes` more: fewer only at the end. Throws InputError for a damaged or truncated file.
  // Grows with what is there, so that no more is allocated than a file holds that lies about it.
  std::vector<std::uint8_t> read(std::int64_t bytes);

 private:
  std::filesystem::path path_;
  void* file_ = nullptr;  // zlib's gzFile
};

// Writes a new file and waits until it is on the disk. Throws EnvironmentError.
void write_file_durably(const std::filesystem::path&, std::span<const std::uint8_t>);

}  // namespace convlab
