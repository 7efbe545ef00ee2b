// What it costs to exchange gradients between workers, by closed models of the usual algorithms.
#pragma once

#include <cstdint>
#include <string_view>

namespace convlab::nets {

// A full-duplex link: a message of b bytes takes latency_s + b / bytes_per_s.
struct Link {
  double latency_s = 0;
  double bytes_per_s = 1;
};

// How an all-reduce goes through the network.
enum class Topology : std::uint8_t { ring, tree, hierarchical };
std::string_view to_string(Topology);
Topology parse_topology(std::string_view);  // throws InputError

struct Network {
  Topology topology = Topology::ring;
  Link link{};  // of one worker, or with `hierarchical` of one host
  // Only with `hierarchical`:
  std::int64_t workers_per_host = 1;
  Link inside_host{};  // of one worker to the others of its host
};

// No task may take longer, so that sums are finite.
inline constexpr double longest_s = 1e20;
// Throws InputError for a latency that is not from 0 to longest_s, a bandwidth that is not from
// 1 bit/s to 1e18 bytes/s, and a host without workers.
void validate(const Network&);

// Seconds in which `workers` sum a vector of this many bytes, each ending with the sum. The
// additions themselves are left out: memory is much faster than the network.
//
// ring: reduce-scatter and all-gather, n-1 steps each of a part of b/n bytes (Patarasuk and Yuan
//   2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations"):
//     2 (n-1) (latency + b / (n bandwidth))
// tree: a reduction to one worker and a broadcast from it, both by binomial trees and of the whole
//   vector (Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication operations
//   in MPICH"). Open MPI 4's MPI_Iallreduce does this in place, below 64 KiB, and for n < 4:
//     2 ceil(log2 n) (latency + b / bandwidth)
// hierarchical: g workers a host reduce-scatter among themselves, parts of b/g bytes go round a
//   ring of m hosts, all g of a host through its one link, and each host all-gathers (as Horovod's
//   hierarchical all-reduce):
//     2 (g-1) (inside latency + b / (g inside bandwidth)) + 2 (m-1) (latency + b / (m bandwidth))
double all_reduce_s(const Network&, std::int64_t workers, double bytes);

// Seconds in which the other workers send this many bytes each to a server, which is one of them,
// or in which it sends as many to each: its link carries all of it (Li et al. 2014, "Scaling
// distributed machine learning with the parameter server").
//     latency + (n-1) b / bandwidth
double server_s(const Network&, std::int64_t workers, double bytes);

}  // namespace convlab::nets
