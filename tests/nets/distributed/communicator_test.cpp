// Averages, broadcasts and gathers among ranks, and ranks that fail.
#include "nets/distributed/communicator.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>
#include <thread>

#include "nets/distributed/messages.h"
#include "tests/nets/distributed/ranks_lab.h"

namespace convlab::nets {
namespace {

// Each rank's values are its own; averages of these are exact.
template <class T>
std::vector<T> whole_numbers(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = T((rank + 1) * 60 * (int(i % 17) + 1));
  return values;
}

template <class T>
void expect_averages(int ranks, std::size_t count, Route route) {
  const DType dtype = sizeof(T) == 8 ? DType::f64 : DType::f32;
  on_ranks(ranks, [&](Communicator& c) {
    std::vector<T> values = whole_numbers<T>(c.rank(), count);
    c.average(std::as_writable_bytes(std::span(values)), {dtype, route});
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_EQ(values[i], T(30 * (ranks + 1) * (int(i % 17) + 1))) << ranks << " " << i;
  });
}

TEST(Communicator, AveragesOnAnyNumberOfRanks) {
  for (const Route route : {Route::ring, Route::server})
    for (const int ranks : {1, 2, 3, 4, 5})
      for (const std::size_t count : {0, 1, 4, 7, 1000}) {
        expect_averages<float>(ranks, count, route);
        expect_averages<double>(ranks, count, route);
      }
}

// Segments of a long one travel at the same time.
TEST(Communicator, AveragesMoreThanTravelsAtOnce) {
  for (const int ranks : {2, 3})
    for (const std::size_t count : {600'000, 1'300'001}) {
      expect_averages<float>(ranks, count, Route::ring);
      expect_averages<double>(ranks, count, Route::ring);
    }
}

// The sum of 1/3 of everything depends on the order of additions; on all ranks it is one.
TEST(Communicator, AveragesAreTheSameBitsOnAllRanksAndInAllRuns) {
  for (const Route route : {Route::ring, Route::server})
    for (const bool bf16 : {false, true}) {
      std::vector<std::vector<float>> results;
      std::mutex mutex;
      for (int run = 0; run < 2; ++run)
        on_ranks(4, [&](Communicator& c) {
          std::vector<float> values(999);
          for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = std::sin(float(i) + 3.1f * float(c.rank()));
          c.average(std::as_writable_bytes(std::span(values)), {DType::f32, route, bf16});
          const std::lock_guard lock(mutex);
          results.push_back(values);
        });
      for (const auto& result : results) EXPECT_EQ(result, results.front());
      for (std::size_t i = 0; i < 999; ++i) {
        double mean = 0;
        for (int r = 0; r < 4; ++r) mean += std::sin(double(i) + 3.1 * r) / 4;
        EXPECT_NEAR(results.front()[i], mean, bf16 ? 0.02 : 1e-4);
      }
      // With bf16 no more than its 16 bits arrive.
      EXPECT_EQ(bf16, std::bit_cast<std::uint32_t>(results.front()[1]) % 65536 == 0);
    }
}

TEST(Communicator, RefusesWhatCannotBeAveraged) {
  on_ranks(2, [](Communicator& c) {
    std::vector<double> values(4);
    const Span bytes = std::as_writable_bytes(std::span(values));
    EXPECT_THROW(c.average(bytes.first(5), {DType::f32}), InputError);
    EXPECT_THROW(c.average(bytes, {DType::bf16}), InputError);
    EXPECT_THROW(c.average(bytes, {DType::f64, Route::ring, true}), InputError);
  });
}

TEST(Communicator, BroadcastsFromAnyRank) {
  for (const int ranks : {1, 2, 3, 5, 8})
    for (int root = 0; root < ranks; ++root)
      on_ranks(ranks, [&](Communicator& c) {
        std::vector<int> values(100, c.rank());
        c.broadcast(std::as_writable_bytes(std::span(values)), root);
        EXPECT_EQ(values, std::vector<int>(100, root));
        EXPECT_EQ(c.broadcast(std::string(std::size_t(c.rank()), 'x'), root),
                  std::string(std::size_t(root), 'x'));
      });
}

TEST(Communicator, GathersInTheOrderOfRanks) {
  on_ranks(5, [](Communicator& c) {
    EXPECT_EQ(c.all_gather(10 * c.rank()), (std::vector<int>{0, 10, 20, 30, 40}));
    const std::string mine(std::size_t(c.rank()), char('a' + c.rank()));
    EXPECT_EQ(c.all_gather(mine), (std::vector<std::string>{"", "b", "cc", "ddd", "eeee"}));
  });
}

TEST(Communicator, AddsInTheOrderOfRanks) {
  on_ranks(3, [](Communicator& c) {
    const double terms[] = {1e16, 1, -1e16};  // in another order the sum is 1
    std::vector<double> sums{terms[c.rank()], double(c.rank())};
    c.sum(sums);
    EXPECT_EQ(sums, (std::vector<double>{0, 3}));
  });
}

TEST(Communicator, DuplicatesDoNotMixTheirMessages) {
  on_ranks(2, [](Communicator& c) {
    const std::unique_ptr<Communicator> other = c.duplicate(), third = other->duplicate();
    std::vector<float> values(1000, float(c.rank())), more(10, float(10 * c.rank()));
    const auto pending = other->start_average(std::as_writable_bytes(std::span(values)), {});
    const auto last = third->start_average(std::as_writable_bytes(std::span(more)), {});
    pending->progress();
    last->progress();
    EXPECT_EQ(c.all_gather(c.rank()), (std::vector<int>{0, 1}));
    third->complete(*last);
    other->complete(*pending);
    EXPECT_EQ(values, std::vector<float>(1000, 0.5f));
    EXPECT_EQ(more, std::vector<float>(10, 5.0f));
  });
}

// Numbers of duplicates had met after a thousand.
TEST(Communicator, DuplicatesOfDuplicatesDoNotMixTheirMessagesEither) {
  on_ranks(2, [](Communicator& c) {
    const std::unique_ptr<Communicator> first = c.duplicate();
    std::unique_ptr<Communicator> last;
    for (int i = 0; i < 1000; ++i) last = c.duplicate();
    const std::unique_ptr<Communicator> nested = first->duplicate();
    std::vector<float> values(10, float(c.rank())), more(10, float(10 * c.rank()));
    Communicator* const in_order[] = {last.get(), nested.get()};
    std::vector<float>* const sums[] = {&values, &more};
    std::unique_ptr<Pending> pending[2];
    for (const int i : {c.rank(), 1 - c.rank()}) {  // each rank begins with another
      pending[i] = in_order[i]->start_average(std::as_writable_bytes(std::span(*sums[i])), {});
      pending[i]->progress();
    }
    for (const int i : {0, 1}) in_order[i]->complete(*pending[i]);
    EXPECT_EQ(values, std::vector<float>(10, 0.5f));
    EXPECT_EQ(more, std::vector<float>(10, 5.0f));
  });
}

TEST(Communicator, SaysWhoDiffers) {
  on_ranks(3, [](Communicator& c) {
    require_same(c, "seed", "1");
    try {
      require_same(c, "seed", c.rank() == 2 ? "7" : "1");
      ADD_FAILURE() << "not refused";
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), "seed: rank 2 has 7, rank 0 has 1: expected the same on all");
    }
  });
}

TEST(Communicator, ARankThatGivesUpEndsTheOthers) {
  std::atomic<int> lost = 0;
  on_ranks(4, [&](Communicator& c) {
    if (c.rank() == 2) return c.abandon("no disk");
    try {
      std::vector<float> values(100);
      c.average(std::as_writable_bytes(std::span(values)), {});
      c.barrier();
    } catch (const RankLost& error) {
      EXPECT_STREQ(error.what(), "rank 2 gave up: no disk");
      ++lost;
    }
  });
  EXPECT_EQ(lost, 3);
}

TEST(Communicator, NamesTheRankThatDoesNotAnswer) {
  on_ranks(
      3,
      [](Communicator& c) {
        std::vector<float> values(100);
        if (c.rank() == 1) return;
        if (c.rank() == 0) return;
        try {
          c.average(std::as_writable_bytes(std::span(values)), {});
          ADD_FAILURE() << "answered";
        } catch (const RankLost& error) {
          EXPECT_STREQ(error.what(), "rank 2 has waited 0.1 s for rank 1, which does not answer");
        }
      },
      0.1);
}

// In the ring rank 0 waits for rank 3, which waits for rank 2. A rank that is late takes part again
// once it was named: named it is sooner or later, however late the others are.
TEST(Communicator, TellsWhomAllWaitFor) {
  std::mutex mutex;
  std::vector<std::string> told;
  const auto is_told = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    return std::any_of(told.begin(), told.end(), [&](const std::string& t) {
      return t.starts_with(line.substr(0, line.find('*'))) &&
             t.ends_with(line.substr(line.find('*') + 1));
    });
  };
  on_ranks(4, [&](Communicator& c) {
    c.patience.tell_s = 0.02;
    c.patience.tell = [&](const std::string& line) {
      const std::lock_guard lock(mutex);
      told.push_back(line);
    };
    const std::unique_ptr<Communicator> other = c.duplicate();
    const auto be_late = [&](const std::vector<int>& late, const std::string& line) {
      if (std::find(late.begin(), late.end(), c.rank()) != late.end()) {
        constexpr int most_ms = 30'000;
        for (int ms = 0; ms < most_ms && !is_told(line); ++ms)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_TRUE(is_told(line)) << line;
      }
      std::vector<float> values(100);
      other->average(std::as_writable_bytes(std::span(values)), {});
      c.barrier();
    };
    be_late({2}, "rank 0 has waited * s for rank 2, which does not answer");
    be_late({0}, "rank 1 has waited * s for rank 0, which does not answer");
    be_late({0, 2}, "rank 1 has waited * s for ranks 0, 2, which do not answer");
  });
}

