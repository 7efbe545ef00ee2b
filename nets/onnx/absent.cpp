// In place of the others where the build has no libonnx.
#include <fmt/format.h>

#include "conv/error.h"
#include "nets/onnx/layers.h"
#include "nets/onnx/net.h"

namespace convlab::nets {
namespace {

[[noreturn]] void refuse(const std::string& file) {
  throw InputError(fmt::format(
      "{}: this build reads no ONNX: install libonnx-dev and libprotobuf-dev, and build again",
      file));
}

}  // namespace

OnnxLayers read_onnx_layers(const std::string& file, const OnnxSizes&) { refuse(file); }

OnnxLayers decode_onnx_layers(std::span<const std::uint8_t>, const std::string& name,
                              const OnnxSizes& sizes) {
  return read_onnx_layers(name, sizes);
}

class OnnxNet::Model {
 public:
  Graph graph{""};
  std::vector<std::string> notes;
};

const Graph& OnnxNet::graph() const { return model_->graph; }
ArrayFile OnnxNet::weights() const { return {}; }
const std::vector<std::string>& OnnxNet::notes() const { return model_->notes; }

OnnxNet read_onnx_net(const std::string& file, const OnnxSizes&) { refuse(file); }

OnnxNet decode_onnx_net(std::span<const std::uint8_t>, const std::string& name,
                        const OnnxSizes& sizes) {
  return read_onnx_net(name, sizes);
}

}  // namespace convlab::nets
