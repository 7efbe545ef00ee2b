#include "nets/weights/arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <utility>

#include "conv/error.h"
#include "conv/text/text.h"
#include "conv/types/half.h"
#include "nets/weights/file_io.h"
#include "nets/weights/formats.h"

namespace convlab::nets {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are kept as they lie in files");

// Calls f with a value of the C++ type.
template <class F>
auto with_type(ElementType type, F f) {
  switch (type) {
    case ElementType::f16:
      return f(Float16());
    case ElementType::bf16:
      return f(BFloat16());
    case ElementType::f32:
      return f(float());
    case ElementType::f64:
      return f(double());
    case ElementType::i32:
      return f(std::int32_t());
    case ElementType::i64:
      return f(std::int64_t());
    case ElementType::u8:
      break;
  }
  return f(std::uint8_t());
}

FileFormat known_format(const std::string& path) {
  if (const auto format = format_of(path)) return *format;
  throw InputError(fmt::format("'{}': expected a name that ends in .safetensors or .npz", path));
}

std::unique_ptr<ArraySource> open_source(const std::string& path) {
  const FileFormat format = known_format(path);
  auto file = std::make_unique<FileSource>(path);
  return in_file(path, [&] {
    return format == FileFormat::npz ? open_npz(std::move(file))
                                     : open_safetensors(std::move(file));
  });
}

Array read_one(const ArraySource& source, const std::string& name) {
  Array array = source.header.at(name);
  array.bytes.resize(bytes_of(array.type, array.shape).value());
  source.read(name, array.bytes);
  return array;
}

ArrayFile read_all(const ArraySource& source) {
  source.verify();
  ArrayFile file{{}, source.header.metadata};
  for (const auto& [name, array] : source.header.arrays)
    file.arrays.emplace_hint(file.arrays.end(), name, read_one(source, name));
  return file;
}

}  // namespace

std::size_t size_of(ElementType type) {
  return with_type(type, [](auto value) { return sizeof(value); });
}

std::string_view to_string(ElementType type) {
  constexpr std::array<std::string_view, 7> names{"f16", "bf16", "f32", "f64", "i32", "i64", "u8"};
  return names[std::size_t(type)];
}

std::string to_string(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<std::size_t> bytes_of(ElementType type, const std::vector<std::int64_t>& shape) {
  std::int64_t bytes = std::int64_t(size_of(type));
  for (const std::int64_t n : shape)
    if (n < 0 || __builtin_mul_overflow(bytes, n, &bytes)) return std::nullopt;
  return std::size_t(bytes);
}

std::vector<double> values_of(const Array& array) {
  return with_type(array.type, [&](auto element) {
    std::vector<double> values(array.bytes.size() / sizeof(element));
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&element, array.bytes.data() + i * sizeof(element), sizeof(element));
      values[i] = double(element);
    }
    return values;
  });
}

Array array_of(ElementType type, std::vector<std::int64_t> shape, std::span<const double> values) {
  if (bytes_of(type, shape) != values.size() * size_of(type))
    throw InputError(
        fmt::format("{} values do not fill an array of {}", values.size(), to_string(shape)));
  Array array{type, std::move(shape), std::vector<std::byte>(values.size() * size_of(type))};
  with_type(type, [&](auto element) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      element = decltype(element)(values[i]);
      std::memcpy(array.bytes.data() + i * sizeof(element), &element, sizeof(element));
    }
  });
  return array;
}

const Array& ArrayFile::at(const std::string& name) const {
  const auto found = arrays.find(name);
  if (found == arrays.end()) throw InputError(fmt::format("there is no array {}", name));
  return found->second;
}

std::optional<FileFormat> format_of(const std::string& path) {
  std::string end = std::filesystem::path(path).extension().string();
  for (char& letter : end) letter = char(std::tolower(static_cast<unsigned char>(letter)));
  if (end == ".safetensors") return FileFormat::safetensors;
  if (end == ".npz") return FileFormat::npz;
  return std::nullopt;
}

ArrayReader::ArrayReader(std::string path) : path_(std::move(path)), source_(open_source(path_)) {}
ArrayReader::~ArrayReader() = default;

const ArrayFile& ArrayReader::header() const { return source_->header; }

Array ArrayReader::read(const std::string& name) const {
  return in_file(path_, [&] { return read_one(*source_, name); });
}

void ArrayReader::verify() const {
  in_file(path_, [&] { source_->verify(); });
}

bool ArrayReader::has_checksum() const { return source_->has_checksum(); }

ArrayFile read_arrays(const std::string& path) {
  const auto source = open_source(path);
  return in_file(path, [&] { return read_all(*source); });
}

void write_arrays(const std::string& path, const ArrayFile& file) {
  if (known_format(path) == FileFormat::npz) {
    const std::vector<std::byte> bytes = to_npz(file);
    replace_file(path, std::array{ConstSpan(bytes)});
  } else {
    SafetensorsPieces pieces = safetensors_pieces(file);
    pieces.data.insert(pieces.data.begin(), std::as_bytes(std::span(pieces.header)));
    replace_file(path, pieces.data);
  }
}

ArrayFile parse_safetensors(ConstSpan bytes, const std::string& name) {
  return in_file(
      name, [&] { return read_all(*open_safetensors(std::make_unique<MemorySource>(bytes))); });
}

ArrayFile parse_npz(ConstSpan bytes, const std::string& name) {
  return in_file(name, [&] { return read_all(*open_npz(std::make_unique<MemorySource>(bytes))); });
}

void require_whole(const std::string& name, const Array& array) {
  if (bytes_of(array.type, array.shape) != array.bytes.size())
    throw InputError(fmt::format("{}: {} bytes do not fill {} of {}", shown(name),
                                 array.bytes.size(), shown(to_string(array.shape)),
                                 to_string(array.type)));
}

std::string shown(std::string_view name) {
  constexpr std::size_t most = 100;
  if (name.size() <= most) return printable(name);
  // Do not cut a UTF-8 sequence.
  std::string_view begin = name.substr(0, most);
  while (!begin.empty() && (static_cast<unsigned char>(begin.back()) & 0x80))
    begin.remove_suffix(1);
  return printable(begin) + "...";
}

}  // namespace convlab::nets