// A process that a scheduler suspends for longer than it has patience goes on where it was. It is a
// process of its own, since all of its threads stop.
TEST(Communicator, AStoppedProcessHasNotWaitedMeanwhile) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer does not follow forks";
#endif
#endif
  const pid_t process = fork();
  ASSERT_GE(process, 0);
  constexpr int patience_s = 5;
  if (process == 0) {
    alarm(60);
    try {
      on_ranks(
          2,
          [](Communicator& c) {
            constexpr auto a_while = std::chrono::milliseconds(200);
            if (c.rank() == 1) {
              std::this_thread::sleep_for(a_while);  // the other waits by now
              raise(SIGSTOP);
              std::this_thread::sleep_for(a_while);  // it looks how long it has waited
            }
            c.barrier();
          },
          patience_s);
    } catch (const RankLost&) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, WUNTRACED), process);
  ASSERT_TRUE(WIFSTOPPED(status));
  std::this_thread::sleep_for(std::chrono::seconds(patience_s + 1));
  kill(process, SIGCONT);
  ASSERT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// One of two ranks, whose transfers never end, as MPI's do not when the other is lost.
class Unanswered : public MessageCommunicator {
 public:
  explicit Unanswered(int rank) : rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  std::unique_ptr<Pending> send(int, ConstSpan message) override {
    sent.push_back(message);
    return std::make_unique<Endless>();
  }
  std::unique_ptr<Pending> receive(int, Span message) override {
    received.push_back(message);
    return std::make_unique<Endless>();
  }
  std::unique_ptr<Communicator> duplicate() override { return nullptr; }
  void abandon(const std::string&) noexcept override {}
  bool has_abandoned() const noexcept override { return false; }

