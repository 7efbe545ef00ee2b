// `convlab train` end to end: a small net on a few synthetic images.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nets/weights/arrays.h"
#include "tests/bench/program/run_program.h"

namespace convlab {

using namespace nets;
namespace {

class TrainProgram : public testing::Test {
 protected:
  Words command(const Words& more) const {
    Words words{"train", "lenet", "--data", "synthetic:640", "--deterministic"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Ran run(const Words& words) { return Program(directory_, words, environment()).wait(); }
  std::map<std::string, std::string> environment() const {
    return {{"XDG_CACHE_HOME", directory_.path() / "cache"}};
  }
  std::string file(const std::string& name) const { return directory_ / name; }
  // Fixes layouts and algorithms that would not be chosen otherwise, the same in each run.
  Words planned(const Words& more) {
    const std::string plan = file("plan.json");
    if (!std::filesystem::exists(plan)) {
      const Ran ran = run({"plan", "lenet", "--batch", "64", "--layout", "nchw", "--algos",
                           "im2col", "--deterministic", "--format", "json", "--output", plan});
      EXPECT_EQ(ran.exit_code, 0) << ran.err;
    }
    Words words{"train", "lenet", "--data", "synthetic:640", "--plan", plan};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Everything in a checkpoint except the plans' expected times.
  static std::map<std::string, std::string> trained(const std::string& checkpoint) {
    ArrayFile content = read_arrays(checkpoint);
    content.metadata.erase("plan");
    content.metadata.erase("test_plan");
    for (const auto& [name, array] : content.arrays)
      content.metadata[name] =
          std::string(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
    return std::move(content.metadata);
  }
  TemporaryDirectory directory_;
};

TEST_F(TrainProgram, TrainsTestsLogsAndKeepsACheckpoint) {
  const std::string checkpoint = file("c.safetensors"), log = file("log.csv");
  const Ran ran = run(command({"--epochs", "2", "--checkpoint", checkpoint, "--log", log}));
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(ran.out.starts_with("top-1 ")) << ran.out;
  EXPECT_TRUE(contains(ran.out, " on 128 test images")) << ran.out;
  for (const char* part : {"640 images of 10 classes, 128 to test", "epoch 2/2: loss ",
                           "; test loss ", " images/s, t_io ", checkpoint.c_str()})
    EXPECT_TRUE(contains(ran.err, part)) << part << ran.err;
  EXPECT_EQ(lines(read_file(log)), 3) << read_file(log);
  EXPECT_TRUE(read_file(log).starts_with("epoch,rate,loss,top1,test_loss,test_top1,")) << log;
  EXPECT_EQ(occurrences(read_file(log), ",,,,\n"), 2) << "no exchange" << read_file(log);

  // Only the test remains to be done again, with the same result.
  const Ran again = run({"train", "--resume", checkpoint, "--deterministic"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out, ran.out);
  // One more epoch adds one row.
  const Ran more = run({"train", "lenet", "--resume", checkpoint, "--epochs", "3", "--log", log});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_TRUE(contains(more.err, "epoch 3/3")) << more.err;
  EXPECT_FALSE(contains(more.err, "epoch 2/3")) << more.err;
  EXPECT_EQ(lines(read_file(log)), 4) << read_file(log);

  const auto refused = [&](const Words& words, const std::string& why) {
    const Ran bad = run(words);
    EXPECT_EQ(bad.exit_code, 2) << bad.err;
    EXPECT_EQ(lines(bad.err), 1) << bad.err;
    EXPECT_TRUE(contains(bad.err, why)) << why << "\n" << bad.err;
  };
  refused(command({"--checkpoint", checkpoint}), "is there already: go on with it by --resume");
  refused({"train", "resnet20", "--resume", checkpoint},
          "is a checkpoint with net lenet, not resnet20");
  refused({"train", "--resume", checkpoint, "--optimizer", "adam"},
          "is a checkpoint with optimizer sgd, not adam");
  refused({"train", "--resume", checkpoint, "--seed", "7"}, "with seed 1, not 7");
}

// An image's rows are the steps. Shapes in ten classes: a tenth is right by chance.
TEST_F(TrainProgram, TrainsARecurrentNetOnRows) {
  const std::string checkpoint = file("rnn.safetensors");
  const Words net{"train",         "rnn:32-32-10:gru", "--data",
                  "synthetic:640", "--deterministic",  "--checkpoint",
                  checkpoint,      "--epochs",         "2"};
  const Ran ran = run(net);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, " on 128 test images")) << ran.out;
  const ArrayFile content = read_arrays(checkpoint);
  EXPECT_EQ(content.at("rnn.weight_hh_l0").shape, (std::vector<std::int64_t>{96, 32}));
  const Ran again = run({"train", "--resume", checkpoint, "--deterministic"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out, ran.out);
  const Ran other = run({"train", "rnn:32x20-32-10", "--data", "synthetic:640"});
  EXPECT_EQ(other.exit_code, 2) << other.err;
  EXPECT_EQ(lines(other.err), 1) << other.err;
  EXPECT_TRUE(contains(other.err, "the net's input is 1x20x32; images come as")) << other.err;
}

// What --threads said when training began counts until it says something else.
TEST_F(TrainProgram, ResumesOnTheThreadsThatWereAskedFor) {
  const std::string given = file("given.safetensors"), none = file("none.safetensors");
  const auto threads = [](const std::string& checkpoint) {
    const auto metadata = read_arrays(checkpoint).metadata;
    const auto found = metadata.find("threads");
    return found == metadata.end() ? "" : found->second;
  };
  const Words net{"train", "rnn:32-8-10:gru", "--data", "synthetic:128", "--epochs", "1"};
  ASSERT_EQ(run(net + Words{"--threads", "1", "--checkpoint", given}).exit_code, 0);
  EXPECT_EQ(threads(given), "1");
  const Ran more = run({"train", "--resume", given, "--epochs", "2"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_TRUE(contains(more.err, ", 1 thread\n")) << more.err;
  EXPECT_TRUE(contains(more.err, "layouts and algorithms are those of " + given)) << more.err;
  EXPECT_EQ(threads(given), "1");
  const Ran others = run({"train", "--resume", given, "--epochs", "3", "--threads", "2"});
  ASSERT_EQ(others.exit_code, 0) << others.err;
  EXPECT_TRUE(contains(others.err, "the plan is for threads 1, not 2")) << others.err;
  EXPECT_EQ(threads(given), "2");
  ASSERT_EQ(run(net + Words{"--checkpoint", none}).exit_code, 0);
  EXPECT_EQ(threads(none), "");
}

// Each advice is a command that makes a plan for just this run.
TEST_F(TrainProgram, APlanThatDoesNotFitIsReplacedAsTheMessageSays) {
  const std::string net = "rnn:32-8-10:gru", weights = file("w.safetensors"),
                    plan = file("plan.json");
  const Words train{"train", net, "--data", "synthetic:128", "--epochs", "1", "--threads", "1"};
  ASSERT_EQ(run(train + Words{"--checkpoint", weights}).exit_code, 0);
  const auto make_plan = [&](const Words& words) {
    const Ran ran = run(words + Words{"--output", plan});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
  };
  const auto follow = [&](const Words& words, const std::string& why) {
    const Ran refused = run(words);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_EQ(lines(refused.err), 1) << refused.err;
    EXPECT_TRUE(contains(refused.err, why)) << refused.err;
    const std::size_t begin = refused.err.find("`convlab "), end = refused.err.find('`', begin + 1);
    ASSERT_NE(end, std::string::npos) << refused.err;
    const Words advice = words_of(refused.err.substr(begin + 1, end - begin - 1));
    make_plan(Words(advice.begin() + 1, advice.end()));
    const Ran taken = run(words);
    EXPECT_EQ(taken.exit_code, 0) << taken.err;
  };
  const Words predict{
      "predict",   net, "--weights", weights, std::string(CONVLAB_PREDICT_DATA) + "/a.png",
      "--threads", "1", "--plan",    plan};
  const Words plan_of{"plan", net, "--batch", "4", "--format", "json", "--no-audit"};
  make_plan(plan_of + Words{"--threads", "1"});
  follow(predict, "the plan is for training, not inference: make one with `convlab plan " + net +
                      " --batch 4 --forward-only --threads 1 --format json`");
  make_plan({"plan", "rnn:32-9-10:gru", "--forward-only", "--threads", "1", "--format", "json",
             "--no-audit"});
  follow(predict, "the plan is for net rnn:32-9-10:gru, not " + net + ": make one with");
  make_plan(plan_of + Words{"--forward-only", "--threads", "2"});
  follow(predict, "the plan is for threads 2, not 1: say --threads 2, or make one with");
  make_plan({"plan", net, "--batch", "64", "--forward-only", "--threads", "1", "--format", "json",
             "--no-audit"});
  follow(train + Words{"--plan", plan}, "the plan is for inference, not training: make one with");
}

TEST_F(TrainProgram, ResumedAfterCtrlCEndsAsIfItHadNotBeenStopped) {
  const std::string stopped = file("stopped.safetensors"), whole = file("whole.safetensors");
  ASSERT_EQ(run(planned({"--epochs", "8", "--checkpoint", whole})).exit_code, 0);
  const auto start = [&] {
    std::filesystem::remove(stopped);
    return Program(directory_, planned({"--epochs", "8", "--checkpoint", stopped}), environment());
  };
  const Ran ran = interrupted(start, "epoch 1/8", SIGINT);
  ASSERT_EQ(ran.exit_code, 130) << ran.err;
  EXPECT_TRUE(ran.out.empty()) << ran.out;
  EXPECT_TRUE(contains(ran.err, "to go on: convlab train lenet --resume " + stopped)) << ran.err;
  const Ran resumed = run({"train", "lenet", "--resume", stopped, "--deterministic"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(trained(stopped) == trained(whole));
}

// Ignores the choice that would be made now, and keeps the checkpoint's pixel normalisation.
TEST_F(TrainProgram, ResumesByTheAlgorithmsThatItBeganWith) {
  const std::string whole = file("whole.safetensors"), parts = file("parts.safetensors");
  const auto train = [&](const char* epochs, const std::string& checkpoint) {
    return run(planned({"--schedule", "constant", "--mean", "0.25", "--deviation", "0.5",
                        "--epochs", epochs, "--checkpoint", checkpoint}));
  };
  ASSERT_EQ(train("2", whole).exit_code, 0);
  ASSERT_EQ(train("1", parts).exit_code, 0);
  const Ran resumed = run({"train", "--resume", parts, "--epochs", "2"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(contains(resumed.err, "layouts and algorithms are those of " + parts)) << resumed.err;
  EXPECT_FALSE(contains(resumed.err, "never tuned")) << resumed.err;
  EXPECT_TRUE(trained(parts) == trained(whole));
  const Ran limited = run({"train", "--resume", parts, "--epochs", "2", "--workspace-max", "1T"});
  EXPECT_EQ(limited.exit_code, 0) << limited.err;
  EXPECT_TRUE(contains(limited.err, "layouts and algorithms are not those of")) << limited.err;
}

TEST_F(TrainProgram, WeightsThatExplodeStopIt) {
  const Ran ran = run(command({"--lr", "1e30", "--schedule", "constant"}));
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "of epoch 1: not finite first is layer ")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "a lower --lr may help")) << ran.err;
}

// A file size limit stands for a full disk.
TEST_F(TrainProgram, AFullDiskLeavesTheCheckpointBeforeAndWholeRows) {
  if (CONVLAB_SANITIZED) GTEST_SKIP() << "a sanitizer's own files must grow";
  const std::string checkpoint = file("c.safetensors"), log = file("log.csv");
  const auto train = [&](const std::string& limit, const std::string& flags) {
    const std::string line = "ulimit -f " + limit + "; exec " + CONVLAB_PROGRAM +
                             " train lenet --data synthetic:60 --batch 20 " + flags;
    return Program(directory_, {"-c", line}, environment(), "/bin/bash").wait();
  };
  const auto expect_full = [&](const Ran& ran, const std::string& why) {
    EXPECT_EQ(ran.exit_code, 3) << ran.err;
    EXPECT_TRUE(contains(ran.err, "cannot write '" + why)) << ran.err;
    EXPECT_EQ(ran.out, "");
  };
  ASSERT_EQ(train("unlimited", "--epochs 1").exit_code, 0);  // creates the images
  expect_full(train("100", "--epochs 1 --checkpoint " + checkpoint), checkpoint);
  EXPECT_FALSE(std::filesystem::exists(checkpoint));
  ASSERT_EQ(train("unlimited", "--epochs 1 --checkpoint " + checkpoint).exit_code, 0);
  const std::string before = read_file(checkpoint);
  expect_full(
      train("100", "--epochs 2 --resume " + checkpoint),
      checkpoint + "': File too large; " + checkpoint + " is as the checkpoint before left it");
  EXPECT_TRUE(read_file(checkpoint) == before);

  ASSERT_EQ(train("unlimited", "--epochs 1 --log " + log).exit_code, 0);
  std::string rows = read_file(log);
  rows.resize(600 * 1024 - 4, '\n');  // leaves room for a checkpoint but not for a row
  write_file(log, rows);
  expect_full(train("600", "--epochs 2 --resume " + checkpoint + " --log " + log), log);
  EXPECT_TRUE(read_file(log) == rows);
}

TEST_F(TrainProgram, BadInputIsOneLine) {
  std::filesystem::create_symlink("loop", file("loop"));
  write_file(file("no_log"), "epoch,loss\n1,2\n");
  for (const auto& [words, why] : std::vector<std::pair<Words, std::string>>{
           {{"train"}, "train: no net"},
           {{"train", "lenet"}, "train: no --data"},
           {{"train", "resnet21", "--data", "synthetic"}, "did you mean resnet20"},
           {{"train", "lenet", "--data", file("nowhere")}, "nowhere"},
           {{"train", "lenet:7", "--data", "synthetic:640"}, "has 7 outputs, but there are 10"},
           {command({"--optimizer", "lamb"}), "expected one of sgd, adam, adamw"},
           {command({"--schedule", "linear"}), "--schedule: schedule 'linear'"},
           {command({"--optimizer", "adam", "--momentum", "0.5"}), "adam has no --momentum"},
           {command({"--lr", "0"}), "--lr: '0': expected a number above 0"},
           {command({"--lr", "inf"}), "--lr: 'inf': expected a number above 0"},
           {command({"--momentum", "2"}), "--momentum: '2': expected a number from 0 to below 1"},
           {command({"--weight-decay", "-1"}),
            "--weight-decay: '-1': expected a number from 0 to 1.8e308"},
           {command({"--checkpoint", file("c.pt")}), "ends in .safetensors"},
           {command({"--checkpoint", file("no/c.safetensors")}), "cannot write"},
           {command({"--log", file("no/log.csv")}), "--log: cannot write"},
           {command({"--log", file("loop")}),
            "--log: cannot write '" + file("loop") + "': Too many levels of symbolic links"},
           {command({"--log", directory_.path()}), "': Is a directory"},
           {command({"--weights", file("none.bin")}), "--weights: '"},
           {command({"--weights", file("none.npz")}), "none.npz"},
           {command({"--resume", file("none.safetensors")}), "none.safetensors"},
           {{"train", "mb1ic4ih8oc4oh8kh3ph1", "--data", "synthetic"},
            "problems are timed by `conv"},
           {command({"--batch", "1000"}),
            "--batch 1000 is more than the 640 images to train with: expected --batch 640 or less"},
           {{"train", "lenet", "--data", "synthetic:20"},
            "a batch of 64 is more than the 20 images to train with: expected --batch 20 or less"},
           {command({"--epochs", "3", "--schedule", "cosine,warmup=5"}),
            "--schedule: a warm-up of 5 epochs, but there are 3: expected at most as many"},
           {command({"--schedule", "cosine,warmup=1e400"}), "is not a number from 0 on"},
           {command({"--mean", "0.1,0.2"}), "--mean: 2 numbers, but images have 1 channel"},
           {command({"--log", file("no_log")}),
            "--log: '" + file("no_log") + "' is there and is no such log: expected a new name"},
           {command({"--exchange", "after"}), "--exchange is about several ranks: drop it, or"},
           {command({"--bucket", "4M"}), "--bucket is about several ranks"},
           {command({"--compress", "bf16"}), "--compress is about several ranks"},
           {command({"--sync-batch-norm"}), "--sync-batch-norm is about several ranks"},
           {{"time", "lenet", "--exchange", "overlapped"}, "--exchange is about several ranks"},
           {command({"--epoch", "3"}), "did you mean --epochs"}}) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.exit_code, 2) << why << "\n" << ran.err;
    EXPECT_TRUE(contains(ran.err, why)) << why << "\n" << ran.err;
    EXPECT_EQ(ran.out, "") << why;
    EXPECT_EQ(lines(ran.err), 1) << ran.err;
  }
  EXPECT_EQ(read_file(file("no_log")), "epoch,loss\n1,2\n");
}

TEST_F(TrainProgram, ANetOfClipsTakesNoFolderOfImages) {
  for (const char* const split : {"train", "test"})
    for (const char* const name : {"cat", "dog"}) {
      std::filesystem::create_directories(directory_ / "photos" / split / name);
      for (const char* const image : {"a.png", "b.png"})
        std::filesystem::copy_file(std::filesystem::path(CONVLAB_PREDICT_DATA) / image,
                                   directory_ / "photos" / split / name / image);
    }
  const Ran ran = run({"train", "r3d_18", "--data", file("photos")});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_TRUE(contains(
      ran.err, "--data: '" + file("photos") + "' has images, but r3d_18 takes clips of 16 frames"))
      << ran.err;
}

}  // namespace
}  // namespace convlab
