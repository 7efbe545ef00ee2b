#include "nets/onnx/constants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <numeric>
#include <optional>

#include "conv/error.h"
#include "nets/onnx/attributes.h"
#include "nets/onnx/model.h"

namespace convlab::nets::onnx_reader {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& tensor, const std::string& what) {
  throw InputError(fmt::format("tensor '{}': {}", tensor, what));
}

// ---- Which values are constants ----

bool is_in_order(const std::vector<std::size_t>& order) {
  return std::is_sorted(order.begin(), order.end());
}

std::optional<Constant> transposed(const onnx::NodeProto& node, Constant c) {
  Dims perm = integers(node, "perm");
  if (perm.empty())
    for (std::size_t i = c.dims.size(); i-- > 0;) perm.push_back(std::int64_t(i));
  if (perm.size() != c.dims.size()) return {};
  if (c.order.empty()) {
    c.order.resize(c.dims.size());
    std::iota(c.order.begin(), c.order.end(), 0);
  }
  Dims dims;
  std::vector<std::size_t> order;
  std::vector<bool> taken(perm.size());
  for (const std::int64_t axis : perm) {
    if (axis < 0 || axis >= std::int64_t(perm.size()) || taken[std::size_t(axis)]) return {};
    taken[std::size_t(axis)] = true;
    dims.push_back(c.dims[std::size_t(axis)]);
    order.push_back(c.order[std::size_t(axis)]);
  }
  c.dims = std::move(dims);
  c.order = std::move(order);
  return c;
}

// What a node makes of a constant by looking at it in another way; nullopt if it computes.
std::optional<Constant> view(const onnx::NodeProto& node, const Constant& c, const Value& out) {
  const std::string& op = node.op_type();
  if (op == "Identity") return c;
  if (op == "Cast") return is_real(integer(node, "to", 0)) ? std::optional(c) : std::nullopt;
  if (op == "Transpose") return transposed(node, c);
  const bool reshapes = op == "Reshape" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze";
  if (!reshapes || !out.complete() || !is_in_order(c.order)) return {};
  Constant seen = c;
  seen.dims = *out.dims;
  seen.order.clear();
  if (seen.elements() != c.elements()) return {};
  return seen;
}

// ---- Their elements ----

std::optional<ElementType> element_type(int type) {
  switch (type) {
    case onnx::TensorProto::FLOAT:
      return ElementType::f32;
    case onnx::TensorProto::DOUBLE:
      return ElementType::f64;
    case onnx::TensorProto::FLOAT16:
      return ElementType::f16;
    case onnx::TensorProto::BFLOAT16:
      return ElementType::bf16;
    case onnx::TensorProto::INT64:
      return ElementType::i64;
    default:
      return {};
  }
}

std::uint64_t number(const onnx::TensorProto& t, const std::string& key, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(t.name(), fmt::format("{} '{}': expected a number", key, text));
  return value;
}

// Of a file in the model's folder or below it, where links lead too.
std::vector<std::byte> read_external(const onnx::TensorProto& t, std::size_t bytes,
                                     const Folder& folder) {
  std::string location;
  std::uint64_t offset = 0, length = bytes;
  for (const onnx::StringStringEntryProto& entry : t.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = number(t, "offset", entry.value());
    if (entry.key() == "length") length = number(t, "length", entry.value());
  }
  if (!folder) fail(t.name(), "its data is in a file: a model in memory has none");
  const fs::path relative(location);
  std::error_code error;
  const fs::path root = fs::weakly_canonical(folder->empty() ? "." : *folder, error);
  const fs::path path = fs::weakly_canonical(root / relative, error);
  const auto inside = std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first;
  if (location.empty() || relative.is_absolute() || error || inside != root.end())
    fail(t.name(),
         fmt::format("its data is in '{}': expected a file in the model's folder", location));
  if (!fs::is_regular_file(path, error))
    fail(t.name(), fmt::format("its data is in '{}', which is not there", location));
  const std::uint64_t size = fs::file_size(path, error);
  if (error || length != bytes || offset > size || bytes > size - offset)
    fail(t.name(), fmt::format("{} bytes from {} of '{}': it takes {}, and the file has {}", length,
                               offset, location, bytes, size));
  std::vector<std::byte> data(bytes);
  std::ifstream file(path, std::ios::binary);
  file.seekg(std::streamoff(offset));
  if (!file.read(reinterpret_cast<char*>(data.data()), std::streamsize(bytes)))
    fail(t.name(), fmt::format("'{}' cannot be read", location));
  return data;
}

template <class From, class To>
std::vector<std::byte> packed(const From& field) {
  std::vector<std::byte> bytes(std::size_t(field.size()) * sizeof(To));
  for (int i = 0; i < field.size(); ++i) {
    const auto element = To(field.Get(i));
    std::memcpy(bytes.data() + std::size_t(i) * sizeof(To), &element, sizeof(To));
  }
  return bytes;
}

