// Files of tensors in the safetensors format: eight bytes of length, a JSON header of that length
// with each tensor's type, shape and place, and the tensors' bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace convlab {

struct SafeTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // F16, F32, F64 and I32 all fit
};

struct SafeTensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, SafeTensor> tensors;

  // Throws InputError for a name that is not there.
  const SafeTensor& at(const std::string& name) const;
};

// Throws InputError, one line with the file and what is wrong with it.
SafeTensors read_safetensors(const std::filesystem::path&);

}  // namespace convlab
