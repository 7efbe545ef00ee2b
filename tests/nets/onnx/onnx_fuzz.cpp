// Bytes that take the readers of ONNX models down, or that these believe.
#include <cstddef>
#include <cstdint>

#include "conv/error.h"
#include "nets/onnx/layers.h"
#include "nets/onnx/net.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convlab;
  const nets::OnnxSizes sizes{{{"N", 2}, {"height", 43}, {"width", 38}}, {}};
  try {
    const nets::OnnxLayers model = nets::decode_onnx_layers({data, size}, "fuzz", sizes);
    for (const nets::ConvLayer& conv : model.layers) validate(conv.layer.problem);
  } catch (const InputError&) {
  }
  for (const nets::OnnxSizes& some : {sizes, nets::OnnxSizes{}, nets::OnnxSizes{{}, 3}}) try {
      const nets::OnnxNet net = nets::decode_onnx_net({data, size}, "fuzz", some);
      nets::conv_layers(net.graph());
      net.weights();
    } catch (const InputError&) {
    }
  return 0;
}