// The tensor's elements in its own order.
std::vector<std::byte> stored(const onnx::TensorProto& t, ElementType type, std::size_t bytes,
                              const Folder& folder) {
  if (t.data_location() == onnx::TensorProto::EXTERNAL) return read_external(t, bytes, folder);
  std::vector<std::byte> data;
  if (const std::string& raw = t.raw_data(); !raw.empty()) {
    if (raw.size() == bytes) {
      data.resize(bytes);
      std::memcpy(data.data(), raw.data(), bytes);
      return data;
    }
    fail(t.name(), fmt::format("{} bytes: its sizes take {}", raw.size(), bytes));
  }
  if (type == ElementType::f32)
    data = packed<decltype(t.float_data()), float>(t.float_data());
  else if (type == ElementType::i64)
    data = packed<decltype(t.int64_data()), std::int64_t>(t.int64_data());
  else if (type == ElementType::f64)
    data = packed<decltype(t.double_data()), double>(t.double_data());
  else
    data = packed<decltype(t.int32_data()), std::uint16_t>(t.int32_data());
  if (data.empty() && bytes > 0)
    fail(t.name(), "has no elements: the model was exported without its weights");
  if (data.size() != bytes)
    fail(t.name(), fmt::format("{} bytes: its sizes take {}", data.size(), bytes));
  return data;
}

// Copies elements from the tensor's order into that of the constant's axes.
std::vector<std::byte> reordered(const Constant& c, const std::vector<std::byte>& from,
                                 std::size_t size) {
  const std::size_t rank = c.dims.size();
  Dims strides(rank);  // in `from`, of the constant's axes
  for (std::size_t i = 0; i < rank; ++i) {
    strides[i] = 1;
    for (std::size_t j = 0; j < rank; ++j)
      if (c.order[j] > c.order[i]) strides[i] *= c.dims[j];
  }
  std::vector<std::byte> to(from.size());
  Dims at(rank, 0);
  std::int64_t place = 0;
  for (std::size_t i = 0; i < from.size(); i += size) {
    std::memcpy(to.data() + i, from.data() + std::size_t(place) * size, size);
    for (std::size_t axis = rank; axis-- > 0;) {
      place += strides[axis];
      if (++at[axis] < c.dims[axis]) break;
      place -= strides[axis] * c.dims[axis];
      at[axis] = 0;
    }
  }
  return to;
}

}  // namespace

std::int64_t Constant::elements() const {
  constexpr std::int64_t most = std::int64_t{1} << 62;
  std::int64_t n = 1;
  for (const std::int64_t d : dims)
    if (__builtin_mul_overflow(n, d, &n) || n > most) return most;
  return n;
}

Constants constants_of(const onnx::GraphProto& graph, const Values& values,
                       const std::vector<std::string>& inputs) {
  Constants found;
  const auto add = [&](const std::string& name, Constant c) {
    c.name = name;
    found.insert_or_assign(name, std::move(c));
  };
  const auto add_tensor = [&](const std::string& name, const onnx::TensorProto& tensor) {
    add(name, {.dims = {tensor.dims().begin(), tensor.dims().end()}, .tensor = &tensor});
  };
  for (std::size_t i = 1; i < inputs.size(); ++i)
    if (const auto v = values.find(inputs[i]); v != values.end() && v->second.complete())
      add(inputs[i], {.dims = *v->second.dims});
  for (const onnx::TensorProto& tensor : graph.initializer()) add_tensor(tensor.name(), tensor);
  for (const onnx::NodeProto& node : graph.node()) {
    if (!is_standard(node) || node.output_size() < 1) continue;
    const std::string& name = node.output(0);
    const auto v = values.find(name);
    const auto source = node.input_size() > 0 ? found.find(node.input(0)) : found.end();
    if (const onnx::AttributeProto* const a = attribute(node, "value");
        node.op_type() == "Constant" && a && a->has_t()) {
      value_of(a->t());  // refuses sizes that cannot be
      add_tensor(name, a->t());
    } else if (v != values.end() && v->second.complete() && v->second.data) {
      add(name, {.dims = *v->second.dims, .data = *v->second.data});
    } else if (source != found.end() && v != values.end()) {
      if (std::optional<Constant> seen = view(node, source->second, v->second))
        add(name, *std::move(seen));
    }
  }
  return found;
}

Array read_constant(const Constant& c, const Folder& folder) {
  if (!c.tensor) {
    if (std::int64_t(c.data.size()) != c.elements())
      fail(c.name, "has no elements: the model was exported without its weights");
    Array array = array_of(ElementType::f64, c.dims, c.data);
    if (!is_in_order(c.order)) array.bytes = reordered(c, array.bytes, size_of(array.type));
    return array;
  }
  const std::optional<ElementType> type = element_type(c.tensor->data_type());
  if (!type)
    fail(c.name, fmt::format("is {}: weights are FLOAT, DOUBLE, FLOAT16 or BFLOAT16",
                             onnx::TensorProto::DataType_Name(c.tensor->data_type())));
  const std::optional<std::size_t> bytes = bytes_of(*type, c.dims);
  if (!bytes) fail(c.name, fmt::format("sizes {} cannot be", fmt::join(c.dims, "x")));
  Array array{*type, c.dims, stored(*c.tensor, *type, *bytes, folder)};
  if (!is_in_order(c.order)) array.bytes = reordered(c, array.bytes, size_of(*type));
  return array;
}

}  // namespace convlab::nets::onnx_reader
