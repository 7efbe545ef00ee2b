// In place of layers.cpp where the build has no libonnx.
#include <fmt/format.h>

#include "conv/error.h"
#include "nets/onnx/layers.h"

namespace convlab::nets {

OnnxLayers read_onnx_layers(const std::string& file, const OnnxSizes&) {
  throw InputError(fmt::format(
      "{}: this build reads no ONNX: install libonnx-dev and libprotobuf-dev, and build again",
      file));
}

OnnxLayers decode_onnx_layers(std::span<const std::uint8_t>, const std::string& name,
                              const OnnxSizes& sizes) {
  return read_onnx_layers(name, sizes);
}

}  // namespace convlab::nets
