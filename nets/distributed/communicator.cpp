#include "nets/distributed/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace convlab::nets {

void Communicator::barrier() { all_gather(std::uint8_t(0)); }

std::vector<std::string> Communicator::all_gather(const std::string& mine) {
  const std::vector<std::size_t> sizes = all_gather(mine.size());
  std::string padded = mine;
  padded.resize(*std::max_element(sizes.begin(), sizes.end()));
  std::string all(padded.size() * std::size_t(size()), '\0');
  all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < sizes.size(); ++r)
    texts.push_back(all.substr(r * padded.size(), sizes[r]));
  return texts;
}

std::string Communicator::broadcast(std::string text, int root) {
  std::size_t bytes = text.size();
  broadcast(std::as_writable_bytes(std::span(&bytes, 1)), root);
  text.resize(bytes);
  broadcast(std::as_writable_bytes(std::span(text)), root);
  return text;
}

void Communicator::average(Span values, const Average& how) {
  complete(*start_average(values, how));
}

void Communicator::sum(std::span<double> values) {
  std::vector<double> all(values.size() * std::size_t(size()));
  all_gather(std::as_bytes(values), std::as_writable_bytes(std::span(all)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0;
    for (std::size_t j = i; j < all.size(); j += values.size()) values[i] += all[j];
  }
}

bool Communicator::complete(Pending& pending, const std::atomic<bool>* stop) const {
  using Clock = std::chrono::steady_clock;
  // Messages within a host arrive within microseconds; sleeping leaves the core to computation.
  constexpr double soon_s = 50e-6;
  const Clock::time_point begin = Clock::now();
  while (!pending.progress()) {
    if (stop != nullptr && *stop) return false;
    const double waited_s = std::chrono::duration<double>(Clock::now() - begin).count();
    if (waited_s < soon_s) {
      std::this_thread::yield();
      continue;
    }
    if (waited_s > patience_s) {
      const std::optional<int> other = pending.waits_for();
      throw RankLost(fmt::format("rank {} has waited {} s for {}, which does not answer", rank(),
                                 patience_s, other ? fmt::format("rank {}", *other) : "another"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

void validate(const Average& how) {
  if (how.dtype != DType::f32 && how.dtype != DType::f64)
    throw InputError(fmt::format("an average of {}: expected f32 or f64", to_string(how.dtype)));
  if (how.bf16 && how.dtype != DType::f32)
    throw InputError(
        fmt::format("bf16 on the way loses too much of {}: expected f32", to_string(how.dtype)));
}

void require_same(Communicator& ranks, const std::string& what, const std::string& text) {
  const std::vector<std::string> all = ranks.all_gather(text);
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      throw InputError(fmt::format("{}: rank {} has {}, rank 0 has {}: expected the same on all",
                                   what, r, all[r], all[0]));
}

}  // namespace convlab::nets
