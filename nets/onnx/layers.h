// The convolutions of an ONNX model (onnx.ai), for tuning. Only the graph is read: weights may be
// missing, and files that hold them beside the model are never opened.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nets/graph.h"

namespace convlab::nets {

// Sizes that the file leaves open or that are to be others than its own.
struct OnnxSizes {
  std::map<std::string, std::int64_t> dims;  // of the file's symbolic dimensions, by name
  std::optional<std::int64_t> batch;         // of every input's first dimension; nullopt: as in the
                                             // file, 1 where that is symbolic
};

struct OnnxLayers {
  // Every Conv and ConvTranspose whose shape is known, in the file's order, each with count 1;
  // named as its node, or as its output where nodes have no names.
  std::vector<ConvLayer> layers;
  // What was assumed or left out, a line each.
  std::vector<std::string> notes;
};

// Throws InputError, naming the file: for one that is no ONNX model or contradicts itself, for
// symbolic sizes that nothing says, and where no convolution's shape is known.
OnnxLayers read_onnx_layers(const std::string& file, const OnnxSizes&);
// The same of a model in memory; `name` is for messages.
OnnxLayers decode_onnx_layers(std::span<const std::uint8_t> file, const std::string& name,
                              const OnnxSizes&);

}  // namespace convlab::nets
