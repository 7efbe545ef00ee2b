// Several ranks compute what one process computes with all their images.
#include "nets/distributed/exchange.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>

#include "tests/cpu_backed_device.h"
#include "tests/nets/distributed/ranks_lab.h"

namespace convlab::nets {
namespace {

struct Setting {
  int ranks;
  DType dtype;
  ExchangeOptions options;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const int ranks : {2, 4})
    for (const DType dtype : {DType::f32, DType::f64})
      for (const Strategy strategy : {Strategy::overlapped, Strategy::after, Strategy::server})
        for (const std::int64_t bucket : {1, 500, 1 << 20})
          for (const bool own_thread : {false, true})
            all.push_back(
                {ranks,
                 dtype,
                 {.strategy = strategy, .bucket_bytes = bucket, .own_thread = own_thread}});
  return all;
}

std::string name(const Setting& s) {
  return fmt::format("{} ranks, {}, {}, buckets of {}, own thread {}", s.ranks, to_string(s.dtype),
                     to_string(s.options.strategy), s.options.bucket_bytes, s.options.own_thread);
}

void expect_near(const std::vector<Values>& got, const std::vector<Values>& expected, double most) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(relative_error(got[i], expected[i]), most) << "parameter " << i;
}

TEST(Exchange, GradientsAndWeightsAreThoseOfOneProcess) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    RankLab alone(0, 1, dtype);
    alone.loader.start(0);
    alone.step(nullptr);
    const std::vector<Values> gradients = alone.gradients();
    for (int i = 1; i < 10; ++i) alone.step(nullptr);
    const std::vector<Values> weights = alone.weights();
    const double most = dtype == DType::f64 ? 1e-12 : 1e-4;
    for (const Setting& s : settings()) {
      if (s.dtype != dtype) continue;
      SCOPED_TRACE(name(s));
      on_ranks(s.ranks, [&](Communicator& c) {
        RankLab lab(c, dtype);
        GradientExchange exchange(lab.net, c, s.options);
        lab.loader.start(0);
        lab.step(&exchange);
        expect_near(lab.gradients(), gradients, most);
        for (int i = 1; i < 10; ++i) lab.step(&exchange);
        expect_near(lab.weights(), weights, most);
      });
    }
  }
}

// The running statistics too, which are parameters.
TEST(Exchange, SynchronisedBatchNormIsThatOfOneProcess) {
  RankLab alone(0, 1, DType::f64, make_cpu_device({1, ""}), &normalised_net);
  alone.loader.start(0);
  for (int i = 0; i < 10; ++i) alone.step(nullptr);
  for (const bool synchronised : {true, false})
    for (const bool own_thread : {false, true})
      for (const int ranks : {2, 4})
        on_ranks(ranks, [&](Communicator& c) {
          const AllReduceSums sum = [&](std::span<double> sums) { c.sum(sums); };
          RankLab lab(c.rank(), c.size(), DType::f64, make_cpu_device({1, ""}), &normalised_net,
                      synchronised ? sum : nullptr);
          GradientExchange exchange(lab.net, c, {.bucket_bytes = 500, .own_thread = own_thread});
          lab.loader.start(0);
          for (int i = 0; i < 10; ++i) lab.step(&exchange);
          if (synchronised)
            expect_near(lab.weights(), alone.weights(), 1e-12);
          else
            EXPECT_GT(relative_error(lab.weights()[0], alone.weights()[0]), 1e-4);
        });
}

// It runs nets as a CPU. What looks at it later sees a card.
class CardToBe final : public CpuBackedDevice {
 public:
  CardToBe() : CpuBackedDevice({1, ""}) {}
  void become_a_card() { info_.kind = DeviceKind::cuda; }
};

TEST(Exchange, ACardsGradientsTravelFromAndToTheHost) {
  RankLab alone(0, 1, DType::f64);
  alone.loader.start(0);
  alone.step(nullptr);
  const std::vector<Values> gradients = alone.gradients();
  for (const bool own_thread : {false, true})
    on_ranks(2, [&](Communicator& c) {
      auto card = std::make_unique<CardToBe>();
      CardToBe& device = *card;
      RankLab lab(c.rank(), c.size(), DType::f64, std::move(card));
      lab.loader.start(0);
      device.become_a_card();
      GradientExchange exchange(lab.net, c, {.bucket_bytes = 500, .own_thread = own_thread});
      lab.step(&exchange);
      expect_near(lab.gradients(), gradients, 1e-12);
    });
}

