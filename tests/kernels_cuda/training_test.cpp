// Training on CUDA, with our own kernels: a loader, a Trainer and its checkpoints. Runs on the
// CPU's executor or on a card.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "nets/train/optimizer.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/nets/train/training_lab.h"

namespace convlab {

using namespace nets;
namespace {

class CudaTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
  }
  void TearDown() override { std::filesystem::remove(checkpoint_); }

  static TrainingLab on_card() {
    return TrainingLab(make_cuda_device(), cuda_registry(), "implicit_gemm");
  }

  const std::string checkpoint_ =
      testing::TempDir() + fmt::format("convlab_cuda_training_{}.safetensors", getpid());
};

struct Course {
  std::vector<double> losses;
  std::vector<Scores> tests;
};

// Two epochs of five steps, or fewer if stopped after a given number.
Course train(TrainingLab& lab, const UpdateRule& rule, const std::string& checkpoint = "",
             bool resume = false, int stop_after = 1000) {
  Course course;
  Trainer trainer(lab.net, lab.loader,
                  {.epochs = 2,
                   .rule = rule,
                   .checkpoint = checkpoint,
                   .on_step =
                       [&](const StepReport& r) {
                         course.losses.push_back(r.loss);
                         return --stop_after != 0;
                       },
                   .on_epoch =
                       [&](const EpochReport& r) {
                         course.tests.push_back(*r.test);
                         return true;
                       }});
  trainer.test_with(lab.test_net, lab.test_loader);
  if (resume) trainer.resume(read_checkpoint(checkpoint));
  trainer.run();
  return course;
}

// Ten updates accumulate f32's rounding errors.
TEST_F(CudaTraining, GoesAsOnTheCpu) {
  for (const UpdateRule& rule :
       {UpdateRule(SgdDesc{.rate = 0.05, .momentum = 0.9, .weight_decay = 1e-3}),
        make_rule("adam")}) {
    TrainingLab cpu, card = on_card();
    const Course expected = train(cpu, rule), got = train(card, rule);
    ASSERT_EQ(got.losses.size(), 10u);
    for (std::size_t i = 0; i < got.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-4 * expected.losses[i]) << "step " << i;
    ASSERT_EQ(got.tests.size(), 2u);
    for (std::size_t i = 0; i < got.tests.size(); ++i) {
      EXPECT_EQ(got.tests[i].images, 20);
      EXPECT_NEAR(got.tests[i].loss, expected.tests[i].loss, 1e-4 * expected.tests[i].loss);
    }
  }
}

TEST_F(CudaTraining, ResumesToTheBit) {
  const SgdDesc rule{.rate = 0.05, .momentum = 0.9};
  TrainingLab whole = on_card(), first = on_card(), second = on_card();
  second.net.initialise(99);  // all of it must be overwritten
  const Course expected = train(whole, rule);
  train(first, rule, checkpoint_, false, 3);
  const Course rest = train(second, rule, checkpoint_, true);
  EXPECT_EQ(rest.losses, std::vector(expected.losses.begin() + 3, expected.losses.end()));
  EXPECT_EQ(rest.tests, expected.tests);
  EXPECT_EQ(second.everything(), whole.everything());
}

}  // namespace
}  // namespace convlab
