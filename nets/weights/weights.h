// A net's weights in a file, with torchvision's key names and shapes: filters KCRS, and for each
// batch norm also running_mean, running_var and num_batches_tracked.
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

// Prefix of the names of a checkpoint's optimizer arrays, which are not weights.
inline constexpr std::string_view optimizer_prefix = "optimizer/";

// Keys and shapes of these parameters' file.
std::map<std::string, std::vector<std::int64_t>> weight_shapes(const std::vector<Parameter>&);

struct LoadedWeights {
  // Auxiliary classifiers, "aux1", "aux2", which only the paper's training of googlenet uses and
  // which this net omits.
  std::vector<std::string> ignored;
  // Keys. Empty unless a partial file was allowed; missing or misshapen parameters then keep their
  // values.
  std::vector<std::string> missing, unexpected, misshapen;
};
enum class Fit : std::uint8_t { strict, partial };

// Copies the weights into the net, rounded to its type. Before anything is changed, throws
// InputError, one line that names the file and lists arrays that are missing, unexpected,
// misshapen, infinite or NaN. A file may lack num_batches_tracked, as old ones do, and may be a
// checkpoint (nets/train/checkpoint.h). An open file's data is read one array at a time, and only
// once all names and shapes are known to fit.
LoadedWeights load_weights(Net&, const ArrayReader&, Fit = Fit::strict);
LoadedWeights load_weights(Net&, const ArrayFile&, const std::string& name, Fit = Fit::strict);

// In the net's type. num_batches_tracked is the net's number of updates.
ArrayFile weights_of(Net&);

// The number of outputs of this net's last layer in the file; 0 if the file does not say. Needs no
// array data.
std::int64_t outputs_of(const ArrayFile&, const Graph&);

}  // namespace convlab::nets
