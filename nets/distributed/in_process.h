// Ranks that are threads of one process, for tests and for trying things out.
#pragma once

#include <memory>
#include <vector>

#include "nets/distributed/communicator.h"

namespace convlab::nets {

// One for each thread. They may be destroyed in any order.
std::vector<std::unique_ptr<Communicator>> in_process_communicators(int size);

}  // namespace convlab::nets
