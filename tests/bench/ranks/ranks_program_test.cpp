// The program under mpirun: two ranks on this machine, over shared memory.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <tuple>

#include "nets/weights/arrays.h"
#include "tests/bench/program/run_program.h"

namespace convlab {

using namespace nets;
namespace {

// The process of this rank among those that a run started, once it is there.
pid_t pid_of_rank(int rank, const std::filesystem::path& home) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string environment = read_file(entry.path() / "environ");
    if (contains(environment, "OMPI_COMM_WORLD_RANK=" + std::to_string(rank)) &&
        contains(environment, "HOME=" + home.string() + '\0'))
      return std::stoi(entry.path().filename());
  }
  return -1;
}

// Without an empty last part.
std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) parts.push_back(part);
  return parts;
}

class RanksProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(CONVLAB_MPIRUN).empty())
      GTEST_SKIP() << "no mpirun: apt-get install libopenmpi-dev openmpi-bin, then configure again";
  }

  static Words mpirun(int ranks, const Words& arguments) {
    return Words{"-n", std::to_string(ranks), CONVLAB_PROGRAM} + arguments;
  }
  Program start(Words words) {
    words = Words{"--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"} + words;
    return Program(directory_, words, environment(), CONVLAB_MPIRUN);
  }
  Ran run(const Words& words) { return start(words).wait(); }
  Ran alone(const Words& words) { return Program(directory_, words, environment()).wait(); }
  std::map<std::string, std::string> environment() const {
    return {{"XDG_CACHE_HOME", directory_.path() / "cache"},
            {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
            {"OMP_WAIT_POLICY", "passive"}};
  }
  std::string file(const std::string& name) const { return directory_ / name; }
  Words train(const Words& more) const {
    return Words{"train", "lenet", "--data", "synthetic:640", "--threads", "1"} + more;
  }
  // The same algorithms, whatever predictions say: batches of 64 in all.
  Words train_planned(int ranks, const Words& more) {
    const std::string plan = file(std::to_string(ranks) + ".json");
    if (!std::filesystem::exists(plan)) {
      const Ran ran = alone({"plan", "lenet", "--batch", std::to_string(64 / ranks), "--layout",
                             "nchw", "--algos", "im2col", "--deterministic", "--threads", "1",
                             "--format", "json", "--output", plan});
      EXPECT_EQ(ran.exit_code, 0) << ran.err;
    }
    return train({"--plan", plan}) + more;
  }

  // Exit code 2 and one line, of one rank.
  void expect_refused(const Words& words, const std::string& says) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    EXPECT_EQ(ran.out, "");
    // On a busy machine a rank may say that it waits for another.
    const std::ptrdiff_t hints =
        occurrences(ran.err, "are untuned or UNSURE here") + occurrences(ran.err, " has waited ");
    EXPECT_EQ(occurrences(ran.err, "convlab: ") - hints, 1) << ran.err;
    EXPECT_TRUE(contains(ran.err, says)) << says << "\n" << ran.err;
  }

  TemporaryDirectory directory_;
};

double relative_error(const ArrayFile& a, const ArrayFile& b) {
  double difference = 0, norm = 0;
  for (const auto& [name, array] : a.arrays) {
    const std::vector<double> x = values_of(array), y = values_of(b.arrays.at(name));
    for (std::size_t i = 0; i < x.size(); ++i) {
      difference += std::pow(x[i] - y[i], 2);
      norm += std::pow(y[i], 2);
    }
  }
  return std::sqrt(difference / norm);
}

