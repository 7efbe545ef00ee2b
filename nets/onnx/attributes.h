// A node's attributes, with the defaults of the operators.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convlab::nets::onnx_reader {

inline const onnx::AttributeProto* attribute(const onnx::NodeProto& node, std::string_view name) {
  for (const onnx::AttributeProto& a : node.attribute())
    if (a.name() == name) return &a;
  return nullptr;
}

inline std::int64_t integer(const onnx::NodeProto& node, std::string_view name,
                            std::int64_t otherwise) {
  const onnx::AttributeProto* const a = attribute(node, name);
  return a ? a->i() : otherwise;
}

inline double real(const onnx::NodeProto& node, std::string_view name, double otherwise) {
  const onnx::AttributeProto* const a = attribute(node, name);
  return a ? double(a->f()) : otherwise;
}

inline std::string text(const onnx::NodeProto& node, std::string_view name) {
  const onnx::AttributeProto* const a = attribute(node, name);
  return a ? a->s() : std::string();
}

// Of floating-point element types.
inline bool is_real(std::int64_t type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE ||
         type == onnx::TensorProto::FLOAT16 || type == onnx::TensorProto::BFLOAT16;
}

// Empty if it has none.
inline std::vector<std::int64_t> integers(const onnx::NodeProto& node, std::string_view name) {
  const onnx::AttributeProto* const a = attribute(node, name);
  return a ? std::vector<std::int64_t>(a->ints().begin(), a->ints().end())
           : std::vector<std::int64_t>();
}

}  // namespace convlab::nets::onnx_reader
