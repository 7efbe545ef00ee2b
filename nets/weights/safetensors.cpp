// The safetensors format (https://github.com/huggingface/safetensors): tensors' bytes follow the
// header without gaps or overlaps, each at the data_offsets in its entry.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "conv/error.h"
#include "nets/weights/arrays.h"
#include "nets/weights/formats.h"

namespace convlab::nets {
namespace {

using nlohmann::json;

constexpr std::size_t length_bytes = 8;
constexpr std::size_t longest_header = 100'000'000;  // the limit of the format's own reader
constexpr int deepest = 3;                           // {"name": {"shape": [...]}}
constexpr std::string_view metadata_name = "__metadata__", checksum_key = "convlab_crc32";

struct TypeName {
  std::string_view name;
  ElementType type;
};
constexpr std::array<TypeName, 7> type_names{{{"F16", ElementType::f16},
                                              {"BF16", ElementType::bf16},
                                              {"F32", ElementType::f32},
                                              {"F64", ElementType::f64},
                                              {"I32", ElementType::i32},
                                              {"I64", ElementType::i64},
                                              {"U8", ElementType::u8}}};

struct Entry {
  std::size_t begin = 0, end = 0;
  const std::string* name = nullptr;
};

// Processes the header while parsing, so that its contents are never in memory twice and duplicate
// keys are noticed.
class HeaderReader final : public json::json_sax_t {
 public:
  explicit HeaderReader(ArrayFile& file) : file_(file) {}

  std::vector<Entry> entries;

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return number({}); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(value <= std::uint64_t(INT64_MAX) ? std::optional(value) : std::nullopt);
  }
  bool number_float(number_float_t, const string_t&) override { return number({}); }
  bool binary(binary_t&) override { return other(); }

  bool string(string_t& value) override {
    if (in_metadata())
      metadata_->second = std::move(value);
    else if (depth_ == 2 && field_ == Field::dtype)
      type_name_ = std::move(value);
    else
      return other();
    return true;
  }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      name_ = std::move(key);
      if (name_ == metadata_name ? std::exchange(has_metadata_, true)
                                 : file_.arrays.contains(name_))
        twice(name_);
    } else if (name_ == metadata_name) {
      const auto [place, fresh] = file_.metadata.emplace(std::move(key), "");
      if (!fresh) twice(place->first);
      metadata_ = place;
    } else {
      field_ = key == "dtype"          ? Field::dtype
               : key == "shape"        ? Field::shape
               : key == "data_offsets" ? Field::offsets
                                       : Field::none;
      if (field_ == Field::none) fail("expected an object with dtype, shape and data_offsets");
      if (std::exchange(given_[std::size_t(field_)], true)) twice(key);
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (depth_ == deepest) too_deep();
    if (depth_ >= 2) return other();
    if (depth_ == 1) {
      given_ = {};
      shape_.clear();
      offsets_.clear();
    }
    ++depth_;
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && name_ != metadata_name) finish_entry();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == deepest) too_deep();
    if (depth_ != 2 || in_metadata() || field_ == Field::dtype) return other();
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(std::size_t at, const std::string&, const json::exception& error) override {
    if (dynamic_cast<const json::out_of_range*>(&error))
      throw InputError("the header has a number that is out of range");
    throw InputError(fmt::format("the header is no JSON at its byte {}", at));
  }

 private:
  enum class Field : std::uint8_t { dtype, shape, offsets, none };

  bool in_metadata() const { return depth_ == 2 && name_ == metadata_name; }

  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(fmt::format("{}: {}", shown(name_), why));
  }
  [[noreturn]] static void twice(const std::string& key) {
    throw InputError(fmt::format("the header has {} twice", shown(key)));
  }
  [[noreturn]] static void too_deep() {
    throw InputError(fmt::format("the header nests deeper than {}", deepest));
  }

  bool number(std::optional<std::uint64_t> value) {
    if (depth_ != deepest) return other();
    if (!value) fail("sizes and offsets are whole numbers, 0 or more");
    (field_ == Field::shape ? shape_ : offsets_).push_back(std::int64_t(*value));
    return true;
  }

  // A value of a type that is invalid at its position.
  bool other() const {
    if (depth_ == 0) throw InputError("the header is no JSON object");
    if (in_metadata()) fail(fmt::format("{} is no text", shown(metadata_->first)));
    if (depth_ == 1)
      fail(name_ == metadata_name ? "expected an object of texts"
                                  : "expected an object with dtype, shape and data_offsets");
    if (depth_ == deepest) fail("sizes and offsets are whole numbers, 0 or more");
    fail("expected dtype as text, shape as a list, data_offsets as a list of two");
  }

  void finish_entry() {
    if (!given_[0] || !given_[1] || !given_[2])
      fail("expected an object with dtype, shape and data_offsets");
    if (offsets_.size() != 2)
      fail("expected dtype as text, shape as a list, data_offsets as a list of two");
    const auto known = std::find_if(type_names.begin(), type_names.end(),
                                    [&](const TypeName& t) { return t.name == type_name_; });
    if (known == type_names.end())
      fail(fmt::format("type {} is none of F16, BF16, F32, F64, I32, I64, U8", shown(type_name_)));
    const auto bytes = bytes_of(known->type, shape_);
    if (!bytes) fail("its shape has more elements than can be counted");
    const auto begin = std::size_t(offsets_[0]), end = std::size_t(offsets_[1]);
    if (begin > end || end - begin != *bytes)
      fail(fmt::format("{} {} takes {} bytes, data_offsets are {} to {}", type_name_,
                       shown(to_string(shape_)), *bytes, begin, end));
    const auto place =
        file_.arrays.emplace(std::move(name_), Array{known->type, std::move(shape_), {}}).first;
    entries.push_back({begin, end, &place->first});
  }

  ArrayFile& file_;
  int depth_ = 0;
  std::string name_;  // of the array, or of the metadata
  bool has_metadata_ = false;
  std::map<std::string, std::string>::iterator metadata_;
  Field field_ = Field::none;
  std::array<bool, 3> given_{};
  std::string type_name_;
  std::vector<std::int64_t> shape_, offsets_;
};

