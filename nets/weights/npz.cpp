// npz: a zip archive with one .npy file per array. A .npy file has the magic, a version, the length
// of a header, the header (the text of a Python dictionary, padded so that the data is aligned),
// and the data (NumPy Enhancement Proposal 1).
#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <set>

#include "conv/error.h"
#include "nets/weights/arrays.h"
#include "nets/weights/formats.h"

namespace convlab::nets {
namespace {

constexpr std::string_view magic = "\x93NUMPY", suffix = ".npy";
constexpr std::size_t alignment = 64;
constexpr std::size_t longest_header = 1 << 16;
// Deflate's best ratio, 258 bytes for two bits, and a bound on a block's overhead.
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
  zip_source_keep(source);  // the archive takes over a reference and frees it
  return archive;
}

// Reads all `to.size()` bytes, which exist unless the archive is inconsistent.
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

struct NpyHeader {
  Array array;  // without its bytes
  std::size_t length = 0;
};

NpyHeader read_npy_header(zip_file_t* file, std::uint64_t size) {
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
  NpyHeader parsed{HeaderParser(header).parse(), start.size() + length_bytes + length};
  const std::uint64_t rest = size - std::min<std::uint64_t>(size, parsed.length);
  if (bytes_of(parsed.array.type, parsed.array.shape) != rest)
    throw InputError(fmt::format("{} of {} is not what {} bytes of data hold",
                                 shown(to_string(parsed.array.shape)), to_string(parsed.array.type),
                                 rest));
  return parsed;
}

// The unpacked size in the archive, after a check that it is possible: a small file can exhaust
// memory with overlapping entries, or with sizes beyond deflate's best ratio.
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

// libzip reads through callbacks, which must not throw.
class ZipInput {
 public:
  explicit ZipInput(const ByteSource& bytes) : bytes_(bytes) { zip_error_init(&error_); }
  ~ZipInput() { zip_error_fini(&error_); }
  ZipInput(const ZipInput&) = delete;
  ZipInput& operator=(const ZipInput&) = delete;

  static zip_int64_t call(void* self, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    return static_cast<ZipInput*>(self)->answer(data, length, command);
  }

 private:
  zip_int64_t answer(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        at_ = 0;
        return 0;
      case ZIP_SOURCE_READ:
        return read(static_cast<std::byte*>(data), length);
      case ZIP_SOURCE_STAT: {
        auto* const status = static_cast<zip_stat_t*>(data);
        zip_stat_init(status);
        status->size = bytes_.size();
        status->valid |= ZIP_STAT_SIZE;
        return sizeof(*status);
      }
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t to =
            zip_source_seek_compute_offset(at_, bytes_.size(), data, length, &error_);
        if (to >= 0) at_ = zip_uint64_t(to);
        return to < 0 ? -1 : 0;
      }
      case ZIP_SOURCE_TELL:
        return zip_int64_t(at_);
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, length);
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL,
                                              ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, -1);
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE:
        return 0;
      default:
        zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  zip_int64_t read(std::byte* to, zip_uint64_t length) {
    length = std::min<zip_uint64_t>(length, bytes_.size() - at_);
    try {
      bytes_.read(at_, Span(to, length));
    } catch (const InputError&) {
      zip_error_set(&error_, ZIP_ER_READ, errno);
      return -1;
    }
    at_ += length;
    return zip_int64_t(length);
  }

  const ByteSource& bytes_;
  zip_uint64_t at_ = 0;
  zip_error_t error_;
};

class Npz final : public ArraySource {
 public:
  explicit Npz(std::unique_ptr<ByteSource> file) : file_(std::move(file)), input_(*file_) {
    std::vector<std::byte> first(std::min(file_->size(), kind_bytes));
    file_->read(0, first);
    if (first.empty()) throw InputError("it is empty");  // libzip takes that for an empty archive
    std::string kind = kind_of_content(first);
    if (first.size() > 8 && first[8] == std::byte('{')) kind = "safetensors";
    if (!kind.empty() && kind.find("npz") == kind.npos)
      throw InputError(fmt::format("it is {}, not npz", kind));
    zip_error_t error;
    zip_error_init(&error);
    const Source source(zip_source_function_create(ZipInput::call, &input_, &error));
    if (!source) fail(&error);
    archive_ = open_archive(source.get(), ZIP_RDONLY | ZIP_CHECKCONS);
    std::uint64_t compressed_left = file_->size();
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    for (zip_uint64_t i = 0; i < zip_uint64_t(count); ++i) add_entry(i, compressed_left);
  }

  void read(const std::string& name, Span to) const override {
    const Entry& entry = entries_.at(name);
    in_file(shown(name) + std::string(suffix), [&] {
      const ArchivedFile file = open(entry.index);
      std::vector<std::byte> header(entry.header);
      read_all(file.get(), header);
      read_all(file.get(), to);
      char more;  // reading up to the end also compares the checksum
      const zip_int64_t count = zip_fread(file.get(), &more, 1);
      if (count < 0) throw InputError(zip_file_strerror(file.get()));
      if (count > 0) throw InputError("it is longer than the archive says");
    });
  }

  void verify() const override {}  // zip has a checksum for each file
  bool has_checksum() const override { return true; }

 private:
  struct Entry {
    zip_uint64_t index = 0;
    std::size_t header = 0;  // bytes before the data
  };

  ArchivedFile open(zip_uint64_t index) const {
    ArchivedFile file(zip_fopen_index(archive_.get(), index, 0));
    if (!file) throw InputError(zip_strerror(archive_.get()));
    return file;
  }

  void add_entry(zip_uint64_t index, std::uint64_t& compressed_left) {
    zip_stat_t status;
    if (zip_stat_index(archive_.get(), index, 0, &status) != 0 ||
        (status.valid & ZIP_STAT_NAME) == 0)
      fail(zip_get_error(archive_.get()));
    const std::string_view name = status.name;
    in_file(shown(name), [&] {
      if (!name.ends_with(suffix)) throw InputError("an npz holds .npy files only");
      const std::uint64_t size = unpacked_size(status, compressed_left);
      const std::string key(name.substr(0, name.size() - suffix.size()));
      NpyHeader npy = read_npy_header(open(index).get(), size);
      if (!header.arrays.emplace(key, std::move(npy.array)).second)
        throw InputError("it is there twice");
      entries_[key] = {index, npy.length};
    });
  }

  std::unique_ptr<ByteSource> file_;
  ZipInput input_;
  Archive archive_;
  std::map<std::string, Entry> entries_;
};

}  // namespace

std::unique_ptr<ArraySource> open_npz(std::unique_ptr<ByteSource> file) {
  return std::make_unique<Npz>(std::move(file));
}

// Stored, as numpy.savez does: weights hardly compress.
std::vector<std::byte> to_npz(const ArrayFile& file) {
  if (file.arrays.empty()) throw InputError("an npz holds one array at least");  // a libzip rule
  zip_error_t error;
  zip_error_init(&error);
  const Source target(zip_source_buffer_create(nullptr, 0, 0, &error));
  if (!target) fail(&error);
  Archive archive = open_archive(target.get(), ZIP_CREATE | ZIP_TRUNCATE);
  const auto require = [&](bool fine) {
    if (!fine) fail(zip_get_error(archive.get()));
  };
  std::vector<std::vector<std::byte>> contents;  // must live until the archive is closed
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
    // 1980, the earliest date in zip, so that the same arrays give the same bytes.
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

}  // namespace convlab::nets
