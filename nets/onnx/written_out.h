// Activations that exporters write as several nodes: SiLU, Mish, hard swish, hard sigmoid and GELU.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "nets/graph.h"
#include "nets/onnx/shapes.h"

namespace convlab::nets::onnx_reader {

using Node = onnx::NodeProto;

// The nodes that read each value. The outputs of a graph have one reader more, null.
using Readers = std::unordered_map<std::string, std::vector<const Node*>>;

struct WrittenOut {
  Layer layer = Activation{};
  std::string input;
};
struct WrittenOutActivations {
  std::map<const Node*, WrittenOut> last;  // by the last node of each
  std::unordered_set<const Node*> inner;   // nodes before the last, which nothing else reads
};
WrittenOutActivations find_written_out(const onnx::GraphProto&, const Values&, const Readers&);

// The only element of a value that has one.
std::optional<double> scalar(const Values&, const std::string& name);
bool is_about(std::optional<double> value, double expected);  // to four digits
// A Clip's bounds, infinite where it has none; nullopt where the model computes one.
std::optional<std::pair<double, double>> clip_bounds(const Values&, const Node& clip);
bool clips_to(const Values&, const Node& clip, double least, double most);

}  // namespace convlab::nets::onnx_reader
