// The parameters of a net that all ranks hold.
#pragma once

#include <string>

#include "nets/distributed/communicator.h"
#include "nets/net.h"

namespace convlab::nets {

// Collective: all ranks get rank 0's parameters, optimizer state and counters.
void broadcast_all(Communicator&, Net&);
// Collective: all ranks get rank 0's running statistics.
void broadcast_statistics(Communicator&, Net&);
// Collective. Throws Error, the same on all ranks, when weights or optimizer states differ by a
// bit. `when` says when that was: "after epoch 3".
void require_equal_weights(Communicator&, Net&, const std::string& when);

}  // namespace convlab::nets
