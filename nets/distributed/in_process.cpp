#include "nets/distributed/in_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "nets/distributed/messages.h"

namespace convlab::nets {
namespace {

// Messages by number: the n-th sent is for the n-th receive that began.
struct Queue {
  int sent = 0, receives = 0;
  std::map<int, std::vector<std::byte>> messages;
};

// The messages on their way. Sending copies, and so is complete at once.
struct Post {
  // Of a duplicate: its number among those of the communicator that it duplicates, after that
  // one's.
  using Duplicate = std::vector<int>;
  using Route = std::tuple<Duplicate, int, int>;  // from, to
  std::mutex mutex;
  std::map<Route, Queue> queues;
  std::string abandoned;       // why; empty: not
  std::map<int, int> waiting;  // rank, its long waits; none without any
};

class Sent : public Pending {
 public:
  bool progress() override { return true; }
  std::optional<int> waits_for() const override { return 0; }
};

class Receiving : public Pending {
 public:
  Receiving(std::shared_ptr<Post> post, Post::Route route, Span to)
      : post_(std::move(post)), route_(route), to_(to) {
    const std::lock_guard lock(post_->mutex);
    number_ = post_->queues[route_].receives++;
  }
  bool progress() override {
    const std::lock_guard lock(post_->mutex);
    auto& messages = post_->queues[route_].messages;
    const auto message = messages.find(number_);
    if (message == messages.end()) {
      if (!post_->abandoned.empty()) throw RankLost(post_->abandoned);
      return false;
    }
    if (message->second.size() != to_.size())
      throw InputError(fmt::format("rank {} sent {} bytes where {} were expected",
                                   std::get<1>(route_), message->second.size(), to_.size()));
    std::copy(message->second.begin(), message->second.end(), to_.begin());
    messages.erase(message);
    return true;
  }
  std::optional<int> waits_for() const override { return std::get<1>(route_); }

 private:
  std::shared_ptr<Post> post_;
  Post::Route route_;
  Span to_;
  int number_;
};

class InProcessCommunicator : public MessageCommunicator {
 public:
  InProcessCommunicator(std::shared_ptr<Post> post, Post::Duplicate duplicate, int rank, int size)
      : post_(std::move(post)), duplicate_(std::move(duplicate)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Pending> send(int to, ConstSpan message) override {
    const std::lock_guard lock(post_->mutex);
    Queue& queue = post_->queues[{duplicate_, rank_, to}];
    queue.messages.try_emplace(queue.sent++, message.begin(), message.end());
    return std::make_unique<Sent>();
  }
  std::unique_ptr<Pending> receive(int from, Span to) override {
    return std::make_unique<Receiving>(post_, Post::Route{duplicate_, from, rank_}, to);
  }
  // All ranks duplicate in the same order, so that equal numbers mean the same duplicate.
  std::unique_ptr<Communicator> duplicate() override {
    Post::Duplicate number = duplicate_;
    number.push_back(++duplicates_);
    auto other = std::make_unique<InProcessCommunicator>(post_, std::move(number), rank_, size_);
    other->patience = patience;
    return other;
  }
  void abandon(const std::string& why) noexcept override {
    const std::lock_guard lock(post_->mutex);
    gave_up_ = true;
    if (post_->abandoned.empty()) post_->abandoned = fmt::format("rank {} gave up: {}", rank_, why);
  }
  bool has_abandoned() const noexcept override { return gave_up_; }

 protected:
  void set_waiting(bool now) noexcept override {
    const std::lock_guard lock(post_->mutex);
    if ((post_->waiting[rank_] += now ? 1 : -1) == 0) post_->waiting.erase(rank_);
  }
  std::vector<int> waiting_ranks() override {
    const std::lock_guard lock(post_->mutex);
    std::vector<int> ranks;
    for (const auto& [rank, waits] : post_->waiting) ranks.push_back(rank);
    return ranks;
  }

 private:
  std::shared_ptr<Post> post_;
  Post::Duplicate duplicate_;
  int rank_, size_, duplicates_ = 0;
  bool gave_up_ = false;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> in_process_communicators(int size) {
  if (size < 1) throw InputError(fmt::format("{} ranks: expected 1 or more", size));
  const auto post = std::make_shared<Post>();
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int r = 0; r < size; ++r)
    ranks.push_back(std::make_unique<InProcessCommunicator>(post, Post::Duplicate{}, r, size));
  return ranks;
}

}  // namespace convlab::nets
