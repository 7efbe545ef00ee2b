#include "kernels_cuda/on_cpu/access_counts.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <tuple>

namespace convlab::on_cpu {
namespace {

constexpr unsigned bank_bytes = 4, banks = 32, sector_bytes = 32;

struct Key {
  Site site;
  AccessKind kind;
  unsigned bytes;
  friend bool operator<(const Key& a, const Key& b) {
    const int order = a.site.file == b.site.file ? 0 : std::strcmp(a.site.file, b.site.file);
    if (order != 0) return order < 0;
    return std::tuple(a.site.line, a.kind, a.bytes) < std::tuple(b.site.line, b.kind, b.bytes);
  }
};

struct Access {
  unsigned lane;
  std::uintptr_t address;
  unsigned touched;
};

struct Request {
  std::vector<Access> lanes;
};

// The requests of one warp from one line; next[lane] is the one that the lane's next access joins.
struct Warp {
  std::vector<Request> requests;
  std::size_t next[32] = {};
};

std::map<std::pair<Key, unsigned>, Warp> epoch;
std::map<Key, AccessCount> totals;

// Wide accesses go in parts of 128 bytes, by consecutive lanes. Two neighbouring parts of a load
// are one if in both each lane reads what its neighbour does, or each what the second next does
// (NVIDIA's microarchitecture, as its developers describe it for 64-bit and 128-bit loads).
unsigned lanes_together(const Request& request, AccessKind kind, unsigned bytes, unsigned first) {
  const unsigned lanes = std::min(32u, bank_bytes * banks / bytes);
  if (lanes == 32 || kind != AccessKind::shared_load || first % (2 * lanes) != 0) return lanes;
  std::uintptr_t at[32] = {};
  for (const Access& access : request.lanes) at[access.lane] = access.address;
  for (const unsigned other : {1u, 2u}) {
    bool alike = true;
    for (unsigned lane = first; lane < first + 2 * lanes; ++lane)
      alike = alike && at[lane] == at[lane ^ other];
    if (alike) return 2 * lanes;
  }
  return lanes;
}

// A part needs a pass for each further word in one bank.
void add_bank_passes(const Request& request, AccessKind kind, unsigned bytes, AccessCount& count) {
  for (unsigned part = 0, lanes; part < 32; part += lanes) {
    lanes = lanes_together(request, kind, bytes, part);
    std::set<std::uintptr_t> words[banks];
    for (const Access& access : request.lanes)
      if (access.lane >= part && access.lane < part + lanes)
        for (std::uintptr_t word = access.address / bank_bytes;
             word * bank_bytes < access.address + access.touched; ++word)
          words[word % banks].insert(word);
    std::size_t passes = 0;
    for (const auto& bank : words) passes = std::max(passes, bank.size());
    count.transactions += std::int64_t(passes);
    count.least += passes ? 1 : 0;
  }
}

void add_sectors(const Request& request, AccessCount& count) {
  std::set<std::uintptr_t> sectors, bytes;
  for (const Access& access : request.lanes)
    for (unsigned i = 0; i < access.touched; ++i) {
      bytes.insert(access.address + i);
      sectors.insert((access.address + i) / sector_bytes);
    }
  count.transactions += std::int64_t(sectors.size());
  count.least += std::int64_t((bytes.size() + sector_bytes - 1) / sector_bytes);
}

}  // namespace

void count_access(AccessKind kind, const void* p, unsigned bytes, unsigned touched, Site site) {
  const Unseen unseen;
  const Thread& thread = self->current();
  Warp& warp = epoch[{Key{site, kind, bytes}, thread.rank / 32}];
  const std::size_t request = warp.next[thread.lane()]++;
  if (request == warp.requests.size()) warp.requests.emplace_back();
  warp.requests[request].lanes.push_back(
      {thread.lane(), reinterpret_cast<std::uintptr_t>(p), touched});
}

void sum_up_epoch() {
  const Unseen unseen;
  for (const auto& [where, warp] : epoch) {
    const Key& key = where.first;
    AccessCount& count = totals[key];
    count.site = key.site;
    count.kind = key.kind;
    count.bytes = key.bytes;
    count.requests += std::int64_t(warp.requests.size());
    for (const Request& request : warp.requests)
      if (key.kind == AccessKind::shared_load || key.kind == AccessKind::shared_store)
        add_bank_passes(request, key.kind, key.bytes, count);
      else
        add_sectors(request, count);
  }
  epoch.clear();
}

std::vector<AccessCount> count_accesses(const std::function<void()>& launches) {
  struct Counting {
    Counting() { counting = true; }
    ~Counting() {
      counting = false;
      epoch.clear();
      totals.clear();
    }
  } scope;
  launches();
  std::vector<AccessCount> counts;
  for (const auto& [key, count] : totals) counts.push_back(count);
  return counts;
}

}  // namespace convlab::on_cpu
