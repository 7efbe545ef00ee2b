// A net's weights in a file, under torchvision's key names and in its shapes: filters KCRS, and for
// each batch norm also running_mean, running_var and num_batches_tracked.
//
//   load_weights(net, ArrayReader("resnet18.safetensors"));
//   write_arrays("mine.safetensors", weights_of(net));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nets/net.h"
#include "nets/weights/arrays.h"

namespace convlab::nets {

// Before the names of a checkpoint's arrays that are no weights, but an optimizer's.
inline constexpr std::string_view optimizer_prefix = "optimizer/";

// What a file of these parameters has: keys and shapes.
std::map<std::string, std::vector<std::int64_t>> weight_shapes(const std::vector<Parameter>&);

struct LoadedWeights {
  // Of auxiliary classifiers, which only the paper's way of training googlenet uses and which the
  // net here leaves out: "aux1", "aux2".
  std::vector<std::string> ignored;
  // Keys. Empty unless a partial file was allowed; then what is missing or misshapen stays as it
  // was in the net.
  std::vector<std::string> missing, unexpected, misshapen;
};
enum class Fit : std::uint8_t { strict, partial };

// Copies the weights into the net, rounded to its type. Throws InputError, one line that names the
// file and lists what is missing, unexpected, misshapen, or infinite or NaN, before anything is
// changed. A file may lack num_batches_tracked, as old ones do, and be a checkpoint
// (nets/train/checkpoint.h). Data of an open file are read only once all names and shapes are known
// to fit, one array at a time.
LoadedWeights load_weights(Net&, const ArrayReader&, Fit = Fit::strict);
LoadedWeights load_weights(Net&, const ArrayFile&, const std::string& name, Fit = Fit::strict);

// In the net's type. Batches tracked are the updates that the net has had.
ArrayFile weights_of(Net&);

// How many outputs the weights of this net's last layer have; 0 where the file does not say. Needs
// no bytes of the arrays.
std::int64_t outputs_of(const ArrayFile&, const Graph&);

}  // namespace convlab::nets