TEST_F(RanksProgram, TrainsWhatOneProcessTrains) {
  const auto trained = [&](const std::string& name) { return read_arrays(file(name)); };
  const auto with = [&](const std::string& name, const Words& more, int ranks = 2) {
    return train_planned(ranks, {"--epochs", "1", "--checkpoint", file(name)}) + more;
  };
  const Ran one = alone(with("one.safetensors", {}, 1));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const Ran two = run(mpirun(2, with("two.safetensors", {"--log", file("log.csv")})));
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_TRUE(two.out.starts_with("top-1 ")) << two.out;
  EXPECT_EQ(lines(two.out), 1) << two.out;
  EXPECT_EQ(occurrences(two.err, "epoch 1/1: "), 1) << two.err;
  EXPECT_TRUE(contains(two.err, "2 ranks with 1 thread\nbatch 64,")) << two.err;
  EXPECT_TRUE(contains(two.err, "waited for rank ")) << two.err;
  const std::vector<std::string> log = split(read_file(file("log.csv")), '\n');
  ASSERT_EQ(log.size(), 2u);
  EXPECT_TRUE(log[0].ends_with(",s,t_comm_s,exposed_s,waited_s,waited_for")) << log[0];
  const std::vector<std::string> cells = split(log[1], ',');
  ASSERT_EQ(cells.size(), 14u) << log[1];
  EXPECT_GT(std::stod(cells[10]), 0) << log[1];
  EXPECT_GE(std::stod(cells[11]), 0) << log[1];
  EXPECT_LE(std::stod(cells[12]), std::stod(cells[9])) << log[1];
  EXPECT_TRUE(cells[13] == "0" || cells[13] == "1") << log[1];
  EXPECT_LT(relative_error(trained("two.safetensors"), trained("one.safetensors")), 1e-4);

  // The same bits again; and in bf16 other ones, but near.
  ASSERT_EQ(run(mpirun(2, with("again.safetensors", {}))).exit_code, 0);
  EXPECT_EQ(relative_error(trained("again.safetensors"), trained("two.safetensors")), 0);
  ASSERT_EQ(run(mpirun(2, with("bf16.safetensors",
                               {"--compress", "bf16", "--exchange", "after", "--bucket", "100k"})))
                .exit_code,
            0);
  const double compressed = relative_error(trained("bf16.safetensors"), trained("two.safetensors"));
  EXPECT_GT(compressed, 0);
  EXPECT_LT(compressed, 0.1);

  // Goes on with another number of ranks.
  const Ran four = run(mpirun(4, train_planned(4, {"--resume", file("two.safetensors"), "--epochs",
                                                   "2", "--exchange", "server"})));
  EXPECT_EQ(four.exit_code, 0) << four.err;
  EXPECT_TRUE(contains(four.err, "epoch 2/2: ")) << four.err;
  EXPECT_FALSE(contains(four.err, "epoch 1/2: ")) << four.err;
}

// Around a ring of three and more, where buckets end decides the order of additions: measured ones
// would not be the same in each run.
TEST_F(RanksProgram, DeterministicPlansHaveFixedBuckets) {
  const auto trained = [&](const Words& more) {
    const std::string checkpoint = file("bucket.safetensors");
    std::filesystem::remove(checkpoint);
    const Ran ran =
        run(mpirun(4, train_planned(4, {"--epochs", "1", "--checkpoint", checkpoint}) + more));
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return read_arrays(checkpoint);
  };
  const ArrayFile fixed = trained({});
  EXPECT_EQ(relative_error(trained({"--bucket", "4MiB"}), fixed), 0);
  EXPECT_GT(relative_error(trained({"--bucket", "0"}), fixed), 0);
}

// In double, where no ReLU switches by rounding.
TEST_F(RanksProgram, SynchronisesBatchNorm) {
  const auto trained = [&](int ranks, const Words& more) {
    const std::string plan = file("norm" + std::to_string(ranks) + ".json");
    const Ran planned =
        alone({"plan", "resnet20", "--batch", std::to_string(8 / ranks), "--dtype", "f64",
               "--algos", "im2col", "--threads", "1", "--format", "json", "--output", plan});
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    const std::string checkpoint = file("norm.safetensors");
    std::filesystem::remove(checkpoint);
    const Words words =
        Words{"train", "resnet20",  "--data", "synthetic:24", "--plan",  plan, "--epochs",
              "1",     "--threads", "1",      "--checkpoint", checkpoint} +
        more;
    const Ran ran = ranks == 1 ? alone(words) : run(mpirun(ranks, words));
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return read_arrays(checkpoint);
  };
  const ArrayFile one = trained(1, {});
  EXPECT_LT(relative_error(trained(2, {"--sync-batch-norm"}), one), 1e-9);
  EXPECT_GT(relative_error(trained(2, {}), one), 1e-4);
}

