// An ONNX file and what it says of its values before any node is computed.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "nets/onnx/layers.h"
#include "nets/onnx/shapes.h"

namespace convlab::nets::onnx_reader {

// Throw InputError, naming the file, for one that is no ONNX model.
onnx::ModelProto read_model(const std::string& path);
onnx::ModelProto decode_model(std::span<const std::uint8_t> file, const std::string& name);

// Conv, ConvInteger, QLinearConv or ConvTranspose.
bool is_convolution(const onnx::NodeProto&);
// Whether the operator is ONNX's own and not of another domain.
bool is_standard(const onnx::NodeProto&);

struct Known {
  // Tensors of the file, inputs, and what the file says of values that its nodes compute.
  Values values;
  // Inputs without a value in the file, in its order; an export without weights has these here too.
  std::vector<std::string> inputs;
  std::set<std::string> images;  // those whose first dimension is the batch
  std::vector<std::string> notes;
};
// Throws InputError for symbolic sizes that nothing says, and for sizes that the model does not
// name.
Known known_values(const onnx::ModelProto&, const OnnxSizes&);

}  // namespace convlab::nets::onnx_reader
