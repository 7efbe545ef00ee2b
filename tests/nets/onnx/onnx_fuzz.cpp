// Bytes that take the reader of ONNX models down, or that it believes.
#include <cstddef>
#include <cstdint>

#include "conv/error.h"
#include "nets/onnx/layers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convlab;
  try {
    const nets::OnnxLayers model = nets::decode_onnx_layers(
        {data, size}, "fuzz", {{{"N", 2}, {"height", 43}, {"width", 38}}, {}});
    for (const nets::ConvLayer& conv : model.layers) validate(conv.layer.problem);
  } catch (const InputError&) {
  }
  return 0;
}