TEST_F(RanksProgram, RefusesByOneLine) {
  expect_refused(mpirun(2, train({"--batch", "63"})),
                 "--batch 63 does not divide among 2 ranks: expected 62 or 64");
  expect_refused(mpirun(3, train({"--batch", "2"})), "among 3 ranks: expected 3");
  expect_refused(mpirun(2, train({"--batch", "1000"})),
                 "--batch 1000 is more than the 640 images to train with");
  expect_refused(mpirun(2, train({"--exchange", "gossip"})),
                 "unknown exchange 'gossip': expected one of overlapped, after, server");
  expect_refused(mpirun(2, train({"--dtype", "f64", "--compress", "bf16"})), "expected f32");
  expect_refused(mpirun(2, train({"--batch", "9223372036854775807"})),
                 "expected 9223372036854775806 or 9223372036854775808");
  expect_refused(mpirun(2, {"list"}), "list runs in one process");
  expect_refused(
      mpirun(2, {"tune", "lenet"}),
      "tune runs in one process: drop mpirun, and give each machine its part by --shard");
  expect_refused(mpirun(2, {"scaling", "lenet", "--topology", "tree"}),
                 "--topology tree: ranks under mpirun sum around a ring");
  expect_refused(mpirun(2, {"scaling", "lenet", "--data", "synthetic"}), "--data: under mpirun");
  expect_refused(mpirun(2, {"scaling", "--times", file("t.json")}), "--times measures nothing");
}

TEST_F(RanksProgram, OneRankHelps) {
  const Ran ran = run(mpirun(2, {"train", "--help"}));
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(occurrences(ran.out, "Usage: convlab train"), 1) << ran.out;
}

// Ranks with different command lines: `mpirun A : B`.
TEST_F(RanksProgram, RefusesRanksThatDiffer) {
  const auto beside = [&](const Words& first, const Words& second) {
    return mpirun(1, train(first)) + Words{":"} + mpirun(1, train(second));
  };
  expect_refused(mpirun(1, train({})) + Words{":", "-n", "1", CONVLAB_PROGRAM, "train", "lenet",
                                              "--data", "synthetic:320", "--threads", "1"},
                 "--data to train with: rank 1 has 320 images");
  expect_refused(beside({"--seed", "1"}, {"--seed", "2"}),
                 "seed: rank 1 has 2, rank 0 has 1: expected the same on all");
  expect_refused(beside({}, {"--resume", file("nowhere.safetensors")}), "rank 1: --resume");
  expect_refused(mpirun(1, train({})) + Words{":", "-n", "1", CONVLAB_PROGRAM, "train", "lenet",
                                              "--data", "synthetic:640", "--threads", "2"},
                 "--threads: rank 1 has 2, rank 0 has 1");
  expect_refused(beside({"--mean", "0.1"}, {}), "--mean and --deviation: rank 1 has ");
  expect_refused(beside({}, {}) + Words{"--no-such-flag"}, "rank 1: ");
  expect_refused(
      mpirun(1, {"time", "lenet", "--batch", "2", "--iterations", "1"}) + Words{":"} +
          mpirun(1, {"time", "lenet", "--batch", "2", "--iterations", "1", "--bucket", "7"}),
      "bucket: rank 1 has 7 bytes, rank 0 has 0 bytes");
  expect_refused(mpirun(1, {"scaling", "lenet"}) + Words{":"} +
                     mpirun(1, {"scaling", "lenet", "--exchange", "after"}),
                 "--exchange: rank 1 has after, rank 0 has overlapped after server");
  expect_refused(mpirun(1, {"scaling", "lenet", "--bucket", "0"}) + Words{":"} +
                     mpirun(1, {"scaling", "lenet", "--bucket", "4M"}),
                 "--bucket: rank 1 has 4194304 bytes, rank 0 has 0 bytes");
  expect_refused(mpirun(1, {"scaling", "lenet"}) + Words{":"} +
                     mpirun(1, {"scaling", "lenet", "--latency", "1us", "--bandwidth", "1Gbit"}),
                 "--latency and --bandwidth: rank 1 has both, rank 0 has not both");
  expect_refused(mpirun(1, train({})) + Words{":"} + mpirun(1, {"time", "lenet"}),
                 "the verb: rank 1 has time, rank 0 has train");
}

