// Gradients that cards average among themselves.
#include <gtest/gtest.h>

#include <latch>
#include <mutex>

#include "nets/distributed/exchange.h"
#include "tests/nets/distributed/averaging_card.h"
#include "tests/nets/distributed/ranks_lab.h"

namespace convlab::nets {
namespace {

// A rank with a net on its card.
struct CardLab {
  CardLab(const Communicator& c, CardLink& link, DType dtype = DType::f64)
      : CardLab(c, std::make_unique<AveragingCard>(link), dtype) {}
  CardLab(const Communicator& c, std::unique_ptr<AveragingCard> owned, DType dtype)
      : card(*owned), lab(c.rank(), c.size(), dtype, std::move(owned)) {
    lab.loader.start(0);
    card.become_a_card();
    card.pinned = 0;
  }
  AveragingCard& card;
  RankLab lab;
};

void expect_near(const std::vector<Values>& got, const std::vector<Values>& expected, double most) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(relative_error(got[i], expected[i]), most) << "parameter " << i;
}

std::vector<Values> weights_of_one_process(DType dtype, int steps) {
  RankLab alone(0, 1, dtype);
  alone.loader.start(0);
  for (int i = 0; i < steps; ++i) alone.step(nullptr);
  return alone.weights();
}

TEST(DeviceExchange, WeightsAreThoseOfOneProcess) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const std::vector<Values> weights = weights_of_one_process(dtype, 5);
    for (const int ranks : {2, 4})
      for (const Strategy strategy : {Strategy::overlapped, Strategy::after})
        for (const std::int64_t bucket : {0, 500})
          for (const bool own_thread : {false, true}) {
            CardLink link;
            on_ranks(ranks, [&](Communicator& c) {
              CardLab on(c, link, dtype);
              GradientExchange exchange(
                  on.lab.net, c,
                  {.strategy = strategy, .bucket_bytes = bucket, .own_thread = own_thread});
              EXPECT_EQ(exchange.note(), "");
              for (int i = 0; i < 5; ++i) on.lab.step(&exchange);
              expect_near(on.lab.weights(), weights, dtype == DType::f64 ? 1e-12 : 1e-4);
              EXPECT_EQ(on.card.pinned, 0);
              EXPECT_GT(on.card.started, 0);
            });
          }
  }
}

// As soon as backward has queued a bucket's gradients, and behind them; or after all of it.
TEST(DeviceExchange, StartsBehindTheNetsStreamWhileBackwardIsQueued) {
  for (const Strategy strategy : {Strategy::overlapped, Strategy::after}) {
    CardLink link;
    on_ranks(2, [&](Communicator& c) {
      CardLab on(c, link);
      GradientExchange exchange(on.lab.net, c, {.strategy = strategy, .bucket_bytes = 1});
      std::vector<int> started;
      on.lab.net.observe([&](const Step&, Phase phase, double, double) {
        if (phase == Phase::backward_filter) started.push_back(on.card.started);
      });
      on.lab.step(&exchange);
      // Of fc, conv2 and conv1, each with weights and bias. A step's own follow when it is over.
      EXPECT_EQ(started, strategy == Strategy::after ? (std::vector<int>{0, 0, 0})
                                                     : (std::vector<int>{0, 2, 4}));
      EXPECT_EQ(on.card.behind, std::vector<const Stream*>(6, &on.lab.net.stream()));
    });
  }
}

// A bucket took what its device says.
TEST(DeviceExchange, TimesAreTheDevices) {
  CardLink link;
  on_ranks(2, [&](Communicator& c) {
    CardLab on(c, link);
    GradientExchange exchange(on.lab.net, c, {.bucket_bytes = 1});
    on.lab.step(&exchange);
    ASSERT_EQ(exchange.buckets().size(), 6u);
    EXPECT_NEAR(exchange.communicated_s(), 6 * AveragingCard::average_s, 1e-6);
  });
}

// ---- Through the hosts ----

