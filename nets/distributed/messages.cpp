#include "nets/distributed/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
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

// Values as they travel: themselves, or bf16 in memory of its own.
class Wire {
 public:
  explicit Wire(const Average& how) : how_(how) {}

  std::size_t bytes(std::size_t value_bytes) const {
    return how_.bf16 ? value_bytes / 2 : value_bytes;
  }
  ConstSpan encode(Span values) {
    if (!how_.bf16) return values;
    sent_.resize(bytes(values.size()));
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

// In n - 1 steps each rank sends a chunk to the next one and adds the one that it receives; in
// n - 1 more the finished chunks travel on. In step s rank r sends chunk r - s.
class Ring : public Pending {
 public:
  Ring(MessageCommunicator& ranks, Span values, const Average& how)
      : ranks_(ranks), values_(values), dtype_(how.dtype), wire_(how) {}

  bool progress() override {
    for (; step_ < 2 * (ranks_.size() - 1); ++step_) {
      const Span into = chunk(step_ + 1);
      if (!begun_) {
        received_.resize(wire_.bytes(into.size()));
        receive_ = ranks_.receive(previous(), received_);
        send_ = ranks_.send((ranks_.rank() + 1) % ranks_.size(), wire_.encode(chunk(step_)));
        begun_ = true;
      }
      if (receive_ && receive_->progress()) {
        receive_.reset();
        take(into);
      }
      if (send_ && send_->progress()) send_.reset();
      if (receive_ || send_) return false;
      begun_ = false;
    }
    return true;
  }
  std::optional<int> waits_for() const override { return previous(); }

 private:
  int previous() const { return (ranks_.rank() + ranks_.size() - 1) % ranks_.size(); }

  // The chunk that this rank sends in step s.
  Span chunk(int s) const {
    const int n = ranks_.size();
    const std::size_t c = std::size_t(((ranks_.rank() - s) % n + n) % n);
    const std::size_t size = std::size_t(size_of(dtype_)), count = values_.size() / size;
    const std::size_t begin = count * c / std::size_t(n), end = count * (c + 1) / std::size_t(n);
    return values_.subspan(begin * size, (end - begin) * size);
  }

  void take(Span into) {
    const int last_addition = ranks_.size() - 2;
    if (step_ > last_addition) return wire_.store(into, received_);
    wire_.add(into, received_);
    if (step_ == last_addition) wire_.divide(into, ranks_.size());
  }

  MessageCommunicator& ranks_;
  Span values_;
  DType dtype_;
  Wire wire_;
  int step_ = 0;
  bool begun_ = false;
  std::vector<std::byte> received_;
  std::unique_ptr<Pending> receive_, send_;
};

// On rank 0.
class Server : public Pending {
 public:
  Server(MessageCommunicator& ranks, Span values, const Average& how)
      : ranks_(ranks), values_(values), wire_(how) {
    received_.resize(std::size_t(ranks.size() - 1));
    for (int r = 1; r < ranks.size(); ++r) {
      received_[std::size_t(r - 1)].resize(wire_.bytes(values.size()));
      transfers_.push_back(ranks.receive(r, received_[std::size_t(r - 1)]));
    }
  }

  bool progress() override {
    if (!transferred()) return false;
    if (answering_) return true;
    answering_ = true;
    for (std::vector<std::byte>& from : received_) wire_.add(values_, from);
    wire_.divide(values_, ranks_.size());
    const ConstSpan answer = wire_.encode(values_);
    for (int r = 1; r < ranks_.size(); ++r) transfers_[std::size_t(r - 1)] = ranks_.send(r, answer);
    return transferred();
  }
  std::optional<int> waits_for() const override {
    for (std::size_t i = 0; i < transfers_.size(); ++i)
      if (transfers_[i]) return int(i) + 1;
    return 0;
  }

 private:
  bool transferred() {
    bool all = true;
    for (auto& transfer : transfers_) {
      if (transfer && transfer->progress()) transfer.reset();
      all &= !transfer;
    }
    return all;
  }

  MessageCommunicator& ranks_;
  Span values_;
  Wire wire_;
  std::vector<std::vector<std::byte>> received_;     // by rank - 1
  std::vector<std::unique_ptr<Pending>> transfers_;  // null: complete
  bool answering_ = false;
};

// On the other ranks.
class Client : public Pending {
 public:
  Client(MessageCommunicator& ranks, Span values, const Average& how)
      : values_(values), wire_(how), received_(wire_.bytes(values.size())) {
    send_ = ranks.send(0, wire_.encode(values));
    receive_ = ranks.receive(0, received_);
  }
  bool progress() override {
    if (send_ && send_->progress()) send_.reset();
    if (receive_ && receive_->progress()) receive_.reset();
    if (send_ || receive_) return false;
    wire_.store(values_, received_);
    return true;
  }
  std::optional<int> waits_for() const override { return 0; }

 private:
  Span values_;
  Wire wire_;
  std::vector<std::byte> received_;
  std::unique_ptr<Pending> send_, receive_;
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
  if (rank() == 0) return std::make_unique<Server>(*this, values, how);
  return std::make_unique<Client>(*this, values, how);
}

}  // namespace convlab::nets
