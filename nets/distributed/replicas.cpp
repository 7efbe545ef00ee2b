#include "nets/distributed/replicas.h"

#include <fmt/format.h>

#include <vector>

namespace convlab::nets {
namespace {

// FNV-1a (Fowler, Noll & Vo 1991), continued.
std::uint64_t hash(ConstSpan bytes, std::uint64_t h) {
  for (const std::byte b : bytes) h = (h ^ std::uint64_t(b)) * 0x100000001B3u;
  return h;
}

// Calls visit(memory on the device, its copy on the host) for a value and its optimizer state.
template <class Visit>
void visit_memory(Net& net, const Parameter& p, const Visit& visit) {
  std::vector<std::byte> host(std::size_t(p.count * size_of(net.value_type())));
  for (std::byte* const at : {p.value, p.state[0], p.state[1]}) {
    if (at == nullptr) continue;
    net.read(at, host);
    visit(at, Span(host));
  }
}

void broadcast(Communicator& ranks, Net& net, const Parameter& p) {
  visit_memory(net, p, [&](std::byte* at, Span host) {
    ranks.broadcast(host);
    net.write(at, host);
  });
}

}  // namespace

void broadcast_all(Communicator& ranks, Net& net) {
  for (const Parameter& p : net.parameters()) broadcast(ranks, net, p);
  net.set_counters(ranks.all_gather(net.counters()).front());
  net.parameters_changed();
}

void broadcast_statistics(Communicator& ranks, Net& net) {
  for (const Parameter& p : net.parameters())
    if (p.gradient == nullptr) broadcast(ranks, net, p);
}

void require_equal_weights(Communicator& ranks, Net& net, const std::string& when) {
  std::uint64_t mine = 0xCBF29CE484222325u;
  for (const Parameter& p : net.parameters())
    if (p.gradient != nullptr)
      visit_memory(net, p, [&](std::byte*, Span host) { mine = hash(host, mine); });
  const std::vector<std::uint64_t> all = ranks.all_gather(mine);
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      throw Error(
          fmt::format("the weights of rank {} differ from those of rank 0 {}: its memory "
                      "or its network is at fault; go on from the last checkpoint",
                      r, when));
}

}  // namespace convlab::nets
