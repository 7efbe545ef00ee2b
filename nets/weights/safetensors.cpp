// The safetensors format (https://github.com/huggingface/safetensors): tensors' bytes follow the
// header without gaps and without overlapping, each at the data_offsets that its entry has.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "conv/error.h"
#include "nets/weights/arrays.h"
#include "nets/weights/formats.h"

namespace convlab {
namespace {

using nlohmann::json;

constexpr std::size_t length_bytes = 8;
constexpr int deepest = 3;  // {"name": {"shape": [...]}}

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

// Nests no deeper than a header does, and has no key twice, of which a JSON object would keep one.
json parse_header(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= deepest)
      throw InputError(fmt::format("the header nests deeper than {}", deepest));
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw InputError(
          fmt::format("the header has {} twice", shown(parsed.get_ref<const std::string&>())));
    return true;
  };
  try {
    json header = json::parse(text, check);
    if (header.is_object()) return header;
  } catch (const json::parse_error& error) {
    throw InputError(fmt::format("the header is no JSON at its byte {}", error.byte));
  } catch (const json::out_of_range&) {
    throw InputError("the header has a number that is out of range");
  }
  throw InputError("the header is no JSON object");
}

struct Entry {
  std::size_t begin = 0, end = 0;
  std::string name;
  Array array;
};

// Sizes are std::int64_t here.
std::int64_t whole_number(const json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t(INT64_MAX))
    throw InputError("sizes and offsets are whole numbers, 0 or more");
  return value.get<std::int64_t>();
}

Entry parse_entry(const std::string& name, const json& entry) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets"))
    throw InputError("expected an object with dtype, shape and data_offsets");
  const json &dtype = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2)
    throw InputError("expected dtype as text, shape as a list, data_offsets as a list of two");

  Entry parsed{
      std::size_t(whole_number(offsets[0])), std::size_t(whole_number(offsets[1])), name, {}};
  const auto& type_name = dtype.get_ref<const std::string&>();
  const auto known = std::find_if(type_names.begin(), type_names.end(),
                                  [&](const TypeName& t) { return t.name == type_name; });
  if (known == type_names.end())
    throw InputError(
        fmt::format("type {} is none of F16, BF16, F32, F64, I32, I64, U8", shown(type_name)));
  parsed.array.type = known->type;
  for (const json& n : shape) parsed.array.shape.push_back(whole_number(n));
  const auto bytes = bytes_of(parsed.array.type, parsed.array.shape);
  if (!bytes) throw InputError("its shape has more elements than can be counted");
  if (parsed.begin > parsed.end || parsed.end - parsed.begin != *bytes)
    throw InputError(fmt::format("{} {} takes {} bytes, data_offsets are {} to {}", type_name,
                                 shown(to_string(parsed.array.shape)), *bytes, parsed.begin,
                                 parsed.end));
  return parsed;
}

std::map<std::string, std::string> parse_metadata(const json& metadata) {
  std::map<std::string, std::string> parsed;
  if (!metadata.is_object()) throw InputError("expected an object of texts");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) throw InputError(fmt::format("{} is no text", shown(key)));
    parsed[key] = value.get<std::string>();
  }
  return parsed;
}

ArrayFile parse(std::string_view file) {
  std::uint64_t length = 0;
  if (file.size() < length_bytes)
    throw InputError(fmt::format("{} bytes are too few for a safetensors file", file.size()));
  std::memcpy(&length, file.data(), length_bytes);
  if (length > file.size() - length_bytes)
    throw InputError(fmt::format("the header is {} bytes long, which is past the end of {}", length,
                                 file.size()));
  const json header = parse_header(file.substr(length_bytes, length));
  const std::string_view data = file.substr(length_bytes + length);

  ArrayFile result;
  std::vector<Entry> entries;
  for (const auto& [name, entry] : header.items()) {
    try {
      if (name == "__metadata__")
        result.metadata = parse_metadata(entry);
      else
        entries.push_back(parse_entry(name, entry));
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}", shown(name), error.what()));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::size_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at)
      throw InputError(fmt::format("{}: its data begin at {}, those before them end at {}",
                                   shown(entry.name), entry.begin, at));
    at = entry.end;
  }
  if (at != data.size())
    throw InputError(
        fmt::format("the header describes {} bytes of data, the file has {}", at, data.size()));
  for (Entry& entry : entries) {
    const auto bytes = std::as_bytes(std::span(data)).subspan(entry.begin, entry.end - entry.begin);
    entry.array.bytes.assign(bytes.begin(), bytes.end());
    result.arrays.emplace(std::move(entry.name), std::move(entry.array));
  }
  return result;
}

}  // namespace

ArrayFile parse_safetensors(ConstSpan bytes, const std::string& name) {
  try {
    return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", name, error.what()));
  }
}

// The widest elements first and the header padded to 8 bytes: then every array is aligned, as the
// format's own writers leave it.
SafetensorsPieces safetensors_pieces(const ArrayFile& file) {
  std::vector<const std::pair<const std::string, Array>*> order;
  for (const auto& entry : file.arrays) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return size_of(a->second.type) > size_of(b->second.type);
  });
  SafetensorsPieces pieces;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  std::size_t at = 0;
  for (const auto* entry : order) {
    const auto& [name, array] = *entry;
    require_whole(name, array);
    if (name == "__metadata__") throw InputError("an array cannot be called __metadata__");
    const auto type =
        std::find_if(type_names.begin(), type_names.end(),
                     [&array = array](const TypeName& t) { return t.type == array.type; });
    header[name] = {{"dtype", type->name},
                    {"shape", array.shape},
                    {"data_offsets", {at, at + array.bytes.size()}}};
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

}  // namespace convlab
