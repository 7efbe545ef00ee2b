// Training a tiny net: it learns, reports, stops, resumes bit for bit from a checkpoint, and says
// where it diverged.
#include "nets/train/trainer.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "nets/train/optimizer.h"
#include "nets/weights/file_io.h"
#include "nets/weights/weights.h"
#include "tests/nets/late_device.h"
#include "tests/nets/train/training_lab.h"

namespace convlab::nets {
namespace {

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() { std::filesystem::create_directory(directory_); }
  ~TrainerTest() override { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name) const { return directory_ / name; }

 private:
  std::filesystem::path directory_ =
      std::filesystem::path(testing::TempDir()) / ("convlab_trainer_" + std::to_string(getpid()));
};

TEST_F(TrainerTest, LearnsAndTellsHow) {
  TrainingLab lab;
  std::vector<StepReport> steps;
  std::vector<EpochReport> epochs;
  Trainer trainer(lab.net, lab.loader,
                  {.epochs = 12,
                   .rule = SgdDesc{.rate = 0.1, .momentum = 0.9},
                   .schedule = parse_schedule("cosine,warmup=1"),
                   .on_step =
                       [&](const StepReport& r) {
                         steps.push_back(r);
                         return true;
                       },
                   .on_epoch =
                       [&](const EpochReport& r) {
                         epochs.push_back(r);
                         return true;
                       }});
  trainer.test_with(lab.test_net, lab.test_loader);
  EXPECT_TRUE(trainer.run());

  ASSERT_EQ(steps.size(), 12u * 5u);
  EXPECT_EQ(steps[7].epoch, 1);
  EXPECT_EQ(steps[7].step, 2);
  EXPECT_EQ(steps[7].scores.images, 3 * 8);
  EXPECT_DOUBLE_EQ(steps[0].rate, 0.02);
  EXPECT_DOUBLE_EQ(steps[5].rate, 0.1);
  EXPECT_LT(steps.back().rate, 0.001);
  EXPECT_GT(steps.front().loss, 1);

  ASSERT_EQ(epochs.size(), 12u);
  EXPECT_EQ(epochs.back().train.images, 40);
  EXPECT_LT(epochs.back().train.mean_loss(), 0.2 * epochs.front().train.mean_loss());
  EXPECT_TRUE(epochs.front().best);
  EXPECT_EQ(epochs.back().test->images, 20);  // 20 in batches of 8: the last is padded
  EXPECT_GE(epochs.back().test->top1_rate(), 0.95);

  // The test net has the trained one's parameters, and inference applies no dropout.
  const std::optional<Scores> again = evaluate(lab.test_net, lab.test_loader);
  EXPECT_EQ(*again, *epochs.back().test);
  EXPECT_FALSE(evaluate(lab.test_net, lab.test_loader, [] { return false; }).has_value());
}

// Batches may be overwritten as soon as the net has taken them.
TEST_F(TrainerTest, IsTheLoopThatOneWouldWrite) {
  auto late = std::make_unique<LateDevice>(DeviceKind::cpu);
  const LateDevice& device = *late;
  TrainingLab lab, by_hand(std::move(late), cpu_registry(), "im2col");
  const SgdDesc rule{.rate = 0.05, .momentum = 0.9};
  for (int epoch = 0; epoch < 2; ++epoch) {
    by_hand.loader.start(epoch);
    while (const Batch* batch = by_hand.loader.next()) {
      by_hand.net.set_input(batch->input);
      by_hand.net.set_labels(batch->labels);
      by_hand.net.forward();
      by_hand.net.backward();
      by_hand.net.update(rule);
    }
  }
  Trainer(lab.net, lab.loader, {.epochs = 2, .rule = rule}).run();
  EXPECT_EQ(lab.everything(), by_hand.everything());
  EXPECT_FALSE(device.changed_early());
}

// ---- Checkpoints ----

std::string everything_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Trains for two epochs of five steps, stopping after a given number and resuming in a new net.
struct Course {
  std::vector<std::vector<std::byte>> everything;
  std::vector<double> losses;
  std::vector<Scores> epochs;
  std::vector<bool> best;

