// Files written by pytorch/generate.py: one per net, with its data, values and results.
#pragma once

#include <string>
#include <vector>

#include "nets/graph.h"
#include "nets/net.h"
#include "nets/weights/arrays.h"

namespace convlab::nets {

// All nets that have a file.
const std::vector<std::string>& pytorch_nets();
// A net's name in the form GoogleTest accepts: letters, digits and underscores.
std::string test_name(std::string net);

ArrayFile read_pytorch(std::string net);
// The small net of a file, for its batch or another one.
Graph pytorch_graph(const std::string& net, const ArrayFile&, std::int64_t batch = 0);
// The loss that a file has data for.
Loss pytorch_loss(const ArrayFile&);

}  // namespace convlab::nets
