// An ONNX model (onnx.ai) as a net: its operators as layers, its tensors as parameters.
//
//   OnnxNet model = read_onnx_net("resnet18.onnx", {.dims = {}, .batch = 16});
//   Net net(model.graph(), plan, algos, device, {.loss = Loss::none});
//   load_weights(net, model.weights(), "resnet18.onnx");
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nets/graph.h"
#include "nets/onnx/layers.h"
#include "nets/weights/arrays.h"

namespace convlab::nets {

class OnnxNet {
 public:
  class Model;
  explicit OnnxNet(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

  // Named as the file; layers as the model's nodes. Ends with the scores: a softmax behind them is
  // left out. Of several outputs it computes the first.
  const Graph& graph() const;
  // The graph's parameters, of the file's types. Reads files beside the model that hold its
  // tensors, if they lie in its folder. Throws InputError for tensors without elements, as in an
  // export without weights, or with others than their sizes say.
  ArrayFile weights() const;
  // What was assumed or left out, a line each.
  const std::vector<std::string>& notes() const;

 private:
  std::shared_ptr<const Model> model_;
};

// Throws InputError, naming the file: for one that is no ONNX model or contradicts itself, for
// symbolic sizes that nothing says, and, in one line with all of its nodes, for operators that no
// layer computes. Reads no weights.
OnnxNet read_onnx_net(const std::string& file, const OnnxSizes&);
// The same of a model in memory; `name` is for messages. Data beside it is not read.
OnnxNet decode_onnx_net(std::span<const std::uint8_t> file, const std::string& name,
                        const OnnxSizes&);

}  // namespace convlab::nets