// Otherwise the test before would hold without any exchange.
TEST(Exchange, WithoutItGradientsAreOthers) {
  RankLab alone(0, 1, DType::f64), half(0, 2, DType::f64);
  alone.loader.start(0);
  half.loader.start(0);
  alone.step(nullptr);
  half.step(nullptr);
  EXPECT_GT(relative_error(half.gradients()[0], alone.gradients()[0]), 0.01);
}

TEST(Exchange, RunsAreTheSameBits) {
  for (const Strategy strategy : {Strategy::overlapped, Strategy::server}) {
    std::vector<std::vector<Values>> results;
    std::mutex mutex;
    for (const bool own_thread : {false, true})
      on_ranks(4, [&](Communicator& c) {
        RankLab lab(c, DType::f32);
        GradientExchange exchange(
            lab.net, c,
            {.strategy = strategy, .bucket_bytes = 500, .bf16 = true, .own_thread = own_thread});
        lab.loader.start(0);
        for (int i = 0; i < 10; ++i) lab.step(&exchange);
        const std::lock_guard lock(mutex);
        results.push_back(lab.weights());
      });
    for (const auto& result : results) EXPECT_EQ(result, results.front());
  }
}

TEST(Exchange, Bf16OnTheWayCostsLittle) {
  RankLab alone(0, 1, DType::f32);
  alone.loader.start(0);
  alone.step(nullptr);
  const std::vector<Values> gradients = alone.gradients();
  on_ranks(4, [&](Communicator& c) {
    RankLab lab(c, DType::f32);
    GradientExchange exchange(lab.net, c, {.bf16 = true});
    lab.loader.start(0);
    lab.step(&exchange);
    expect_near(lab.gradients(), gradients, 0.02);
  });
}

// conv1 has 54 + 6 parameters, conv2 270 + 5, fc 320 + 4; each in a multiple of 64 bytes.
TEST(Exchange, BucketsFollowBackward) {
  on_ranks(2, [](Communicator& c) {
    RankLab lab(c, DType::f32);
    const auto firsts = [&](std::int64_t bytes) {
      GradientExchange exchange(lab.net, c, {.bucket_bytes = bytes});
      lab.loader.start(0);
      lab.step(&exchange);
      std::vector<std::size_t> firsts;
      std::size_t end = lab.net.parameters().size(), sum = 0;
      for (const BucketExchange& bucket : exchange.buckets()) {
        EXPECT_EQ(bucket.end, end);
        EXPECT_LE(bucket.begun, bucket.ended);
        end = bucket.first;
        sum += bucket.bytes;
        firsts.push_back(bucket.first);
      }
      EXPECT_EQ(sum, lab.net.gradients().size());
      EXPECT_GT(exchange.communicated_s(), 0);
      EXPECT_GT(exchange.exposed_s(), 0);
      return firsts;
    };
    EXPECT_EQ(firsts(1), (std::vector<std::size_t>{5, 4, 3, 2, 1, 0}));
    EXPECT_EQ(firsts(1300), (std::vector<std::size_t>{4, 0}));
    EXPECT_EQ(firsts(1 << 20), (std::vector<std::size_t>{0}));
    GradientExchange measured(lab.net, c, {});
    EXPECT_GE(measured.bucket_bytes(), 64 << 10);
    EXPECT_EQ(c.all_gather(measured.bucket_bytes())[0], measured.bucket_bytes());
  });
}

// The fully connected layer's gradients travel before the first convolution's exist.
TEST(Exchange, OverlapsBackward) {
  on_ranks(2, [](Communicator& c) {
    RankLab lab(c);
    GradientExchange exchange(lab.net, c, {.bucket_bytes = 1});
    std::chrono::steady_clock::time_point last_step;
    lab.net.observe([&](const Step&, Phase phase, double, double) {
      if (phase != Phase::update) last_step = std::chrono::steady_clock::now();
    });
    lab.loader.start(0);
    lab.step(&exchange);
    EXPECT_LT(exchange.buckets().front().begun, last_step);
    EXPECT_GT(exchange.buckets().back().begun, last_step);
  });
}

