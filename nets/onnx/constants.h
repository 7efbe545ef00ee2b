// Values that a model has in its file, as weights of a net: their elements are read when they are
// wanted, and not before.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nets/onnx/shapes.h"
#include "nets/weights/arrays.h"

namespace convlab::nets::onnx_reader {

struct Constant {
  Dims dims;
  // Null: `data` has the elements, or the model was exported without them.
  const onnx::TensorProto* tensor = nullptr;
  std::vector<double> data = {};
  // Axis i of `dims` is this axis of the tensor; empty: all in the tensor's order.
  std::vector<std::size_t> order = {};
  std::string name = {};  // the model's, for messages

  std::int64_t elements() const;  // at most 2^62
};

using Constants = std::map<std::string, Constant>;

// The tensors of a graph, its Constant nodes, its inputs but for the first, which some exports have
// instead of tensors, and what views of these give (Identity, Cast, Transpose, Reshape and the
// like). `values` are those of every node.
Constants constants_of(const onnx::GraphProto&, const Values&,
                       const std::vector<std::string>& inputs);

// The model's: data beside it may not lie elsewhere. nullopt: a model in memory, which has none.
using Folder = std::optional<std::filesystem::path>;

// Elements in the order of `dims`, of the file's type. Throws InputError where the file has other
// bytes than its sizes say, no elements, or a type that neither weights nor indices have.
Array read_constant(const Constant&, const Folder&);

}  // namespace convlab::nets::onnx_reader
