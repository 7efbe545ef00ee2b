// Ranks: the processes (or, in tests, threads) that train one net together, each on its share of
// every batch.
//
// All ranks call the same collective functions in the same order. One thread at a time uses a
// communicator; duplicates of it can be used by other threads meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "conv/error.h"
#include "conv/types/layout.h"
#include "conv/types/span.h"

namespace convlab::nets {

// Another rank gave up, or does not answer.
class RankLost : public Error {
 public:
  using Error::Error;
};

// Something started that completes without being waited for.
class Pending {
 public:
  virtual ~Pending() = default;
  // Does all that is possible without waiting. True once complete; then it is not called again.
  // Throws RankLost.
  virtual bool progress() = 0;
  // A rank whose message is missing; nullopt if that cannot be told.
  virtual std::optional<int> waits_for() const = 0;
};

// How an average travels.
enum class Route : std::uint8_t {
  // Reduce-scatter, then all-gather around a ring (Patarasuk & Yuan 2009): each rank sends and
  // receives 2 (n - 1) / n of the bytes. The order of additions is fixed by the numbers of
  // ranks and of values.
  ring,
  // Everything to rank 0 and back, which adds in the order of ranks: a parameter server.
  server,
};

struct Average {
  DType dtype = DType::f32;  // of the values: f32 or f64
  Route route = Route::ring;
  // Rounds to bf16 whatever travels, partial sums included. For f32.
  bool bf16 = false;
};

// Throws InputError for a type that cannot be averaged, or not in bf16.
void validate(const Average&);

// How long a rank waits for others.
struct Patience {
  double limit_s = 300;  // then it throws RankLost
  // After so long, and again whenever the wait has doubled, the first of the ranks that wait
  // calls `tell` with a line that names those that do not: they hold up all the others. On
  // whichever thread waits.
  double tell_s = 10;
  std::function<void(const std::string& line)> tell{};
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // from 0
  virtual int size() const = 0;

  // Collective. Host memory. They throw RankLost.
  virtual void broadcast(Span, int root = 0) = 0;
  // `all` gets every rank's bytes, as many from each, in the order of ranks.
  virtual void all_gather(ConstSpan mine, Span all) = 0;
  // Starts to replace the values by their averages over the ranks, which are the same bits on all.
  // One average at a time; values stay untouched until it is complete.
  virtual std::unique_ptr<Pending> start_average(Span values, const Average&) = 0;
  // The same ranks; messages of the two do not mix.
  virtual std::unique_ptr<Communicator> duplicate() = 0;

  // This rank takes part no longer: others that wait for it end. Not collective.
  virtual void abandon(const std::string& why) noexcept = 0;
  virtual bool has_abandoned() const noexcept = 0;

  void barrier();
  // For values without pointers.
  template <class T>
  std::vector<T> all_gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(size()));
    all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }
  std::vector<std::string> all_gather(const std::string& mine);
  std::string broadcast(std::string text, int root = 0);
  void average(Span values, const Average&);
  // Adds each value over all ranks, in their order: the same bits on all.
  void sum(std::span<double> values);

  // Waits until it is complete, or *stop (false is returned). Throws RankLost when it runs out of
  // patience.
  bool complete(Pending&, const std::atomic<bool>* stop = nullptr);
  Patience patience;  // duplicates begin with a copy

 protected:
  // Says to the other ranks that this one has waited for long, or that it waits no longer. Does not
  // wait for them.
  virtual void set_waiting(bool) noexcept {}
  // Who has said so, this rank included, in ascending order. Empty if that cannot be told.
  virtual std::vector<int> waiting_ranks() { return {}; }

 private:
  class Wait;
};

// Throws InputError, the same on all ranks, unless all give the same text for `what`.
void require_same(Communicator&, const std::string& what, const std::string& text);

}  // namespace convlab::nets
