// Averages a net's gradients over ranks while backward computes them: synchronous SGD.
//
//   GradientExchange exchange(net, communicator, {});
//   net.forward();  net.backward();
//   exchange.finish();  // the gradients are those of all ranks' images
//   net.update(rule);
//
// Gradients travel in buckets: parameters that follow one another, in the order in which backward
// finishes them, from the last to the first. One bucket travels at a time.
//
// Where the devices of all ranks can (conv/optional/averaging_device.h: cards with NCCL), they
// average among themselves, in the order in which backward queues its work. The host then only
// waits. A server, bf16 and a deterministic plan need the hosts, and so do devices that cannot: a
// card's gradients are then copied to the host and back.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nets/distributed/communicator.h"
#include "nets/distributed/strategy.h"
#include "nets/net.h"

namespace convlab::nets {

struct ExchangeOptions {
  Strategy strategy = Strategy::overlapped;
  // A bucket is full once it has this many bytes. 0: measured, so that a bucket's latency costs a
  // tenth of its transfer; with a deterministic plan 4 MiB, since where buckets end decides the
  // order of additions around a ring.
  std::int64_t bucket_bytes = 0;
  bool bf16 = false;  // rounds what travels to bf16; for nets in f32
  // A thread progresses the exchange. It costs little while it waits for a network, and wants a
  // core to itself for copies within a host; without it the exchange progresses only between
  // backward's steps. Devices that average among themselves need none, but without it the times of
  // buckets are only known to the last of them.
  bool own_thread = false;
};

// A bucket's travel.
struct BucketExchange {
  std::size_t first = 0, end = 0;  // parameters
  std::size_t bytes = 0;           // of gradients
  std::chrono::steady_clock::time_point begun, ended;
};

class GradientExchange {
 public:
  // Collective. Observes the net's gradients (Net::observe_gradients) as long as it exists; both
  // outlive it. Throws InputError for a net without training, for invalid options, and on all ranks
  // if options differ between them.
  GradientExchange(Net&, Communicator&, const ExchangeOptions&);
  ~GradientExchange();

  // After backward: waits until all gradients are averages. Throws RankLost. When this or backward
  // has thrown, the exchange is of no more use.
  void finish();

  std::int64_t bucket_bytes() const;
  // One line, the same on all ranks with a card: why gradients travel through the hosts. Empty if
  // they do not.
  const std::string& note() const;
  // Of the last finished exchange, in order.
  const std::vector<BucketExchange>& buckets() const;
  double communicated_s() const;  // from each bucket's begin to its end
  double exposed_s() const;       // of which finish waited for
  // Sums since the start.
  double total_communicated_s() const;
  double total_exposed_s() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convlab::nets