  std::vector<ConstSpan> sent;
  std::vector<Span> received;

 private:
  struct Endless : Pending {
    bool progress() override { return false; }
    std::optional<int> waits_for() const override { return {}; }
  };
  int rank_;
};

TEST(MessageCommunicator, AnAverageThatIsDroppedLeavesItsMemoryToItsTransfers) {
  for (const Route route : {Route::ring, Route::server})
    for (const int rank : {0, 1}) {
      Unanswered c(rank);
      {
        std::vector<float> values(1 << 20, 1.0f);
        const auto average =
            c.start_average(std::as_writable_bytes(std::span(values)), {DType::f32, route});
        EXPECT_FALSE(average->progress());
      }
      EXPECT_FALSE(c.sent.empty() && c.received.empty());
      // What would take the place of freed memory.
      const std::vector<std::vector<std::byte>> others(64, std::vector<std::byte>(32 << 10));
      for (const Span message : c.received) std::ranges::fill(message, std::byte{0xff});
      for (const ConstSpan message : c.sent) {
        const auto floats = std::span(reinterpret_cast<const float*>(message.data()),
                                      message.size() / sizeof(float));
        EXPECT_TRUE(std::ranges::all_of(floats, [](float v) { return v == 1; }));
      }
      for (const auto& other : others)
        EXPECT_TRUE(std::ranges::all_of(other, [](std::byte b) { return b == std::byte{0}; }));
    }
}

}  // namespace
}  // namespace convlab::nets