  void train(TrainingLab& lab, const UpdateRule& rule, const std::string& checkpoint,
             int stop_after, bool resume) {
    Trainer trainer(lab.net, lab.loader,
                    {.epochs = 2,
                     .rule = rule,
                     .schedule = parse_schedule("cosine,warmup=0.6"),
                     .checkpoint = checkpoint,
                     .seed = 3,
                     .on_step =
                         [&](const StepReport& r) {
                           losses.push_back(r.loss);
                           return --stop_after != 0;
                         },
                     .on_epoch =
                         [&](const EpochReport& r) {
                           epochs.push_back(r.train);
                           epochs.push_back(*r.test);
                           best.push_back(r.best);
                           return true;
                         }});
    trainer.test_with(lab.test_net, lab.test_loader);
    if (resume) trainer.resume(read_checkpoint(checkpoint));
    const bool finished = trainer.run();
    EXPECT_EQ(finished, stop_after > 0);
    everything = lab.everything();
  }
};

TEST_F(TrainerTest, AResumedRunIsAnUninterruptedOneToTheBit) {
  const std::string file = path("c.safetensors");
  for (const DType dtype : {DType::f32, DType::f64})
    for (const UpdateRule& rule :
         {UpdateRule(
              SgdDesc{.rate = 0.05, .momentum = 0.9, .weight_decay = 1e-3, .nesterov = true}),
          UpdateRule(SgdDesc{.rate = 0.05}), make_rule("adam"), make_rule("adamw")}) {
      Course whole;
      TrainingLab uninterrupted(3, dtype);
      whole.train(uninterrupted, rule, "", 1000, false);
      ASSERT_EQ(whole.losses.size(), 10u);
      // In the middle of an epoch, after its last step, after the first step of the next.
      for (const int stop : {2, 5, 6}) {
        SCOPED_TRACE(to_string(rule) + " after " + std::to_string(stop));
        std::filesystem::remove(file);
        Course parts;
        TrainingLab first(3, dtype), second(3, dtype);
        parts.train(first, rule, file, stop, false);
        second.net.initialise(99);  // all of it must be overwritten
        parts.train(second, rule, file, 1000, true);
        EXPECT_EQ(parts.everything, whole.everything);
        EXPECT_EQ(parts.losses, whole.losses);
        EXPECT_EQ(parts.epochs, whole.epochs);
        EXPECT_EQ(parts.best, whole.best);
      }
    }
}

TEST_F(TrainerTest, ACheckpointIsAFileOfWeights) {
  const std::string file = path("c.safetensors");
  TrainingLab lab, other(7);
  Trainer(lab.net, lab.loader, {.epochs = 1, .checkpoint = file, .notes = {{"colour", "red"}}})
      .run();
  const TrainingState state = read_checkpoint(file).state;
  EXPECT_EQ(state.notes.at("colour"), "red");
  EXPECT_EQ(state.plan, lab.net.plan());
  EXPECT_FALSE(state.test_plan.has_value());
  load_weights(other.net, read_arrays(file), file);
  for (std::size_t i = 0; i < lab.net.parameters().size(); ++i)
    EXPECT_EQ(other.bytes(other.net.parameters()[i]), lab.bytes(lab.net.parameters()[i]));
}

template <class F>
std::string error_of(F run) {
  try {
    run();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST_F(TrainerTest, RefusesAnothersCheckpointInOneLine) {
  const std::string file = path("c.safetensors");
  TrainingLab lab;
  const TrainOptions options{.epochs = 1, .checkpoint = file, .data = "bands"};
  Trainer(lab.net, lab.loader, options).run();
  const auto resume = [&](TrainingLab& by, auto change) {
    TrainOptions changed = options;
    change(changed);
    const std::string error =
        error_of([&] { Trainer(by.net, by.loader, changed).resume(read_checkpoint(file)); });
    return error.starts_with(file) ? error.substr(file.size()) : error;
  };
  const auto as_it_is = [](TrainOptions&) {};
  EXPECT_EQ(resume(lab, as_it_is), "accepted");
  EXPECT_EQ(resume(lab, [](TrainOptions& o) { o.epochs = 9; }), "accepted");
  EXPECT_EQ(resume(lab, [](TrainOptions& o) { o.rule = with_rate(o.rule, 0.5); }), "accepted");
  EXPECT_EQ(resume(lab, [](TrainOptions& o) { o.seed = 2; }),
            " is a checkpoint with seed 1, not 2");
  EXPECT_EQ(resume(lab, [](TrainOptions& o) { o.data = "cats"; }),
            " is a checkpoint with data bands, not cats");
  EXPECT_EQ(resume(lab, [](TrainOptions& o) { o.rule = make_rule("adam"); }),
            " is a checkpoint with optimizer sgd, not adam");
  TrainingLab larger(1, DType::f32, 16), more(1, DType::f32, 8, 80), wider(1, DType::f64);
  EXPECT_EQ(resume(larger, as_it_is), " is a checkpoint with batch 8, not 16");
  EXPECT_EQ(resume(more, as_it_is), " is a checkpoint with batches an epoch: 5, not 10");
  EXPECT_EQ(resume(wider, as_it_is), " is a checkpoint with type f32, not f64");

  const auto change_file = [&](auto change) {
    ArrayFile content = read_arrays(file);
    change(content);
    const std::string changed = path("changed.safetensors");
    write_arrays(changed, content);
    const std::string error =
        error_of([&] { Trainer(lab.net, lab.loader, options).resume(read_checkpoint(changed)); });
    return error.starts_with(changed) ? error.substr(changed.size()) : error;
  };
  EXPECT_EQ(change_file([](ArrayFile& f) { f.metadata["net"] = "resnet18"; }),
            " is a checkpoint with net resnet18, not bands");
  EXPECT_EQ(change_file([](ArrayFile& f) { f.arrays.erase("fc.bias"); }),
            " is a checkpoint of another net: fc.bias is missing");
  EXPECT_EQ(change_file([](ArrayFile& f) { f.arrays["fc.bias"] = f.arrays["conv.weight"]; }),
            " is a checkpoint of another net: fc.bias has another shape");
  EXPECT_EQ(change_file([](ArrayFile& f) { f.arrays["more"] = f.arrays["fc.bias"]; }),
            " is a checkpoint of another net: it has 13 arrays, this one 12");
  EXPECT_EQ(change_file([](ArrayFile& f) { f.metadata.clear(); }),
            " is no checkpoint: expected a file that `convlab train --checkpoint` has written");
  EXPECT_EQ(change_file([](ArrayFile& f) { f.metadata["convlab_checkpoint"] = "7"; }),
            " is a checkpoint of format 7, this program reads 3");
  EXPECT_EQ(change_file([](ArrayFile& f) { f.metadata["epoch"] = "-1"; }),
            ": epoch: '-1' is not a number from 0 on");
  EXPECT_EQ(change_file([](ArrayFile& f) { f.metadata.erase("updates"); }), ": updates is missing");
  EXPECT_EQ(change_file([](ArrayFile& f) {
              f.metadata["plan"] = "{}";
            }).find(": plan: read as JSON: is no plan"),
            0u);
  EXPECT_NE(error_of([&] { read_checkpoint(path("none.safetensors")); }), "accepted");
  EXPECT_NE(error_of([&] { read_checkpoint(path("c.npz")); }).find("ends in .safetensors"),
            std::string::npos);
}

// A checkpoint changed by a disk or a copy is refused.
TEST_F(TrainerTest, ADamagedCheckpointIsRefused) {
  const std::string file = path("c.safetensors");
  TrainingLab lab;
  const TrainOptions options{.epochs = 1, .rule = make_rule("sgd"), .checkpoint = file};
  Trainer(lab.net, lab.loader, options).run();
  std::vector<std::byte> bytes = read_file(file);
  const auto with_change = [&](std::size_t at, std::byte to) {
    const std::byte before = std::exchange(bytes[at], to);
    replace_file(file, std::array{ConstSpan(bytes)});
    bytes[at] = before;
    return error_of([&] { read_checkpoint(file); });
  };
  EXPECT_EQ(with_change(0, bytes[0]), "accepted");
  const std::string damaged = file + ": it is damaged: its checksum is not";
  EXPECT_TRUE(with_change(bytes.size() - 1, bytes.back() ^ std::byte(1)).starts_with(damaged));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t epoch = text.find(R"("epoch":"1")");
  ASSERT_NE(epoch, text.npos);
  EXPECT_TRUE(with_change(epoch + 9, std::byte('0')).starts_with(damaged));
  EXPECT_EQ(with_change(text.find("convlab_crc32"), std::byte('x')),
            file + " is damaged: its checksum is missing");
}

// A process that only writes the checkpoint, again and again, is killed at any moment.
TEST_F(TrainerTest, AKilledWriterLeavesTheLastGoodCheckpoint) {
  const std::string file = path("c.safetensors");
  TrainingLab lab;
  Trainer trainer(
      lab.net, lab.loader,
      {.epochs = 1, .checkpoint = file, .notes = {{"bulk", std::string(1 << 20, 'x')}}});
  trainer.run();
  for (int round = 0; round < 12; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0)
      for (TrainingState state = trainer.state();; ++state.step)
        write_checkpoint(file, lab.net, state);
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 1700 * round));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    Trainer(lab.net, lab.loader, {.epochs = 1}).resume(read_checkpoint(file));
  }
}

