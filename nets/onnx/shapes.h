// Shapes of an ONNX graph's values, node by node. An operator's rule holds for every opset: where
// opsets differ in the form of an attribute, both forms are read.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace convlab::nets::onnx_reader {

using Dims = std::vector<std::int64_t>;
// What a file may claim of one dimension: sums and products of a few such sizes do not overflow.
inline constexpr std::int64_t largest_size = std::int64_t{1} << 31;

// A size or a place that a file has as a number of any type, within bounds; NaN is the least.
inline std::int64_t bounded(double v, double least = -double(largest_size)) {
  return std::int64_t(v > least ? std::min(v, double(largest_size)) : least);
}

// What is known of a value.
struct Value {
  std::optional<Dims> dims;  // each -1 where unknown
  // The elements of a small tensor: shapes are computed by the graph itself. Integers below 2^53.
  std::optional<std::vector<double>> data;
  std::string unknown_since;  // without dims: the node or input that is to blame

  bool complete() const;  // all dims are known
};

using Values = std::map<std::string, Value>;

// A window's sizes along each spatial axis, of Conv, ConvTranspose and pooling, with auto_pad
// resolved.
struct Window {
  Dims kernel, stride, dilation, pad_begin, pad_end;
};
// `image`: the input's spatial sizes. Throws InputError for attributes that contradict each other.
Window window_of(const onnx::NodeProto&, const Dims& image, const Dims& kernel);
Dims output_of(const Window&, const Dims& image, bool ceil_mode = false);
// A ConvTranspose's output, which may name its sizes itself; the paddings follow then.
Dims transposed_output(const onnx::NodeProto&, Window&, const Dims& image);

// Which input of a Conv, ConvInteger, QLinearConv or ConvTranspose is its filter.
inline int filter_input(const onnx::NodeProto& node) {
  return node.op_type() == "QLinearConv" ? 3 : 1;
}

// The elements of a tensor if they are few and in the file; nullopt otherwise.
Value value_of(const onnx::TensorProto&);

// Adds what the node's outputs are. An operator without a rule leaves them unknown, unless the file
// says. Throws InputError for sizes that contradict each other.
void infer(const onnx::NodeProto&, Values&);

// The node's, or that of its output where nodes have no names.
std::string name_of(const onnx::NodeProto&);
std::string describe(const onnx::NodeProto&);  // "Conv 'features.0'"

}  // namespace convlab::nets::onnx_reader
