// Training on several ranks: the numbers of one process, one checkpoint, one end.
#include "nets/train/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>

#include "tests/nets/distributed/ranks_lab.h"

namespace convlab::nets {
namespace {

class DistributedTrainer : public testing::Test {
 protected:
  ~DistributedTrainer() override { std::filesystem::remove(checkpoint_); }
  std::string checkpoint_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("ranks_{}.safetensors", getpid());
};

struct Course {
  std::vector<StepReport> steps;
  std::vector<EpochReport> epochs;
  std::vector<Values> weights;
  bool done = false;
};

TrainOptions options(Course& course, std::int64_t epochs, Communicator* c) {
  return {.epochs = epochs,
          .rule = SgdDesc{.rate = 0.05, .momentum = 0.9},
          .communicator = c,
          .exchange = {.bucket_bytes = 500},
          .on_step =
              [&course](const StepReport& r) {
                course.steps.push_back(r);
                return true;
              },
          .on_epoch =
              [&course](const EpochReport& r) {
                course.epochs.push_back(r);
                return true;
              }};
}

// On ranks or, with null, alone. `resume` and `checkpoint` may be empty.
Course train(Communicator* c, std::int64_t epochs, const std::string& checkpoint = "",
             const std::string& resume = "") {
  Course course;
  RankLab lab(c ? c->rank() : 0, c ? c->size() : 1, DType::f64);
  TrainOptions o = options(course, epochs, c);
  o.checkpoint = checkpoint;
  Trainer trainer(lab.net, lab.loader, o);
  trainer.test_with(lab.test_net, lab.test_loader);
  if (!resume.empty()) trainer.resume(read_checkpoint(resume));
  course.done = trainer.run();
  course.weights = lab.weights();
  return course;
}

void expect_same(const Course& got, const Course& expected) {
  EXPECT_EQ(got.done, expected.done);
  ASSERT_EQ(got.steps.size(), expected.steps.size());
  for (std::size_t i = 0; i < got.steps.size(); ++i) {
    EXPECT_NEAR(got.steps[i].loss, expected.steps[i].loss, 1e-12);
    EXPECT_EQ(got.steps[i].rate, expected.steps[i].rate);
    EXPECT_EQ(got.steps[i].scores.top1, expected.steps[i].scores.top1);
    EXPECT_EQ(got.steps[i].scores.images, expected.steps[i].scores.images);
  }
  ASSERT_EQ(got.epochs.size(), expected.epochs.size());
  for (std::size_t i = 0; i < got.epochs.size(); ++i) {
    EXPECT_EQ(got.epochs[i].test->images, 20);
    EXPECT_EQ(got.epochs[i].test->top1, expected.epochs[i].test->top1);
    EXPECT_NEAR(got.epochs[i].test->loss, expected.epochs[i].test->loss, 1e-10);
    EXPECT_EQ(got.epochs[i].best, expected.epochs[i].best);
  }
  for (std::size_t p = 0; p < got.weights.size(); ++p)
    EXPECT_LE(relative_error(got.weights[p], expected.weights[p]), 1e-12) << p;
}

TEST_F(DistributedTrainer, IsATrainingOfTheWholeBatch) {
  const Course alone = train(nullptr, 3);
  for (const int ranks : {1, 2, 4})
    on_ranks(ranks, [&](Communicator& c) {
      const Course course = train(&c, 3);
      expect_same(course, alone);
      for (const EpochReport& epoch : course.epochs) {
        EXPECT_EQ(epoch.ranks.size(), ranks > 1 ? std::size_t(ranks) : 0);
        for (const RankTime& rank : epoch.ranks) {
          EXPECT_GT(rank.busy_s, 0);
          EXPECT_LE(rank.waited_for_s, rank.busy_s);
        }
        EXPECT_EQ(epoch.communicated_s > 0, ranks > 1);
      }
    });
}

// Two epochs on two ranks, then one on four, then one alone.
TEST_F(DistributedTrainer, ResumesOnAnotherNumberOfRanks) {
  const Course alone = train(nullptr, 4);
  on_ranks(2, [&](Communicator& c) { train(&c, 2, checkpoint_); });
  EXPECT_EQ(read_checkpoint(checkpoint_).state.batch, RankLab::batch);
  on_ranks(4, [&](Communicator& c) { train(&c, 3, checkpoint_, checkpoint_); });
  const Course last = train(nullptr, 4, "", checkpoint_);
  ASSERT_EQ(last.epochs.size(), 1u);
  for (std::size_t p = 0; p < last.weights.size(); ++p)
    EXPECT_LE(relative_error(last.weights[p], alone.weights[p]), 1e-12) << p;
}

TEST_F(DistributedTrainer, StartsWithTheWeightsOfRank0) {
  const Course alone = train(nullptr, 1);
  on_ranks(2, [&](Communicator& c) {
    Course course;
    RankLab lab(c);
    if (c.rank() == 1) lab.net.initialise(99);
    EXPECT_TRUE(Trainer(lab.net, lab.loader, options(course, 1, &c)).run());
    EXPECT_LE(relative_error(lab.weights()[0], alone.weights[0]), 1e-12);
  });
}

TEST_F(DistributedTrainer, WeightsThatDifferEndTheRun) {
  std::atomic<int> ended = 0;
  on_ranks(4, [&](Communicator& c) {
    Course course;
    RankLab lab(c);
    TrainOptions o = options(course, 5, &c);
    o.on_step = [&](const StepReport& r) {
      if (c.rank() == 2 && r.epoch == 1 && r.step == 1) {
        const Parameter& p = lab.net.parameters()[0];
        std::vector<std::byte> host(std::size_t(p.count) * sizeof(double));
        lab.net.read(p.value, host);
        host[5] ^= std::byte{1};
        lab.net.write(p.value, host);
      }
      return true;
    };
    try {
      Trainer(lab.net, lab.loader, o).run();
      ADD_FAILURE() << "nobody noticed";
    } catch (const Error& error) {
      EXPECT_TRUE(
          std::string(error.what())
              .starts_with("the weights of rank 2 differ from those of rank 0 after epoch 2"))
          << error.what();
      EXPECT_EQ(course.epochs.size(), 1u);
      ++ended;
    }
  });
  EXPECT_EQ(ended, 4);
}

TEST_F(DistributedTrainer, StopsOnAllRanksIfOnOne) {
  on_ranks(4, [&](Communicator& c) {
    for (const bool at_epoch : {false, true}) {
      Course course;
      RankLab lab(c);
      TrainOptions o = options(course, 4, &c);
      o.checkpoint = checkpoint_;
      o.on_step = [&](const StepReport& r) {
        return at_epoch || c.rank() != 3 || r.epoch < 1 || r.step < 2;
      };
      o.on_epoch = [&](const EpochReport& r) { return !at_epoch || c.rank() != 3 || r.epoch < 1; };
      Trainer trainer(lab.net, lab.loader, o);
      EXPECT_FALSE(trainer.run());
      EXPECT_EQ(trainer.state().epoch, at_epoch ? 2 : 1);
      EXPECT_EQ(trainer.state().step, at_epoch ? 0 : 4);
      c.barrier();
    }
  });
}

TEST_F(DistributedTrainer, SaysTheSameOnAllRanksWhenItDiverges) {
  std::vector<std::string> said;
  std::mutex mutex;
  on_ranks(2, [&](Communicator& c) {
    Course course;
    RankLab lab(c);
    TrainOptions o = options(course, 2, &c);
    o.rule = SgdDesc{.rate = 1e300};
    try {
      Trainer(lab.net, lab.loader, o).run();
    } catch (const Diverged& error) {
      const std::lock_guard lock(mutex);
      said.emplace_back(error.what());
    }
  });
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0], said[1]);
  EXPECT_NE(said[0].find("of epoch 1"), std::string::npos) << said[0];
}