// A file size limit fails like a full disk.
TEST_F(TrainerTest, AFullDiskIsAnErrorThatKeepsTheLastGoodCheckpoint) {
  const std::string file = path("c.safetensors");
  TrainingLab lab;
  Trainer(lab.net, lab.loader, {.epochs = 1, .checkpoint = file}).run();
  const auto before = everything_of(file);

  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{4096, limit.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  Trainer trainer(lab.net, lab.loader, {.epochs = 3, .checkpoint = file});
  trainer.resume(read_checkpoint(file));
  setrlimit(RLIMIT_FSIZE, &small);
  std::string error = "none";
  try {
    trainer.run();
  } catch (const EnvironmentError& e) {
    error = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(error, "cannot write '" + file + "': File too large");
  EXPECT_EQ(trainer.state().epoch, 2);
  EXPECT_EQ(everything_of(file), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("")), {}), 1);
}

// ---- Stopping for cause ----

TEST_F(TrainerTest, DivergenceNamesStepAndLayerAndKeepsTheCheckpoint) {
  const std::string file = path("c.safetensors");
  TrainingLab lab;
  Trainer(lab.net, lab.loader, {.epochs = 1, .checkpoint = file}).run();
  const std::string before = everything_of(file);

  const auto diverge = [&](const TrainOptions& options) {
    Trainer trainer(lab.net, lab.loader, options);
    trainer.resume(read_checkpoint(file));
    try {
      trainer.run();
    } catch (const Diverged& error) {
      return std::string(error.what());
    }
    return std::string("did not");
  };
  // By the rate alone: after the first update the weights are so large that the next forward
  // overflows.
  const std::string by_rate =
      diverge({.epochs = 3, .rule = SgdDesc{.rate = 1e38, .momentum = 0.9}, .checkpoint = file});
  EXPECT_NE(by_rate.find(" of epoch 2: not finite first is layer "), std::string::npos) << by_rate;

  // By one weight, which the callback corrupts after the second step.
  int steps = 0;
  const std::string by_weight =
      diverge({.epochs = 3,
               .rule = SgdDesc{.rate = 0.1, .momentum = 0.9},
               .checkpoint = file,
               .on_step = [&](const StepReport&) {
                 if (++steps == 2)
                   for (const Parameter& p : lab.net.parameters())
                     if (p.name == "bn.weight") {
                       const std::vector<float> broken(std::size_t(p.count),
                                                       std::numeric_limits<float>::infinity());
                       lab.net.write(p.value, std::as_bytes(std::span(broken)));
                     }
                 return true;
               }});
  EXPECT_NE(by_weight.find(" in step 3 of epoch 2: not finite first is layer bn, whose bn.weight "
                           "the update before has made so"),
            std::string::npos)
      << by_weight;

  EXPECT_EQ(everything_of(file), before);
}

