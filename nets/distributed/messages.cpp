#include "nets/distributed/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

namespace convlab::nets {
namespace {

// ---- Arithmetic on what travels ----

template <class T>
std::span<T> values_of(Span bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Rounds to nearest, ties to even; NaN stays NaN.
std::uint16_t to_bf16(float v) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
  if (v != v) return std::uint16_t(bits >> 16 | 0x40);
  return std::uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t(bits) << 16); }

// Values as they travel, perhaps as bf16, in memory of its own.
class Wire {
 public:
  explicit Wire(const Average& how) : how_(how) {}

  std::size_t bytes(std::size_t value_bytes) const {
    return how_.bf16 ? value_bytes / 2 : value_bytes;
  }
  ConstSpan encode(Span values) {
    sent_.resize(bytes(values.size()));
    if (!how_.bf16) {
      std::copy(values.begin(), values.end(), sent_.begin());
      return sent_;
    }
    const auto to = values_of<std::uint16_t>(sent_);
    const auto from = values_of<float>(values);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = to_bf16(from[i]);
    return sent_;
  }
  void add(Span to, Span wire) const {
    if (how_.bf16)
      combine<float, std::uint16_t>(to, wire, [](float& a, std::uint16_t b) { a += from_bf16(b); });
    else if (how_.dtype == DType::f64)
      combine<double, double>(to, wire, [](double& a, double b) { a += b; });
    else
      combine<float, float>(to, wire, [](float& a, float b) { a += b; });
  }
  void store(Span to, Span wire) const {
    if (how_.bf16)
      combine<float, std::uint16_t>(to, wire, [](float& a, std::uint16_t b) { a = from_bf16(b); });
    else if (to.data() != wire.data())
      std::memcpy(to.data(), wire.data(), to.size());
  }
  // Of a finished sum. It is rounded as it will travel, so that all ranks have the same.
  void divide(Span values, int by) const {
    if (how_.dtype == DType::f64)
      for (double& v : values_of<double>(values)) v /= by;
    else
      for (float& v : values_of<float>(values))
        v = how_.bf16 ? from_bf16(to_bf16(v / float(by))) : v / float(by);
  }

 private:
  template <class A, class B, class F>
  static void combine(Span to, Span wire, F f) {
    const auto a = values_of<A>(to);
    const auto b = values_of<B>(wire);
    for (std::size_t i = 0; i < a.size(); ++i) f(a[i], b[i]);
  }

  Average how_;
  std::vector<std::byte> sent_;
};

// ---- Averages ----

class Done : public Pending {
 public:
  bool progress() override { return true; }
  std::optional<int> waits_for() const override { return 0; }
};

// Values go in segments, each through the same steps. A step sends and receives, and ends when all
// has arrived. Many segments travel at a time, in lanes: what arrived is added while others travel.
// MPI sends a message of at most 64 KiB at once; before a longer one it asks, and the question
// waits in line behind the other lanes' messages.
class Pipeline : public Pending {
 public:
  // MPI goes on with transfers that nobody waits for any more: their memory stays.
  ~Pipeline() override {
    for (const Lane& lane : lanes_)
      for (const auto& transfer : lane.transfers)
        if (transfer) {
          static std::mutex mutex;
          static auto& kept = *new std::vector<std::vector<Lane>>;
          const std::lock_guard lock(mutex);
          kept.push_back(std::move(lanes_));
          return;
        }
  }
  bool progress() final {
    // All ranks begin steps in the same order, by which messages between two of them are matched.
    for (int done = 0; done < int(lanes_.size()); turn_ = (turn_ + 1) % lanes_.size()) {
      Lane& lane = lanes_[turn_];
      if (!lane.segment.empty() && !settle(lane)) return false;
      if (lane.segment.empty() || lane.step == steps_) next_segment(lane);
      if (lane.segment.empty()) {
        ++done;
      } else {
        begin(lane);
        done = 0;
      }
    }
    return true;
  }
  std::optional<int> waits_for() const final {
    for (const auto& transfer : lanes_[turn_].transfers)
      if (transfer) return transfer->waits_for();
    return {};
  }