// Each process takes itself for one of two, and finds no other: as under srun, or another MPI's
// mpirun.
TEST_F(RanksProgram, RefusesThePlaceThatAnotherMpiGave) {
  const auto placed = [&](const std::string& rank, const std::string& size) {
    std::map<std::string, std::string> variables = environment();
    variables["PMI_RANK"] = rank;
    variables["PMI_SIZE"] = size;
    return Program(directory_, train({"--epochs", "1"}), variables).wait();
  };
  for (const char* rank : {"0", "1"}) {
    const Ran ran = placed(rank, "2");
    EXPECT_EQ(ran.exit_code, 3) << ran.err;
    EXPECT_TRUE(contains(ran.err, std::string("started as rank ") + rank + " of 2, but Open MPI"))
        << ran.err;
  }
  for (const char* nonsense : {"0", "-1", "x"}) EXPECT_EQ(placed("0", nonsense).exit_code, 0);
}

TEST_F(RanksProgram, AKilledRankEndsTheOthersAndTheCheckpointIsWhole) {
  const std::string checkpoint = file("c.safetensors");
  Program program = start(mpirun(2, train({"--epochs", "100000", "--checkpoint", checkpoint})));
  program.wait_until_said("epoch 2/");
  const pid_t rank1 = pid_of_rank(1, directory_.path());
  ASSERT_GT(rank1, 0);
  kill(rank1, SIGKILL);
  const Ran ran = program.wait();
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_TRUE(contains(ran.err, "process rank 1 with PID")) << ran.err;
  EXPECT_EQ(pid_of_rank(0, directory_.path()), -1);
  const Ran resumed =
      run(mpirun(2, train({"--resume", checkpoint, "--epochs", "1", "--checkpoint", checkpoint})));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(contains(resumed.err, "1 epoch was done before")) << resumed.err;
}

