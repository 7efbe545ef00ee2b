// Named arrays of numbers in files, the form of weights and checkpoints.
//   safetensors  an 8-byte little-endian length, that many bytes of JSON, then the data; files
//                written here have a checksum (zlib's CRC-32 of the file with zeros in its place)
//                in the metadata
//   npz          a zip of .npy files (NumPy Enhancement Proposal 1), stored or deflated
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conv/types/span.h"

namespace convlab::nets {

enum class ElementType : std::uint8_t { f16, bf16, f32, f64, i32, i64, u8 };

std::size_t size_of(ElementType);         // bytes
std::string_view to_string(ElementType);  // "f32"
// "[64, 3, 7, 7]"
std::string to_string(const std::vector<std::int64_t>& shape);

struct Array {
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;  // row-major; empty: a scalar
  std::vector<std::byte> bytes;     // little-endian

  friend bool operator==(const Array&, const Array&) = default;
};

// Size of an array of this type and shape; nullopt for negative sizes or a byte count that
// overflows.
std::optional<std::size_t> bytes_of(ElementType, const std::vector<std::int64_t>& shape);

// The elements as doubles, which are exact for every type but i64.
std::vector<double> values_of(const Array&);
// Rounded to nearest, ties to even.
Array array_of(ElementType, std::vector<std::int64_t> shape, std::span<const double>);

struct ArrayFile {
  std::map<std::string, Array> arrays;
  std::map<std::string, std::string> metadata;  // safetensors only

  const Array& at(const std::string& name) const;  // throws InputError if it is absent
};

enum class FileFormat : std::uint8_t { safetensors, npz };
// From the file name's extension, in either case.
std::optional<FileFormat> format_of(const std::string& path);

class ArraySource;

// An open file. Its header has been read and checked against its length. Data is read one array at
// a time, so that the caller can compare names and shapes first.
class ArrayReader {
 public:
  // Throws InputError, naming the file and the fault, for one that is missing, truncated, or
  // inconsistent about its sizes. Never reads past its end.
  explicit ArrayReader(std::string path);
  ~ArrayReader();

  const std::string& path() const { return path_; }
  const ArrayFile& header() const;  // arrays without their bytes
  // Throw InputError, as above. npz has a checksum for each array, which `read` compares.
  // safetensors written by this program have one for the whole file, which `verify` reads and
  // checks.
  Array read(const std::string& name) const;
  void verify() const;
  bool has_checksum() const;

 private:
  std::string path_;
  std::unique_ptr<ArraySource> source_;
};

// All of a file, verified.
ArrayFile read_arrays(const std::string& path);
// Atomic and durable: writes a temporary file, fsyncs it, then renames it over the old one. Throws
// InputError for a path that cannot be written and EnvironmentError for a full disk; the old file
// then remains.
void write_arrays(const std::string& path, const ArrayFile&);

// ---- The formats, in memory. `name` is for messages. ----

ArrayFile parse_safetensors(ConstSpan, const std::string& name);
std::vector<std::byte> to_safetensors(const ArrayFile&);
ArrayFile parse_npz(ConstSpan, const std::string& name);
std::vector<std::byte> to_npz(const ArrayFile&);

}  // namespace convlab::nets