 protected:
  static constexpr std::size_t message_bytes = 32 << 10;

  struct Lane {
    explicit Lane(const Average& how) : wire(how) {}
    std::vector<std::byte>& receives(std::size_t from, std::size_t value_bytes) {
      received.resize(std::max(received.size(), from + 1));
      received[from].resize(wire.bytes(value_bytes));
      return received[from];
    }

    Span segment = {};
    int step = 0;
    Wire wire;
    std::vector<std::vector<std::byte>> received = {};
    std::vector<std::unique_ptr<Pending>> transfers = {};  // null: complete
  };

  Pipeline(MessageCommunicator& ranks, Span values, const Average& how, int steps,
           std::size_t segment_bytes)
      : ranks_(ranks), how_(how), rest_(values), steps_(steps), segment_bytes_(segment_bytes) {
    for (std::size_t i = 0; i < most_lanes; ++i) lanes_.emplace_back(how);
  }

  virtual void begin(Lane&) = 0;    // a step's transfers
  virtual void arrived(Lane&) = 0;  // they are complete

  MessageCommunicator& ranks_;
  const Average how_;

 private:
  static constexpr std::size_t most_lanes = 16;

  bool settle(Lane& lane) {
    for (auto& transfer : lane.transfers)
      if (transfer && transfer->progress()) transfer.reset();
    for (const auto& transfer : lane.transfers)
      if (transfer) return false;
    lane.transfers.clear();
    arrived(lane);
    ++lane.step;
    return true;
  }
  void next_segment(Lane& lane) {
    lane.segment = rest_.first(std::min(segment_bytes_, rest_.size()));
    lane.step = 0;
    rest_ = rest_.subspan(lane.segment.size());
  }

  Span rest_;  // in no lane yet
  int steps_;
  std::size_t segment_bytes_;
  std::vector<Lane> lanes_;
  std::size_t turn_ = 0;
};

// In n - 1 steps each rank sends a chunk to the next one and adds the one that it receives; in
// n - 1 more the finished chunks travel on. In step s rank r sends chunk r - s.
class Ring : public Pipeline {
 public:
  Ring(MessageCommunicator& ranks, Span values, const Average& how)
      : Pipeline(ranks, values, how, 2 * (ranks.size() - 1),
                 std::size_t(ranks.size()) * message_bytes) {}

 private:
  Span chunk(const Lane& lane, int s) const {
    const int n = ranks_.size();
    const std::size_t c = std::size_t(((ranks_.rank() - s) % n + n) % n);
    const std::size_t size = std::size_t(size_of(how_.dtype)), count = lane.segment.size() / size;
    const std::size_t begin = count * c / std::size_t(n), end = count * (c + 1) / std::size_t(n);
    return lane.segment.subspan(begin * size, (end - begin) * size);
  }

  void begin(Lane& lane) override {
    const int n = ranks_.size();
    lane.transfers.push_back(ranks_.receive((ranks_.rank() + n - 1) % n,
                                            lane.receives(0, chunk(lane, lane.step + 1).size())));
    lane.transfers.push_back(
        ranks_.send((ranks_.rank() + 1) % n, lane.wire.encode(chunk(lane, lane.step))));
  }
  void arrived(Lane& lane) override {
    const int last_addition = ranks_.size() - 2;
    const Span into = chunk(lane, lane.step + 1);
    if (lane.step > last_addition) return lane.wire.store(into, lane.received[0]);
    lane.wire.add(into, lane.received[0]);
    if (lane.step == last_addition) lane.wire.divide(into, ranks_.size());
  }
};

// To rank 0, which adds in the order of ranks.
class Push : public Pipeline {
 public:
  Push(MessageCommunicator& ranks, Span values, const Average& how)
      : Pipeline(ranks, values, how, 1, message_bytes) {}

