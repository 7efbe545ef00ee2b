#include "nets/distributed/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace convlab::nets {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

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

// A wait that is no longer short. In a ring every rank waits for the one before it. So ranks tell
// one another that they wait, and who does not is the one that all wait for.
class Communicator::Wait {
 public:
  Wait(Communicator& ranks, const Pending& pending) : ranks_(ranks), pending_(pending) {}
  Wait(const Wait&) = delete;
  ~Wait() {
    if (is_known_) ranks_.set_waiting(false);
  }

  void look() {
    const Patience& patience = ranks_.patience;
    // A process that was stopped has not waited meanwhile.
    constexpr double longest_look_s = 1;
    const Clock::time_point now = Clock::now();
    waited_s_ += std::min(std::chrono::duration<double>(now - looked_).count(), longest_look_s);
    looked_ = now;
    const double s = waited_s_;
    if (s > patience.limit_s) throw RankLost(line(patience.limit_s));
    // Early, so that ranks that begin to wait a little later are known as waiting too.
    if (s < patience.tell_s / 10) return;
    if (!std::exchange(is_known_, true)) ranks_.set_waiting(true);
    if (s < next_s_) return;
    next_s_ = 2 * s;
    const std::vector<int> waiting = ranks_.waiting_ranks();
    const bool is_first = waiting.empty() || waiting.front() == ranks_.rank();
    if (is_first && patience.tell) patience.tell(line(s));
  }

 private:
  std::string line(double s) const {
    return fmt::format("rank {} has waited {:.3g} s for {}", ranks_.rank(), s, silent_ranks());
  }
  std::string silent_ranks() const {
    constexpr std::size_t most_named = 4;
    std::vector<int> silent;
    if (const std::vector<int> waiting = ranks_.waiting_ranks(); is_known_ && !waiting.empty()) {
      // All may have said that they wait: one was stopped later than that.
      for (int r = 0; r < ranks_.size(); ++r)
        if (!std::binary_search(waiting.begin(), waiting.end(), r)) silent.push_back(r);
    } else if (const std::optional<int> other = pending_.waits_for()) {
      silent.push_back(*other);
    }
    if (silent.empty()) return "another, which does not answer";
    if (silent.size() == 1) return fmt::format("rank {}, which does not answer", silent.front());
    if (silent.size() > most_named)
      return fmt::format("rank {} and {} others, which do not answer", silent.front(),
                         silent.size() - 1);
    return fmt::format("ranks {}, which do not answer", fmt::join(silent, ", "));
  }

  Communicator& ranks_;
  const Pending& pending_;
  Clock::time_point looked_ = Clock::now();
  double waited_s_ = 0;
  double next_s_ = ranks_.patience.tell_s;
  bool is_known_ = false;  // to the others
};

bool Communicator::complete(Pending& pending, const std::atomic<bool>* stop) {
  // Messages within a host arrive within microseconds; sleeping leaves the core to computation.
  constexpr auto soon = std::chrono::microseconds(50);
  const Clock::time_point begin = Clock::now();
  std::optional<Wait> wait;
  while (!pending.progress()) {
    if (stop != nullptr && *stop) return false;
    if (Clock::now() - begin < soon) {
      std::this_thread::yield();
      continue;
    }
    if (!wait) wait.emplace(*this, pending);
    wait->look();
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