// What the exchange says on all ranks, after a step that is right.
std::string note_of(const std::function<void(int rank, AveragingCard&)>& prepare,
                    const ExchangeOptions& options = {.bucket_bytes = 500},
                    DType dtype = DType::f64) {
  const std::vector<Values> weights = weights_of_one_process(dtype, 1);
  CardLink link;
  std::mutex mutex;
  std::vector<std::string> says;
  on_ranks(2, [&](Communicator& c) {
    CardLab on(c, link, dtype);
    prepare(c.rank(), on.card);
    GradientExchange exchange(on.lab.net, c, options);
    on.lab.step(&exchange);
    expect_near(on.lab.weights(), weights, dtype == DType::f64 ? 1e-12 : 0.02);
    EXPECT_EQ(on.card.started, 0);
    const std::lock_guard lock(mutex);
    says.push_back(exchange.note());
  });
  EXPECT_EQ(says[0], says[1]);
  return says[0];
}

TEST(DeviceExchange, GoesThroughTheHostsUnlessAllCardsCan) {
  EXPECT_EQ(
      note_of([](int rank, AveragingCard& card) {
        if (rank == 1) card.missing = "NCCL: libnccl.so.2: cannot open; install it";
      }),
      "gradients travel through the hosts: rank 1: NCCL: libnccl.so.2: cannot open; install it");
  EXPECT_EQ(note_of([](int rank, AveragingCard& card) {
              if (rank == 0) card.cannot_join = "two ranks have the same card";
            }),
            "gradients travel through the hosts: two ranks have the same card");
}

TEST(DeviceExchange, GoesThroughTheHostsForWhatOnlyTheyDo) {
  const auto nothing = [](int, AveragingCard&) {};
  EXPECT_EQ(note_of(nothing, {.strategy = Strategy::server}),
            "gradients travel through the hosts: the server is rank 0's host");
  EXPECT_EQ(note_of(nothing, {.bf16 = true}, DType::f32),
            "gradients travel through the hosts: they are rounded to bf16 there");
}

TEST(DeviceExchange, GoesThroughTheHostsForADeterministicPlan) {
  CardLink link;
  on_ranks(2, [&](Communicator& c) {
    AveragingCard card(link);
    NetPlan plan =
        uniform_plan(plain_net(4), Mode::training, DType::f64, "im2col", Layout::nchw, card);
    plan.deterministic = true;
    Net net(plain_net(4), plan, cpu_algos(), card);
    card.become_a_card();
    EXPECT_EQ(GradientExchange(net, c, {}).note(),
              "gradients travel through the hosts: only there the order of additions is always the "
              "same");
  });
}

// On a CPU there is nothing to say, and no card to ask.
TEST(DeviceExchange, IsNothingToACpu) {
  on_ranks(2, [](Communicator& c) {
    RankLab lab(c);
    GradientExchange exchange(lab.net, c, {.bucket_bytes = 1});
    EXPECT_EQ(exchange.note(), "");
  });
}

// ---- A lost rank ----

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceExchange, EndsWhenARankGivesUp) {
  for (const bool own_thread : {false, true}) {
    CardLink link;
    std::string says;
    on_ranks(2, [&](Communicator& c) {
      CardLab on(c, link);
      GradientExchange exchange(on.lab.net, c, {.own_thread = own_thread});
      on.lab.step(&exchange);
      if (c.rank() == 0) says = message_of([&] { on.lab.step(&exchange); });
    });
    EXPECT_EQ(says, "another card has left");
    EXPECT_EQ(link.left, 2);
  }
}

TEST(DeviceExchange, LosesPatienceWithARankThatDoesNotAnswer) {
  CardLink link;
  std::string says;
  std::latch done(1);
  on_ranks(
      2,
      [&](Communicator& c) {
        CardLab on(c, link);
        GradientExchange exchange(on.lab.net, c, {.bucket_bytes = 1 << 20});
        if (c.rank() == 1) return done.wait();
        says = message_of([&] { on.lab.step(&exchange); });
        done.count_down();
      },
      0.5);
  EXPECT_EQ(says, "rank 0 has waited 0.5 s for another, which does not answer");
}

}  // namespace
}  // namespace convlab::nets
