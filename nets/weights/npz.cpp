// npz: a zip archive with one .npy file an array. A .npy file is the magic, a version, the length
// of a header, the header (the text of a Python dictionary, padded so that the data are aligned),
// and the data (NumPy Enhancement Proposal 1).
#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <set>

#include "conv/error.h"
#include "nets/weights/arrays.h"
#include "nets/weights/formats.h"

namespace convlab {
namespace {

constexpr std::string_view magic = "\x93NUMPY", suffix = ".npy";
constexpr std::size_t alignment = 64;
constexpr std::size_t longest_header = 1 << 16;
// Deflate's best: 258 bytes for two bits, and less than a block's overhead.
constexpr std::uint64_t most_compressed = 1032, overhead = 1 << 16;

struct TypeName {
  std::string_view name;
  ElementType type;
};
constexpr std::array<TypeName, 6> type_names{{{"<f2", ElementType::f16},
                                              {"<f4", ElementType::f32},
                                              {"<f8", ElementType::f64},
                                              {"<i4", ElementType::i32},
                                              {"<i8", ElementType::i64},
                                              {"|u1", ElementType::u8}}};

// ---- The header's dictionary ----

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } from the front.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Array parse() {
    std::set<std::string> keys;
    Array array;
    expect("{");
    while (!take("}")) {
      const std::string key = parse_text();
      if (!keys.insert(key).second) fail();
      expect(":");
      if (key == "descr")
        array.type = parse_type();
      else if (key == "fortran_order")
        refuse_fortran_order();
      else if (key == "shape")
        array.shape = parse_shape();
      else
        fail();
      if (!take(",")) {
        expect("}");
        break;
      }
    }
    skip_space();
    if (keys.size() != 3 || !text_.empty()) fail();
    return array;
  }

 private:
  [[noreturn]] static void fail() {
    throw InputError("its header is none of {'descr': ..., 'fortran_order': ..., 'shape': ...}");
  }
  void skip_space() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \n\t"), text_.size()));
  }
  bool take(std::string_view token) {
    skip_space();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail();
  }

  std::string parse_text() {
    skip_space();
    const char quote = text_.empty() ? '\0' : text_.front();
    if (quote != '\'' && quote != '"') fail();
    const std::size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) fail();
    const std::string text(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return text;
  }

  ElementType parse_type() {
    skip_space();
    if (text_.starts_with("[")) throw InputError("it has elements of several fields");
    const std::string name = parse_text();
    if (name.find('O') != std::string::npos)
      throw InputError("it holds pickled Python objects, not numbers");
    for (const TypeName& t : type_names)
      if (t.name == name) return t.type;
    throw InputError(fmt::format("type {} is none of <f2, <f4, <f8, <i4, <i8, |u1", shown(name)));
  }

  void refuse_fortran_order() {
    if (take("True"))
      throw InputError("it is in Fortran order: write it in C order, with numpy.ascontiguousarray");
    expect("False");
  }

  std::vector<std::int64_t> parse_shape() {
    std::vector<std::int64_t> shape;
    expect("(");
    while (!take(")")) {
      skip_space();
      std::int64_t n = 0;
      const char* const end = text_.data() + text_.size();
      const auto [stop, error] = std::from_chars(text_.data(), end, n);
      if (error != std::errc{} || n < 0) fail();
      text_.remove_prefix(std::size_t(stop - text_.data()));
      shape.push_back(n);
      if (!take(",")) {
        expect(")");
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
};

std::string npy_header(const Array& array) {
  const auto type = std::find_if(type_names.begin(), type_names.end(),
                                 [&](const TypeName& t) { return t.type == array.type; });
  if (type == type_names.end())
    throw InputError(
        fmt::format("npz has no type {}: write safetensors, or convert it", to_string(array.type)));
  std::string shape;
  for (const std::int64_t n : array.shape) shape += fmt::format("{}, ", n);
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);  // but (3, ) keeps its comma
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type->name, shape);
  // Version 1.0 with two bytes of length; only a shape of thousands of sizes would need more.
  const std::size_t before = magic.size() + 4;
  text.resize((before + text.size() + 1 + alignment - 1) / alignment * alignment - before - 1, ' ');
  text += '\n';
  if (text.size() > UINT16_MAX) throw InputError("its shape is too long for a .npy header");
  std::string header(magic);
  header += {'\1', '\0', char(text.size() & 0xff), char(text.size() >> 8)};
  return header + text;
}

