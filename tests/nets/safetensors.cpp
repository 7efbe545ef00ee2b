#include "tests/nets/safetensors.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "conv/error.h"
#include "conv/half.h"

namespace convlab {
namespace {

template <class T>
std::vector<double> values_of(std::string_view bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

SafeTensor tensor_of(const nlohmann::json& entry, std::string_view data) {
  const auto type = entry.at("dtype").get<std::string>();
  const auto [begin, end] = entry.at("data_offsets").get<std::pair<std::size_t, std::size_t>>();
  SafeTensor tensor{entry.at("shape").get<std::vector<std::int64_t>>(), {}};
  if (begin > end || end > data.size())
    throw InputError(fmt::format("bytes {} to {} of {}", begin, end, data.size()));
  const std::string_view bytes = data.substr(begin, end - begin);
  std::size_t count = 1, size = 0;
  for (const std::int64_t n : tensor.shape) count *= std::size_t(n);
  if (type == "F16") size = 2, tensor.values = values_of<Float16>(bytes);
  if (type == "F32") size = 4, tensor.values = values_of<float>(bytes);
  if (type == "F64") size = 8, tensor.values = values_of<double>(bytes);
  if (type == "I32") size = 4, tensor.values = values_of<std::int32_t>(bytes);
  if (size == 0) throw InputError(fmt::format("type {} is not F16, F32, F64 or I32", type));
  if (bytes.size() != count * size)
    throw InputError(fmt::format("{} bytes for {} of {}", bytes.size(), count, type));
  return tensor;
}

}  // namespace

const SafeTensor& SafeTensors::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw InputError(fmt::format("there is no tensor {}", name));
  return found->second;
}

SafeTensors read_safetensors(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError(fmt::format("{}: cannot be read", path.string()));
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t length = 0;
  if (file.size() >= 8) std::memcpy(&length, file.data(), 8);
  if (file.size() < 8 || length > file.size() - 8)
    throw InputError(fmt::format("{}: shorter than its header", path.string()));
  const std::string_view data = std::string_view(file).substr(8 + length);
  SafeTensors result;
  std::string part = "header";
  try {
    const nlohmann::json header = nlohmann::json::parse(file.substr(8, length));
    for (const auto& [name, entry] : header.items()) {
      part = name;
      if (name == "__metadata__")
        result.metadata = entry.get<std::map<std::string, std::string>>();
      else
        result.tensors[name] = tensor_of(entry, data);
    }
  } catch (const std::exception& error) {
    throw InputError(fmt::format("{}, {}: {}", path.string(), part, error.what()));
  }
  return result;
}

}  // namespace convlab
