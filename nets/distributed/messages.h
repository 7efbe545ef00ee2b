// A communicator over point-to-point messages: whoever can send and receive inherits the rest.
#pragma once

#include <memory>

#include "nets/distributed/communicator.h"

namespace convlab::nets {

class MessageCommunicator : public Communicator {
 public:
  // The n-th message that one rank sends another is for the n-th receive that began there; their
  // sizes agree. The memory stays until complete.
  virtual std::unique_ptr<Pending> send(int to, ConstSpan) = 0;
  virtual std::unique_ptr<Pending> receive(int from, Span) = 0;

  using Communicator::all_gather;
  using Communicator::broadcast;
  void broadcast(Span, int root) override;
  void all_gather(ConstSpan mine, Span all) override;
  std::unique_ptr<Pending> start_average(Span values, const Average&) override;
};

}  // namespace convlab::nets