constexpr std::string_view no_checksum = "00000000";

// Replaces the header's "convlab_crc32":"1a2b3c4d"; false if it is not there in the form written
// here.
bool replace_checksum(std::string& header, std::string_view value, std::string_view by) {
  const std::string text = fmt::format("\"{}\":\"{}\"", checksum_key, value);
  std::size_t at = header.find(text);
  // After a backslash it is the end of another key.
  while (at != header.npos && at > 0 && header[at - 1] == '\\') at = header.find(text, at + 1);
  if (at == header.npos || value.size() != by.size()) return false;
  header.replace(at + text.size() - 1 - value.size(), value.size(), by);
  return true;
}

std::uint32_t checksum(std::uint32_t before, ConstSpan bytes) {
  if (bytes.empty()) return before;  // zlib treats a null pointer as a restart
  return std::uint32_t(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

class Safetensors final : public ArraySource {
 public:
  explicit Safetensors(std::unique_ptr<ByteSource> file) : file_(std::move(file)) {
    text_ = read_header();
    HeaderReader reader(header);
    // Strict: nothing may follow the object.
    json::sax_parse(text_, &reader, nlohmann::detail::input_format_t::json, true);
    require_in_order(reader.entries);
    if (const auto found = header.metadata.find(std::string(checksum_key));
        found != header.metadata.end()) {
      checksum_ = found->second;
      header.metadata.erase(found);
    } else {
      text_ = {};
    }
  }

  void read(const std::string& name, Span to) const override { file_->read(begin_.at(name), to); }

  bool has_checksum() const override { return checksum_.has_value(); }

  void verify() const override {
    if (!checksum_) return;
    std::string text = text_;
    const bool found = replace_checksum(text, *checksum_, no_checksum);
    std::uint32_t sum = checksum(0, std::as_bytes(std::span(text)));
    std::vector<std::byte> piece(1 << 20);
    for (std::size_t done = data_; found && done < file_->size();) {
      const Span part = Span(piece).first(std::min(piece.size(), file_->size() - done));
      file_->read(done, part);
      sum = checksum(sum, part);
      done += part.size();
    }
    if (!found || *checksum_ != fmt::format("{:08x}", sum))
      throw InputError(fmt::format(
          "it is damaged: its checksum is not the {} that it was written with (a program that "
          "changes it on purpose leaves {} out of the metadata)",
          shown(*checksum_), checksum_key));
  }

 private:
  std::string read_header() {
    const std::size_t size = file_->size();
    std::vector<std::byte> first(std::min(size, kind_bytes));
    file_->read(0, first);
    std::uint64_t length = 0;
    if (size >= length_bytes) std::memcpy(&length, first.data(), length_bytes);
    const bool fits = size >= length_bytes && length <= size - length_bytes;
    if (const std::string kind = kind_of_content(first); !fits && !kind.empty())
      throw InputError(fmt::format("it is {}, not safetensors", kind));
    if (size < length_bytes)
      throw InputError(fmt::format("{} bytes are too few for a safetensors file", size));
    if (!fits)
      throw InputError(
          fmt::format("it is no safetensors: the header would be {} bytes long, past the end of {}",
                      length, size));
    if (length > longest_header)
      throw InputError(
          fmt::format("the header is {} bytes long, at most {} are read", length, longest_header));
    std::string text(length, '\0');
    file_->read(length_bytes, std::as_writable_bytes(std::span(text)));
    data_ = length_bytes + length;
    return text;
  }

  // One after another without gaps, up to the file's end.
  void require_in_order(std::vector<Entry>& entries) {
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::size_t at = 0;
    for (const Entry& entry : entries) {
      if (entry.begin != at)
        throw InputError(fmt::format("{}: its data begin at {}, those before them end at {}",
                                     shown(*entry.name), entry.begin, at));
      at = entry.end;
      begin_.emplace(*entry.name, data_ + entry.begin);
    }
    if (at != file_->size() - data_)
      throw InputError(fmt::format("the header describes {} bytes of data, the file has {}", at,
                                   file_->size() - data_));
  }

  std::unique_ptr<ByteSource> file_;
  std::size_t data_ = 0;  // start of the data
  std::map<std::string, std::size_t> begin_;
  std::optional<std::string> checksum_;
  std::string text_;  // the header, if there is a checksum
};

}  // namespace

std::unique_ptr<ArraySource> open_safetensors(std::unique_ptr<ByteSource> file) {
  return std::make_unique<Safetensors>(std::move(file));
}

// The widest elements first and the header padded to 8 bytes, so that every array is aligned, as
// the format's own writers do.
SafetensorsPieces safetensors_pieces(const ArrayFile& file) {
  std::vector<const std::pair<const std::string, Array>*> order;
  for (const auto& entry : file.arrays) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return size_of(a->second.type) > size_of(b->second.type);
  });
  SafetensorsPieces pieces;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  // Its operator[] compares with every earlier key; these are all different.
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  std::map<std::string, std::string> metadata = file.metadata;
  metadata[std::string(checksum_key)] = no_checksum;
  members.emplace_back(metadata_name, metadata);
  std::size_t at = 0;
  for (const auto* entry : order) {
    const auto& [name, array] = *entry;
    require_whole(name, array);
    if (name == metadata_name)
      throw InputError(fmt::format("an array cannot be called {}", metadata_name));
    const auto type =
        std::find_if(type_names.begin(), type_names.end(),
                     [&array = array](const TypeName& t) { return t.type == array.type; });
    members.emplace_back(name,
                         nlohmann::ordered_json{{"dtype", type->name},
                                                {"shape", array.shape},
                                                {"data_offsets", {at, at + array.bytes.size()}}});
    at += array.bytes.size();
    pieces.data.push_back(array.bytes);
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    throw InputError("a name or its metadata are no UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::uint32_t sum = checksum(0, std::as_bytes(std::span(text)));
  for (const ConstSpan piece : pieces.data) sum = checksum(sum, piece);
  replace_checksum(text, no_checksum, fmt::format("{:08x}", sum));
  const std::uint64_t length = text.size();
  pieces.header.assign(reinterpret_cast<const char*>(&length), length_bytes);
  pieces.header += text;
  return pieces;
}

std::vector<std::byte> to_safetensors(const ArrayFile& file) {
  const SafetensorsPieces pieces = safetensors_pieces(file);
  const auto header = std::as_bytes(std::span(pieces.header));
  std::vector<std::byte> bytes(header.begin(), header.end());
  for (const ConstSpan data : pieces.data) bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

}  // namespace convlab::nets