TEST_F(DistributedTrainer, RefusesOptionsThatDiffer) {
  std::atomic<int> refused = 0;
  on_ranks(2, [&](Communicator& c) {
    Course course;
    RankLab lab(c);
    TrainOptions o = options(course, 2 + c.rank(), &c);
    try {
      Trainer(lab.net, lab.loader, o);
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), "epochs: rank 1 has 3, rank 0 has 2: expected the same on all");
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

// As when each host has a checkpoint of its own.
TEST_F(DistributedTrainer, RefusesCheckpointsThatDiffer) {
  train(nullptr, 1, checkpoint_);
  std::atomic<int> refused = 0;
  on_ranks(2, [&](Communicator& c) {
    try {
      train(&c, 2, "", c.rank() == 1 ? checkpoint_ : "");
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(),
                   "the checkpoint: rank 1 has that of epoch 2, step 0, rank 0 has none: expected "
                   "the same on all");
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

// A callback that throws on one rank ends the others.
TEST_F(DistributedTrainer, ARankThatFailsEndsTheOthers) {
  std::atomic<int> ended = 0;
  on_ranks(4, [&](Communicator& c) {
    Course course;
    RankLab lab(c);
    TrainOptions o = options(course, 4, &c);
    o.on_step = [&](const StepReport& r) -> bool {
      if (c.rank() == 1 && r.step == 3) throw EnvironmentError("no memory");
      return true;
    };
    try {
      Trainer(lab.net, lab.loader, o).run();
    } catch (const RankLost& error) {
      EXPECT_STREQ(error.what(), "rank 1 gave up: no memory");
      ++ended;
    } catch (const EnvironmentError&) {
      ++ended;
    }
  });
  EXPECT_EQ(ended, 4);
}

}  // namespace
}  // namespace convlab::nets
