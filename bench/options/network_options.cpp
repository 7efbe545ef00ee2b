#include "bench/options/network_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <utility>

#include "conv/error.h"

namespace convlab {

using namespace nets;
namespace {

// "12.5us" -> 12.5, "us"
std::pair<std::optional<double>, std::string> split_unit(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789.+-eE"), text.size());
  return {parse_number(text.substr(0, end)), text.substr(end)};
}

constexpr std::pair<const char*, double> second_units[]{
    {"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr std::pair<char, double> prefixes[]{{'k', 1e3}, {'m', 1e6}, {'g', 1e9}, {'t', 1e12}};

// "Gbit/s" -> bytes per second of one; nullopt if it is none.
std::optional<double> bandwidth_unit(std::string unit) {
  if (unit.ends_with("/s")) unit.resize(unit.size() - 2);
  double factor = 1;
  if (!unit.empty() && unit != "bit" && unit != "B")
    for (const auto& [prefix, by] : prefixes)
      if (std::tolower(static_cast<unsigned char>(unit.front())) == prefix) {
        factor = by;
        unit.erase(0, 1);
        break;
      }
  if (unit == "bit") return factor / 8;
  return unit == "B" ? std::optional(factor) : std::nullopt;
}

}  // namespace

double parse_latency(const std::string& text) {
  const auto [value, unit] = split_unit(text);
  if (value && *value == 0 && unit.empty()) return 0;
  for (const auto& [name, seconds] : second_units)
    if (value && *value >= 0 && !std::isinf(*value) && unit == name) return *value * seconds;
  throw InputError(
      fmt::format("'{}': expected a time with its unit, as in 0, 800ns, 25us or 1.5ms", text));
}

double parse_bandwidth(const std::string& text) {
  const auto [value, unit] = split_unit(text);
  const std::optional<double> bytes_per_s = bandwidth_unit(unit);
  if (!value || !bytes_per_s || !(*value > 0) || std::isinf(*value))
    throw InputError(fmt::format(
        "'{}': expected bits or bytes a second above 0, as in 10Gbit, 100Mbit or 1.25GB", text));
  return *value * *bytes_per_s;
}

std::string show_bandwidth(double bytes_per_s) {
  double bits = 8 * bytes_per_s;
  const char* unit = "";
  for (const char* larger : {"k", "M", "G", "T"}) {
    if (bits < 1000) break;
    bits /= 1000;
    unit = larger;
  }
  return fmt::format("{:.4g} {}bit/s", bits, unit);
}

std::string show_latency(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds < 1e-6) return fmt::format("{:.4g} ns", 1e9 * seconds);
  if (seconds < 1e-3) return fmt::format("{:.4g} us", 1e6 * seconds);
  return seconds < 1 ? fmt::format("{:.4g} ms", 1e3 * seconds) : fmt::format("{:.4g} s", seconds);
}

void add_network(CLI::App& app, NetworkArguments& a) {
  Network& n = a.network;
  add_parsed(
      app, "--latency", [&a](const std::string& text) { a.latency_s = parse_latency(text); },
      "Of a message between two workers, or hosts: 800ns, 25us; default: 25us, under mpirun "
      "measured",
      "TIME");
  add_parsed(
      app, "--bandwidth", [&a](const std::string& text) { a.bytes_per_s = parse_bandwidth(text); },
      "Of a worker's link, or a host's, in each direction: 10Gbit, 1.25GB; default: 10Gbit, under "
      "mpirun measured",
      "RATE");
  add_parsed(
      app, "--topology", [&n](const std::string& text) { n.topology = parse_topology(text); },
      "How gradients are summed: ring; tree (to one worker and back, binomial); hierarchical "
      "(within each host, then a ring of hosts); default: ring",
      "NAME");
  const auto add_host_flag = [&](const std::string& flag, auto parse, const std::string& text,
                                 const std::string& value_name) {
    add_parsed(
        app, flag,
        [&a, flag, parse](const std::string& value) {
          if (a.about_hosts.empty()) a.about_hosts = flag;
          parse(value);
        },
        text, value_name);
  };
  add_host_flag(
      "--workers-per-host",
      [&n](const std::string& text) {
        constexpr double most = 1e6;
        const std::optional<double> count = parse_number(text);
        if (!count || *count < 1 || *count > most || *count != std::floor(*count))
          throw InputError(fmt::format("'{}': expected a whole number, 1 to {}", text, most));
        n.workers_per_host = std::int64_t(*count);
      },
      "With hierarchical; default: 8", "N");
  add_host_flag(
      "--host-latency",
      [&n](const std::string& text) { n.inside_host.latency_s = parse_latency(text); },
      "Within a host, with hierarchical; default: 2us", "TIME");
  add_host_flag(
      "--host-bandwidth",
      [&n](const std::string& text) { n.inside_host.bytes_per_s = parse_bandwidth(text); },
      "Within a host, with hierarchical; default: 10GB", "RATE");
}

Network network_of(const NetworkArguments& a, const Link& link) {
  if (!a.about_hosts.empty() && a.network.topology != Topology::hierarchical)
    throw InputError(fmt::format("{} is about --topology hierarchical, not {}: drop one",
                                 a.about_hosts, to_string(a.network.topology)));
  Network network = a.network;
  network.link = {a.latency_s.value_or(link.latency_s), a.bytes_per_s.value_or(link.bytes_per_s)};
  return network;
}

}  // namespace convlab