TEST_F(TrainerTest, RefusesOptionsThatMakeNoSense) {
  TrainingLab lab;
  EXPECT_THROW(Trainer(lab.net, lab.loader, {.epochs = 0}), InputError);
  EXPECT_THROW(Trainer(lab.net, lab.loader, {.rule = SgdDesc{.rate = 0}}), InputError);
  EXPECT_THROW(Trainer(lab.net, lab.loader, {.rule = SgdDesc{.rate = NAN}}), InputError);
  TrainOptions nowhere;
  nowhere.checkpoint = path("no/c.safetensors");
  Trainer to_nowhere(lab.net, lab.loader, nowhere);
  EXPECT_THROW(to_nowhere.run(), InputError);
}

// Compares the memory allocated 900 steps later. Sanitizers have their own allocators and report
// leaks themselves.
TEST_F(TrainerTest, AThousandStepsTakeNoMoreMemoryThanAHundred) {
  TrainingLab lab;
  std::size_t at_100 = 0, at_1000 = 0;
  int steps = 0;
  Trainer trainer(lab.net, lab.loader, {.epochs = 200, .on_step = [&](const StepReport&) {
                                          if (++steps == 100) at_100 = mallinfo2().uordblks;
                                          if (steps == 1000) at_1000 = mallinfo2().uordblks;
                                          return true;
                                        }});
  trainer.test_with(lab.test_net, lab.test_loader);
  trainer.run();
  ASSERT_EQ(steps, 1000);
  EXPECT_LE(at_1000, at_100 + 16384);
}

}  // namespace
}  // namespace convlab::nets