// ---- The archive ----

struct Close {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
  void operator()(zip_source_t* source) const { zip_source_free(source); }
};
using Archive = std::unique_ptr<zip_t, Close>;
using ArchivedFile = std::unique_ptr<zip_file_t, Close>;
using Source = std::unique_ptr<zip_source_t, Close>;

[[noreturn]] void fail(zip_error_t* error) {
  const std::string text = zip_error_strerror(error);
  zip_error_fini(error);
  throw InputError(fmt::format("as a zip archive: {}", text));
}

Archive open_archive(zip_source_t* source, int flags) {
  zip_error_t error;
  zip_error_init(&error);
  Archive archive(zip_open_from_source(source, flags, &error));
  if (!archive) fail(&error);
  zip_source_keep(source);  // the archive frees the reference that it took over
  return archive;
}

// All `to.size()` bytes, which are there unless the archive lies.
void read_all(zip_file_t* file, Span to) {
  for (std::size_t done = 0; done < to.size();) {
    const zip_int64_t count = zip_fread(file, to.data() + done, to.size() - done);
    if (count < 0) throw InputError(zip_file_strerror(file));
    if (count == 0) throw InputError("it is cut short");
    done += std::size_t(count);
  }
}

std::uint32_t read_length(zip_file_t* file, std::size_t bytes) {
  std::uint32_t length = 0;
  read_all(file, std::as_writable_bytes(std::span(&length, 1)).first(bytes));
  return length;
}

Array read_npy(zip_file_t* file, std::uint64_t size) {
  std::array<char, magic.size() + 2> start{};
  if (size < start.size()) throw InputError("it is too short for a .npy file");
  read_all(file, std::as_writable_bytes(std::span(start)));
  if (std::string_view(start.data(), magic.size()) != magic) throw InputError("it is no .npy file");
  const int version = start[magic.size()];
  if (version < 1 || version > 3)
    throw InputError(fmt::format("version {} of .npy is none of 1, 2, 3", version));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::uint32_t length = read_length(file, length_bytes);
  if (length > longest_header)
    throw InputError(fmt::format("its header of {} bytes is too long", length));
  std::string header(length, '\0');
  read_all(file, std::as_writable_bytes(std::span(header)));
  Array array = HeaderParser(header).parse();
  const auto bytes = bytes_of(array.type, array.shape);
  const std::uint64_t rest =
      size - std::min<std::uint64_t>(size, start.size() + length_bytes + length);
  if (bytes != rest)
    throw InputError(fmt::format("{} of {} is not what {} bytes of data hold",
                                 shown(to_string(array.shape)), to_string(array.type), rest));
  array.bytes.resize(*bytes);
  read_all(file, array.bytes);
  char more;  // reading up to the end also compares the checksum
  const zip_int64_t count = zip_fread(file, &more, 1);
  if (count < 0) throw InputError(zip_file_strerror(file));
  if (count > 0) throw InputError("it is longer than the archive says");
  return array;
}

// What the archive says that the entry unpacks to, after a look at whether it can: entries that lie
// over one another, or that promise more than deflate gives, are how a small file fills a memory.
std::uint64_t unpacked_size(const zip_stat_t& entry, std::uint64_t& compressed_left) {
  constexpr zip_uint64_t needed =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((entry.valid & needed) != needed) throw InputError("the archive does not say its size");
  if (entry.encryption_method != ZIP_EM_NONE) throw InputError("it is encrypted");
  if (entry.comp_method != ZIP_CM_STORE && entry.comp_method != ZIP_CM_DEFLATE)
    throw InputError("it is neither stored nor deflated");
  if (entry.comp_size > compressed_left)
    throw InputError("the archive's files are longer than the archive");
  compressed_left -= entry.comp_size;
  const bool stored = entry.comp_method == ZIP_CM_STORE;
  if (stored ? entry.size != entry.comp_size
             : entry.size / most_compressed > entry.comp_size + overhead / most_compressed)
    throw InputError(fmt::format("{} bytes cannot unpack to {}", entry.comp_size, entry.size));
  return entry.size;
}