// The one that speaks is stopped. The one that waits for it says so, and not the one that waits for
// that one.
TEST_F(RanksProgram, AStoppedRankIsNamed) {
  Program program = start(mpirun(3, train({"--epochs", "100000", "--batch", "63"})));
  program.wait_until_said("epoch 2/");
  const pid_t rank0 = pid_of_rank(0, directory_.path());
  ASSERT_GT(rank0, 0);
  kill(rank0, SIGSTOP);
  program.wait_until_said(" s for rank 0, which does not answer\n");
  const std::string before = program.err();
  kill(rank0, SIGCONT);
  for (int i = 0; i < 6000 && occurrences(program.err(), "epoch ") == occurrences(before, "epoch ");
       ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GT(occurrences(program.err(), "epoch "), occurrences(before, "epoch "));
  program.signal_group(SIGINT);
  const Ran ran = program.wait();
  EXPECT_TRUE(contains(ran.err, "convlab: rank 1 has waited ")) << ran.err;
}

TEST_F(RanksProgram, TimesTheExchange) {
  const std::string trace = file("trace.json"), result = file("time.json");
  const Ran ran = run(mpirun(2, {"time", "lenet", "--batch", "8", "--iterations", "3", "--bucket",
                                 "64k", "--trace", trace, "--format", "json", "--output", result}));
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto json = nlohmann::json::parse(read_file(result));
  EXPECT_EQ(json["exchange"]["ranks"], 2);
  EXPECT_EQ(json["exchange"]["bucket_bytes"], 65536);
  EXPECT_GT(json["exchange"]["t_comm"], 0);
  EXPECT_GE(json["exchange"]["hidden"], 0);
  int buckets = 0;
  const auto events = nlohmann::json::parse(read_file(trace));
  for (const auto& event : events["traceEvents"])
    buckets += event.value("cat", std::string()) == "exchange";
  EXPECT_GT(buckets, 3);

  const Ran table = run(mpirun(2, {"time", "lenet", "--batch", "8", "--iterations", "3"}));
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(occurrences(table.out, "t_comm "), 1) << table.out;
}

#ifdef CONVLAB_PROGRAM_ON_CPU

// By kernels executed on the CPU. Each rank asks the test's nvidia-smi for the clocks of its card.
TEST_F(RanksProgram, EachRankOfAHostHasACardOfItsOwn) {
  const std::filesystem::path tool = directory_ / "nvidia-smi";
  write_file(tool, fmt::format("#!/bin/sh\necho \"card $2\" >> '{}'\n", file("asked")));
  std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  const auto time = [&](int cards, const std::string& device) {
    std::map<std::string, std::string> variables = environment();
    variables["PATH"] = directory_.path().string() + ":" + std::getenv("PATH");
    variables["CONVLAB_CARD"] = fmt::format("cards={}", cards);
    return Program(directory_,
                   {"--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader", "-n", "2",
                    CONVLAB_PROGRAM_ON_CPU, "time", "lenet", "--batch", "2", "--algos", "direct",
                    "--iterations", "1", "--device", device},
                   variables, CONVLAB_MPIRUN)
        .wait();
  };
  const Ran two = time(2, "cuda");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  const std::string note =
      "gradients travel through the hosts: this device does not average with others";
  EXPECT_EQ(occurrences(two.out, note), 1) << two.out;
  std::string asked = read_file(file("asked"));
  EXPECT_TRUE(contains(asked, "card 0\n") && contains(asked, "card 1\n")) << asked;

  std::filesystem::remove(file("asked"));
  ASSERT_EQ(time(3, "cuda:1").exit_code, 0);
  asked = read_file(file("asked"));
  EXPECT_TRUE(contains(asked, "card 1\n") && contains(asked, "card 2\n")) << asked;

  for (const auto& [cards, device, says] :
       {std::tuple{1, "cuda", "--device cuda:0: this host has 2 ranks and 1 card from there on"},
        {2, "cuda:1", "--device cuda:1: this host has 2 ranks and 1 card from there on"},
        {2, "cuda:5", "--device cuda:5: this host has 2 ranks and 0 cards from there on"}}) {
    const Ran refused = time(cards, device);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_EQ(occurrences(refused.err, "convlab: "), 1) << refused.err;
    EXPECT_TRUE(contains(refused.err, says)) << refused.err;
  }
}

#endif

TEST_F(RanksProgram, ScalingPutsWhatRanksTakeBesideItsPrediction) {
  const auto scaling = [&](const Words& more) {
    return run(mpirun(2, Words{"scaling", "lenet", "--batch", "4", "--iterations", "3", "--bucket",
                               "64k", "--workers", "4"} +
                             more));
  };
  const Ran ran = scaling({"--format", "json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["network"]["measured"], true);
  EXPECT_GT(json["network"]["bytes_per_s"], 0);
  for (const char* const lane : {"compute", "exchange"}) {
    EXPECT_GT(json["network"]["shares_at_once"][lane], 0);
    EXPECT_LE(json["network"]["shares_at_once"][lane], 1);
  }
  ASSERT_EQ(json["points"].size(), 6u);  // of the two that there are, and of four
  for (std::size_t i = 0; i < 6; ++i) {
    const auto& point = json["points"][i];
    EXPECT_EQ(point["workers"], i < 3 ? 2 : 4);
    EXPECT_EQ(point.contains("measured"), i < 3) << point;
    if (i >= 3) continue;
    EXPECT_EQ(point["bucket_bytes"], 65536);
    const double ms = point["measured"]["ms"], ratio = point["measured"]["ratio"];
    EXPECT_GT(ms, 0);
    EXPECT_NEAR(ratio, point["ms"].get<double>() / ms, 1e-9 * ratio);
    EXPECT_GT(point["measured"]["exchange_ms"], 0);
  }

  const Ran given = scaling({"--latency", "1ms", "--bandwidth", "1Mbit", "--exchange", "after"});
  ASSERT_EQ(given.exit_code, 0) << given.err;
  EXPECT_TRUE(contains(given.out, "network  ring, 1 ms and 1 Mbit/s\n")) << given.out;
  EXPECT_EQ(occurrences(given.out, "\n    2  after "), 1) << given.out;
}

}  // namespace
}  // namespace convlab
