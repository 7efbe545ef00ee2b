// What pytorch/generate.py wrote: a file for each net, with its data, values and results.
#pragma once

#include <string>
#include <vector>

#include "nets/graph.h"
#include "nets/net.h"
#include "nets/weights/arrays.h"

namespace convlab::nets {

// All that have a file.
const std::vector<std::string>& pytorch_nets();
// A net's name as GoogleTest takes it: letters, digits and underscores.
std::string test_name(std::string net);

ArrayFile read_pytorch(std::string net);
// The small net a file is about, for its batch or another one.
Graph pytorch_graph(const std::string& net, const ArrayFile&, std::int64_t batch = 0);
// The loss that a file has data for.
Loss pytorch_loss(const ArrayFile&);

}  // namespace convlab::nets