ArrayFile parse(ConstSpan bytes) {
  if (bytes.empty()) throw InputError("it is empty");  // libzip takes that for an empty archive
  zip_error_t error;
  zip_error_init(&error);
  const Source source(zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error));
  if (!source) fail(&error);
  const Archive archive = open_archive(source.get(), ZIP_RDONLY | ZIP_CHECKCONS);
  ArrayFile file;
  std::uint64_t compressed_left = bytes.size();
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_uint64_t i = 0; i < zip_uint64_t(count); ++i) {
    zip_stat_t entry;
    if (zip_stat_index(archive.get(), i, 0, &entry) != 0 || (entry.valid & ZIP_STAT_NAME) == 0)
      fail(zip_get_error(archive.get()));
    const std::string_view name = entry.name;
    try {
      if (!name.ends_with(suffix)) throw InputError("an npz holds .npy files only");
      const std::uint64_t size = unpacked_size(entry, compressed_left);
      const ArchivedFile opened(zip_fopen_index(archive.get(), i, 0));
      if (!opened) throw InputError(zip_strerror(archive.get()));
      const std::string key(name.substr(0, name.size() - suffix.size()));
      if (!file.arrays.emplace(key, read_npy(opened.get(), size)).second)
        throw InputError("it is there twice");
    } catch (const InputError& e) {
      throw InputError(fmt::format("{}: {}", shown(name), e.what()));
    }
  }
  return file;
}

}  // namespace

ArrayFile parse_npz(ConstSpan bytes, const std::string& name) {
  try {
    return parse(bytes);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", name, error.what()));
  }
}

// Stored, as numpy.savez does: weights hardly compress.
std::vector<std::byte> to_npz(const ArrayFile& file) {
  if (file.arrays.empty()) throw InputError("an npz holds one array at least");  // as libzip has it
  zip_error_t error;
  zip_error_init(&error);
  const Source target(zip_source_buffer_create(nullptr, 0, 0, &error));
  if (!target) fail(&error);
  Archive archive = open_archive(target.get(), ZIP_CREATE | ZIP_TRUNCATE);
  const auto require = [&](bool fine) {
    if (!fine) fail(zip_get_error(archive.get()));
  };
  std::vector<std::vector<std::byte>> contents;  // stay until the archive is closed
  for (const auto& [name, array] : file.arrays) {
    require_whole(name, array);
    const std::string header = npy_header(array);
    const auto start = std::as_bytes(std::span(header));
    auto& content = contents.emplace_back(start.begin(), start.end());
    content.insert(content.end(), array.bytes.begin(), array.bytes.end());
    zip_source_t* const source =
        zip_source_buffer(archive.get(), content.data(), content.size(), 0);
    require(source != nullptr);
    const zip_int64_t index =
        zip_file_add(archive.get(), (name + std::string(suffix)).c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) zip_source_free(source);
    require(index >= 0);
    // 1980, the earliest that zip knows: the same arrays are the same bytes.
    require(zip_set_file_compression(archive.get(), zip_uint64_t(index), ZIP_CM_STORE, 0) == 0 &&
            zip_file_set_dostime(archive.get(), zip_uint64_t(index), 0, 1 << 5 | 1, 0) == 0);
  }
  require(zip_close(archive.get()) == 0);
  archive.release();  // closing freed it

  std::vector<std::byte> bytes;
  zip_stat_t status;
  if (zip_source_open(target.get()) != 0) fail(zip_source_error(target.get()));
  const bool known = zip_source_stat(target.get(), &status) == 0;
  if (known) bytes.resize(status.size);
  const bool read = known && zip_source_read(target.get(), bytes.data(), bytes.size()) ==
                                 zip_int64_t(bytes.size());
  zip_source_close(target.get());
  if (!read) fail(zip_source_error(target.get()));
  return bytes;
}

}  // namespace convlab
