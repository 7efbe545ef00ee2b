#include "nets/scaling/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "conv/error.h"
#include "conv/text/names.h"

namespace convlab::nets {
namespace {

constexpr std::array<std::string_view, 3> topology_names{"ring", "tree", "hierarchical"};

void validate(const Link& link) {
  if (!(link.latency_s >= 0 && link.latency_s <= longest_s))
    throw InputError(
        fmt::format("a latency of {} s: expected 0 to {:.0e}", link.latency_s, longest_s));
  constexpr double least = 1.0 / 8, most = 1e18;
  if (!(link.bytes_per_s >= least && link.bytes_per_s <= most))
    throw InputError(fmt::format("a bandwidth of {} bytes/s: expected 1 bit/s to {:.0e} bytes/s",
                                 link.bytes_per_s, most));
}

double message_s(const Link& link, double bytes) {
  return link.latency_s + bytes / link.bytes_per_s;
}

double ring_s(const Link& link, std::int64_t workers, double bytes) {
  return 2 * double(workers - 1) * message_s(link, bytes / double(workers));
}

}  // namespace

std::string_view to_string(Topology topology) { return topology_names[std::size_t(topology)]; }

Topology parse_topology(std::string_view text) {
  return Topology(index_of_name("topology", text, topology_names));
}

void validate(const Network& network) {
  validate(network.link);
  if (network.topology != Topology::hierarchical) return;
  validate(network.inside_host);
  if (network.workers_per_host < 1)
    throw InputError(
        fmt::format("{} workers a host: expected 1 or more", network.workers_per_host));
}

double all_reduce_s(const Network& network, std::int64_t workers, double bytes) {
  if (workers <= 1) return 0;
  switch (network.topology) {
    case Topology::ring:
      return ring_s(network.link, workers, bytes);
    case Topology::tree:
      return 2 * double(std::bit_width(std::uint64_t(workers - 1))) *
             message_s(network.link, bytes);
    case Topology::hierarchical: {
      const std::int64_t each = std::min(workers, network.workers_per_host),
                         hosts = (workers + each - 1) / each;
      return ring_s(network.inside_host, each, bytes) + ring_s(network.link, hosts, bytes);
    }
  }
  return 0;
}

double server_s(const Network& network, std::int64_t workers, double bytes) {
  return workers <= 1 ? 0 : message_s(network.link, double(workers - 1) * bytes);
}

}  // namespace convlab::nets