TEST(Exchange, RefusesWhatDoesNotGoTogether) {
  on_ranks(2, [](Communicator& c) {
    RankLab lab(c, DType::f64);
    EXPECT_THROW(GradientExchange(lab.net, c, {.bucket_bytes = 1, .bf16 = true}), InputError);
    EXPECT_THROW(GradientExchange(lab.net, c, {.bucket_bytes = -1}), InputError);
    EXPECT_THROW(GradientExchange(lab.test_net, c, {}), InputError);
    EXPECT_THROW(parse_strategy("ring"), InputError);
    EXPECT_EQ(parse_strategy("server"), Strategy::server);
  });
}

// In the middle of an exchange.
TEST(Exchange, EndsWhenARankGivesUp) {
  for (const bool own_thread : {false, true})
    EXPECT_THROW(on_ranks(2,
                          [&](Communicator& c) {
                            RankLab lab(c);
                            GradientExchange exchange(lab.net, c, {.own_thread = own_thread});
                            lab.loader.start(0);
                            lab.step(&exchange);
                            if (c.rank() == 1) throw RankLost("this test's rank");
                            lab.step(&exchange);
                          }),
                 RankLost);
}

TEST(Exchange, RefusesOptionsThatDiffer) {
  using Change = std::function<void(ExchangeOptions&)>;
  for (const auto& setting : std::map<std::string, Change>{
           {"exchange", [](ExchangeOptions& o) { o.strategy = Strategy::server; }},
           {"bucket", [](ExchangeOptions& o) { o.bucket_bytes = 7; }},
           {"compression", [](ExchangeOptions& o) { o.bf16 = true; }}}) {
    std::atomic<int> refused = 0;
    on_ranks(2, [&](Communicator& c) {
      RankLab lab(c);  // in f64, for which bf16 is refused too
      ExchangeOptions options;
      if (c.rank() == 1) setting.second(options);
      try {
        GradientExchange(lab.net, c, options);
      } catch (const InputError& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with(setting.first + ": rank 1 has "))
            << error.what();
        ++refused;
      }
    });
    EXPECT_EQ(refused, 2) << setting.first;
  }
}

// ---- The loader's shares ----

TEST(Exchange, SharesOfABatchAreTheBatch) {
  for (const int ranks : {2, 4}) {
    RankLab whole(0, 1, DType::f32);
    const auto next = [](DataLoader& loader) {
      const Batch* batch = loader.next();
      return batch == nullptr ? Batch() : *batch;
    };
    std::vector<std::unique_ptr<RankLab>> labs;
    for (int r = 0; r < ranks; ++r) labs.push_back(std::make_unique<RankLab>(r, ranks, DType::f32));
    for (const bool train : {true, false}) {
      const auto loader = [train](RankLab& lab) -> DataLoader& {
        return train ? lab.loader : lab.test_loader;
      };
      loader(whole).start(3, 1);
      for (const auto& lab : labs) loader(*lab).start(3, 1);
      for (std::int64_t b = 1; b < loader(whole).batches(); ++b) {
        const Batch batch = next(loader(whole));
        std::vector<std::byte> inputs;
        std::vector<std::int32_t> labels;
        std::int64_t images = 0;
        for (const auto& lab : labs) {
          const Batch share = next(loader(*lab));
          inputs.insert(inputs.end(), share.input.begin(), share.input.end());
          labels.insert(labels.end(), share.labels.begin(), share.labels.end());
          images += share.images;
        }
        EXPECT_EQ(images, batch.images);
        EXPECT_TRUE(
            std::equal(labels.begin(), labels.end(), batch.labels.begin(), batch.labels.end()));
        EXPECT_TRUE(
            std::equal(inputs.begin(), inputs.end(), batch.input.begin(), batch.input.end()));
      }
    }
  }
  EXPECT_THROW(RankLab(0, 3, DType::f32), InputError);
}

}  // namespace
}  // namespace convlab::nets