 private:
  void begin(Lane& lane) override {
    if (ranks_.rank() > 0) {
      lane.transfers.push_back(ranks_.send(0, lane.wire.encode(lane.segment)));
      return;
    }
    for (int r = 1; r < ranks_.size(); ++r)
      lane.transfers.push_back(
          ranks_.receive(r, lane.receives(std::size_t(r), lane.segment.size())));
  }
  void arrived(Lane& lane) override {
    if (ranks_.rank() > 0) return;
    for (std::size_t r = 1; r < lane.received.size(); ++r)
      lane.wire.add(lane.segment, lane.received[r]);
    lane.wire.divide(lane.segment, ranks_.size());
  }
};

// From rank 0.
class Pull : public Pipeline {
 public:
  Pull(MessageCommunicator& ranks, Span values, const Average& how)
      : Pipeline(ranks, values, how, 1, message_bytes) {}

 private:
  void begin(Lane& lane) override {
    if (ranks_.rank() > 0) {
      lane.transfers.push_back(ranks_.receive(0, lane.receives(0, lane.segment.size())));
      return;
    }
    const ConstSpan answer = lane.wire.encode(lane.segment);
    for (int r = 1; r < ranks_.size(); ++r) lane.transfers.push_back(ranks_.send(r, answer));
  }
  void arrived(Lane& lane) override {
    if (ranks_.rank() > 0) lane.wire.store(lane.segment, lane.received[0]);
  }
};

class Server : public Pending {
 public:
  Server(MessageCommunicator& ranks, Span values, const Average& how)
      : push_(ranks, values, how), pull_(ranks, values, how) {}
  bool progress() override { return (pushed_ = pushed_ || push_.progress()) && pull_.progress(); }
  std::optional<int> waits_for() const override {
    return pushed_ ? pull_.waits_for() : push_.waits_for();
  }

 private:
  Push push_;
  Pull pull_;
  bool pushed_ = false;
};

}  // namespace

// Along a binomial tree: in round k, ranks below 2^k (counted from the root) send 2^k further. In
// pieces, since a message's size is an int elsewhere.
void MessageCommunicator::broadcast(Span values, int root) {
  constexpr std::size_t piece = std::size_t(64) << 20;
  const int n = size(), from_root = (rank() - root + n) % n;
  for (; !values.empty(); values = values.subspan(std::min(piece, values.size()))) {
    const Span now = values.first(std::min(piece, values.size()));
    for (int reach = 1; reach < n; reach *= 2) {
      if (from_root < reach && from_root + reach < n)
        complete(*send((rank() + reach) % n, now));
      else if (from_root >= reach && from_root < 2 * reach)
        complete(*receive((rank() - reach + n) % n, now));
    }
  }
}

void MessageCommunicator::all_gather(ConstSpan mine, Span all) {
  const int n = size();
  const std::size_t bytes = mine.size();
  if (all.size() != bytes * std::size_t(n))
    throw InputError(
        fmt::format("all_gather: {} bytes for {} ranks with {} each", all.size(), n, bytes));
  const auto part = [&](int r) { return all.subspan(std::size_t((r + n) % n) * bytes, bytes); };
  if (bytes > 0) std::memcpy(part(rank()).data(), mine.data(), bytes);
  for (int s = 0; s < n - 1; ++s) {
    const auto receiving = receive((rank() + n - 1) % n, part(rank() - s - 1));
    const auto sending = send((rank() + 1) % n, part(rank() - s));
    complete(*receiving);
    complete(*sending);
  }
}

std::unique_ptr<Pending> MessageCommunicator::start_average(Span values, const Average& how) {
  validate(how);
  if (values.size() % std::size_t(size_of(how.dtype)) != 0)
    throw InputError(fmt::format("an average of {} bytes: expected whole values of {}",
                                 values.size(), to_string(how.dtype)));
  if (size() == 1) return std::make_unique<Done>();
  if (how.route == Route::ring) return std::make_unique<Ring>(*this, values, how);
  return std::make_unique<Server>(*this, values, how);
}

}  // namespace convlab::nets
