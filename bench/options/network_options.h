// The flags that describe a network between workers.
#pragma once

#include <optional>
#include <string>

#include "bench/options/flags.h"
#include "nets/scaling/network.h"

namespace convlab {

// A time with its unit: 0, 800ns, 25us, 1.5ms, 1s. Throws InputError, as all functions here.
double parse_latency(const std::string&);
// Bytes per second, from bits or bytes a second by powers of 1000: 10Gbit, 100mbit, 1.25GB, with or
// without "/s". The B of bytes is a capital letter.
double parse_bandwidth(const std::string&);
// "10 Gbit/s"
std::string show_bandwidth(double bytes_per_s);
std::string show_latency(double seconds);

struct NetworkArguments {
  std::optional<double> latency_s, bytes_per_s;  // of the link, where they are given
  nets::Network network{
      .topology = nets::Topology::ring, .workers_per_host = 8, .inside_host = {2e-6, 10e9}};
  std::string about_hosts;  // the first flag given that describes hosts
};
// --latency --bandwidth --topology --workers-per-host --host-latency --host-bandwidth
void add_network(CLI::App&, NetworkArguments&);
// The network, with this link as far as none is given; refuses flags about hosts under a topology
// that has none.
nets::Network network_of(const NetworkArguments&, const nets::Link& link = {25e-6, 10e9 / 8});

}  // namespace convlab
