// For libFuzzer: on no input may the readers of array files read out of bounds, take unbounded
// memory, or throw anything but InputError. Accepted input must round-trip through the writers.
#include <cstdlib>
#include <span>

#include "conv/error.h"
#include "nets/weights/arrays.h"

namespace convlab::nets {
namespace {

void try_format(ConstSpan bytes, ArrayFile (*parse)(ConstSpan, const std::string&),
                std::vector<std::byte> (*write)(const ArrayFile&)) {
  ArrayFile file;
  try {
    file = parse(bytes, "f");
  } catch (const InputError&) {
    return;
  }
  std::vector<std::byte> written;
  try {
    written = write(file);
  } catch (const InputError&) {  // names that other readers would refuse
    return;
  }
  const ArrayFile back = parse(written, "written");
  if (back.arrays != file.arrays || back.metadata != file.metadata) std::abort();
}

}  // namespace
}  // namespace convlab::nets

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convlab;
  using namespace convlab::nets;
  const auto bytes = std::as_bytes(std::span(data, size));
  try_format(bytes, parse_safetensors, to_safetensors);
  try_format(bytes, parse_npz, to_npz);
  return 0;
}
