// Synchronous SGD on many equal workers, simulated task by task from the times of one.
//
// An iteration of a worker makes a batch on the host (t_io), copies it to the device (t_h2d), and
// goes forward, backward and through the update. Gradients are exchanged between backward and
// update, and as far as the strategy allows during backward. Shi and Chu 2017 (arXiv:1711.05979)
// give this model. With one channel that exchanges layers L ... 1 in the order in which backward
// finishes them, backward and exchange together take
//   max over i of [ sum over j >= i of t_b(j) + sum over j <= i of t_comm(j) ],
// if neither slows the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nets/distributed/strategy.h"
#include "nets/scaling/network.h"

namespace convlab::nets {

struct LayerTimes {
  std::string name;
  double forward_s = 0, backward_s = 0;
  std::int64_t gradient_bytes = 0;  // of its parameters; 0: nothing to exchange
};

// One worker alone.
struct WorkerTimes {
  std::int64_t batch = 1;
  double io_s = 0;                 // making a batch on the host, during the iterations before
  double h2d_s = 0;                // copying it to the device
  std::vector<LayerTimes> layers;  // in forward order
  double update_s = 0;
};
// Throws InputError when there is no layer, for a batch or size that is negative, and for a time
// that is negative or above longest_s.
void validate(const WorkerTimes&);
// As one with another batch: all but the update in proportion to it.
WorkerTimes with_batch(const WorkerTimes&, std::int64_t batch);

// While a worker computes and exchanges at the same time, each goes on at this share of its speed:
// both may want the same cores, or all of a memory's bandwidth.
struct Contention {
  double compute = 1, exchange = 1;
};

struct Scenario {
  std::int64_t workers = 1;
  Strategy strategy = Strategy::overlapped;
  // Gradients travel in buckets, one at a time, filled in backward's order. A bucket is full when
  // it holds at least this many bytes; 0: each layer alone.
  std::int64_t bucket_bytes = 0;
  Network network{};
  Contention contention{};
};

enum class Lane : std::uint8_t { io, compute, network };
enum class TaskKind : std::uint8_t { io, h2d, forward, backward, all_reduce, push, pull, update };
std::string_view to_string(Lane);
std::string_view to_string(TaskKind);

// A task of one worker, on one lane. Lanes work at the same time, each on one task.
struct Task {
  Lane lane = Lane::compute;
  TaskKind kind = TaskKind::forward;
  std::int64_t iteration = 0;
  // Of forward, backward and exchanges: the layers, in backward's order. A bucket has several.
  std::size_t first_layer = 0, last_layer = 0;
  std::int64_t bytes = 0;  // of a bucket
  double begin_s = 0, end_s = 0;
  std::optional<std::size_t> awaited{};  // the task whose end this one's begin waited for
};

struct Simulation {
  std::vector<Task> tasks;  // of three iterations; the same on every worker
  // Of one iteration, once batches are made ahead:
  double iteration_s = 0;
  double exchange_s = 0;  // the network is busy, as long as that takes beside computation
  double exposed_s = 0;   // of that, between the end of backward and the update
  // The layer from which on, in backward's order, exchanges are late: they run without a pause
  // until the update. At best it begins backward's last bucket. nullopt when none is exposed.
  std::optional<std::size_t> exposed_from;
};
// Throws InputError for an invalid worker or network, no workers, a negative bucket, or a share
// that is not above 0 and at most 1.
Simulation simulate(const WorkerTimes&, const Scenario&);

// The bucket size with the shortest iteration, of each layer alone, powers of two from 64 KiB, and
// all in one. The scenario's own is ignored.
std::int64_t best_bucket(const WorkerTimes&, const Scenario&);

// The share of an iteration below which an exposed exchange counts as hidden.
inline constexpr double hidden_share = 0.05;
// The smallest batch a worker with which the exchange is hidden, with the best bucket or the given
// one. nullopt: none up to 2^20.
std::optional<std::int64_t> hiding_batch(const WorkerTimes&, const Scenario&,
                                         std::optional<std::int64_t> bucket_bytes = {});

}  // namespace convlab::nets
