// The command line end to end: the built program, its exit codes, its output and where that goes.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "autotune/store/store.h"
#include "kernels_cpu/amx/amx.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/device/cpu_limits.h"
#include "kernels_cuda/cuda.h"
#include "tests/bench/program/program_lab.h"

namespace convlab {
namespace {

using nlohmann::json;

TEST_F(ProgramTest, HelpTeachesByExampleOnStdout) {
  const Ran top = run({"--help"});
  EXPECT_EQ(top.exit_code, 0);
  EXPECT_TRUE(contains(top.out, "convlab tune resnet18")) << top.out;
  for (const char* verb : {"list", "doctor", "check", "tune", "bench", "sweep", "time", "plan",
                           "predict", "explain", "roofline", "diff", "db"}) {
    EXPECT_TRUE(contains(top.out, verb)) << verb;
    const Ran help = run({verb, "--help"});
    EXPECT_EQ(help.exit_code, 0) << verb;
    EXPECT_TRUE(contains(help.out, "Examples:\n  convlab " + std::string(verb))) << help.out;
    EXPECT_EQ(help.err, "") << verb;
  }
  const Ran version = run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("convlab ")) << version.out;
}

TEST_F(ProgramTest, HelpFitsATerminal) {
  for (const char* verb : {"", "list", "doctor", "check", "tune", "bench", "sweep", "time", "plan",
                           "train", "predict", "explain", "roofline", "diff", "db"}) {
    std::istringstream help(run(*verb ? Words{verb, "--help"} : Words{"--help"}).out);
    for (std::string line; std::getline(help, line);)
      EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }),
                100)
          << verb << "\n"
          << line;
  }
}

TEST_F(ProgramTest, ALayerOfANetAlone) {
  const Ran ran = run(
      {"tune", "resnet18", "--layer", "layer2.0.conv2", "--mode", "heuristic", "--format", "json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json layers = json::parse(ran.out)["layers"];
  ASSERT_EQ(layers.size(), 3u);
  for (const json& layer : layers) EXPECT_EQ(layer["layer"], "layer2.0.conv2");
  EXPECT_EQ(layers[0]["count"], 3);
}

// Equal layers share a row. It has the name that was asked for.
TEST_F(ProgramTest, ALayerThatAnotherIsEqualTo) {
  for (const char* name : {"layer2.0.conv2", "layer2.1.conv1", "layer2.1.conv2"}) {
    const Ran ran = run({"tune", "resnet18", "--layer", name, "--mode", "heuristic", "--pass",
                         "fwd", "--format", "json"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const json layers = json::parse(ran.out)["layers"];
    ASSERT_EQ(layers.size(), 1u);
    EXPECT_EQ(layers[0]["layer"], name);
    EXPECT_EQ(layers[0]["count"], 3);
  }
}

TEST_F(ProgramTest, NothingThatWorksIsExitCode1) {
  for (const char* verb : {"tune", "bench"}) {
    const Ran ran = run({verb, strided, "--pass", "fwd", "--algos", "fft"});
    EXPECT_EQ(ran.exit_code, 1) << ran.err;
    EXPECT_TRUE(contains(ran.out, verb == std::string("tune") ? "NONE" : "refused")) << ran.out;
  }
}

TEST_F(ProgramTest, BadUsageIsOneLineAndExitCode2) {
  const std::string missing = directory_ / "missing";
  const std::vector<BadUsage> cases{
      {{}, "no verb"},
      {{"tuen"}, "did you mean tune?"},
      {{"learn", "resnet18"}, "unknown verb 'learn'"},
      {{"train", "resnet18"}, "no --data"},
      {{"--tune"}, "unknown flag '--tune': expected one of list, doctor, "},
      {{"-x", "tune"}, "unknown flag '-x': expected one of list, doctor, "},
      {{"tune", "resnet18", "--nosuch", "1"}, "unknown flag '--nosuch': expected one of --help"},
      {{"tune"}, "no target"},
      {{"check"}, "no target"},
      {{"bench"}, "no target"},
      {{"db"}, "show"},
      {{"db", "shwo"}, "did you mean show?"},
      {{"tune", "resnet19"}, "resnet18"},
      {{"tune", "@" + missing}, missing},
      {{"tune", tiny, "--bacth", "1"}, "did you mean --batch?"},
      {{"db", "show", "--alogs", "fft"}, "did you mean --algos?"},
      {{"doctor", "resnet18"}, "unexpected argument 'resnet18'"},
      {{"tune", tiny, "--batch", "1", "--batch", "2"}, "--batch is given twice: say it once"},
      {{"tune", tiny, "--db", "a", "--db", "b", "--db", "c"}, "--db is given 3 times: say it once"},
      {{"tune", tiny, "--batch"}, "--batch has no value: expected --batch N,..."},
      {{"sweep", tiny, "-a"}, "--axis has no value: expected --axis NAME=VALUES"},
      {{"db", "merge"}, "db merge: no FILE: see convlab db merge --help"},
      {{"tune", tiny, "--", "--batch", "2"}, "tune: nothing can follow '--': drop it"},
      {{"bench", "--"}, "bench: nothing can follow '--': drop it"},
      {{"diff", "--", "a", "b"}, "diff: nothing can follow '--': drop it"},
      {{"db", "show", "--"}, "db show: nothing can follow '--': drop it"},
      {{"db", "--", "show"}, "db: nothing can follow '--': drop it"},
      {{"db", "-"}, "db: unknown verb '-': expected one of show"},
      {{"db", "--db", "a"}, "db: unknown flag '--db': expected one of show, verify"},
      {{"doctor", "-"}, "doctor: unexpected argument '-': see convlab doctor --help"},
      {{"tune", tiny, "--max-error", "1e400"}, "--max-error: '1e400' does not fit in a double"},
      {{"tune", tiny, "--max-error", "-1e400"}, "--max-error: '-1e400' does not fit"},
      {{"tune", tiny, "--max-error", "1e-400"},
       "'1e-400' does not fit in a double: expected 0, or 5e-324 to 1.8e308"},
      {{"tune", tiny, "--max-error", "x"},
       "--max-error: 'x': expected a number from 0 to 1.8e308, or inf"},
      {{"tune", tiny, "--budget", "1e400s"}, "--budget: '1e400s': expected a time above 0"},
      {{"tune", tiny, "--budget", "1e308h"}, "--budget: '1e308h': expected a time above 0"},
      {{"tune", tiny, "--budget", "-1"}, "--budget: '-1': expected a time above 0"},
      {{"tune", tiny, "--budget", "1e-400s"}, "--budget: '1e-400s': expected a time above 0"},
      {{"diff", "a", "b", "--threshold", "1e400%"}, "--threshold: '1e400' does not fit"},
      {{"diff", "a", "b", "--threshold", "1e-400%"}, "--threshold: '1e-400' does not fit"},
      {{"train", "lenet", "--lr", "1e400"}, "--lr: '1e400' does not fit"},
      {{"train", "lenet", "--weight-decay", "1e400"}, "--weight-decay: '1e400' does not fit"},
      {{"train", "lenet", "--momentum", "1e-400"}, "--momentum: '1e-400' does not fit"},
      {{"train", "lenet", "--mean", "1e-400"}, "--mean: '1e-400' does not fit"},
      {{"train", "lenet", "--mean", "inf"}, "--mean: 'inf' is no number up to 1.8e308"},
      {{"train", "lenet", "--schedule", "step:1e400"}, "--schedule: schedule 'step:1e400'"},
      {{"sweep", tiny, "-a", "n=1e400"}, "--axis: '1e400': expected a whole number, 1 to "},
      {{"sweep", tiny, "-a", "n=1:0"}, "--axis: '0': expected a whole number, 1 to "},
      {{"sweep", tiny, "-a", "n"}, "--axis: 'n': expected NAME=VALUES"},
      {{"sweep", tiny, "-a", "x=1"}, "--axis: unknown axis 'x': expected one of n, c"},
      {{"sweep", tiny, "-a", "n=1", "-a", "n=2"}, "--axis: two axes n"},
      {{"sweep", tiny, "-a", "h=1000000000000"}, "--axis: impossible problem: tensor x"},
      {{"sweep", tiny, "-a", "threads=4096"}, "--axis: threads '4096'"},
      {{"tune", tiny, "--algos", "nope"}, "--algos: unknown algorithm 'nope': expected one of "},
      {{"tune", tiny, "--exclude", "nope"}, "--exclude: unknown algorithm 'nope'"},
      {{"check", tiny, "--algos", "nope"}, "--algos: unknown algorithm 'nope'"},
      {{"time", "lenet", "--exclude", "nope"}, "--exclude: unknown algorithm 'nope'"},
      {{"train", "lenet", "--data", "nope"}, "--data: no data in 'nope': expected synthetic"},
      {{"train", "lenet", "--data", "synthetic:x"}, "--data: 'synthetic:x': expected"},
      {{"train", "--resume", missing}, "--resume: checkpoint '"},
      {{"predict", "lenet", "a.png", "--weights", missing + ".npz"}, "--weights: cannot read '"},
      {{"predict", "r3d_18", "a.png", "--weights", missing + ".npz"},
       "predict: r3d_18 takes 16 slices of 112x112 pixels, not an image: expected a net of images"},
      {{"train", "r3d_18", "--data", "photos"}, "--data: no data in 'photos': expected synthetic"},
      {{"train", "nosuchnet"}, "unknown net 'nosuchnet': expected one of alexnet"},
      {{"train", "nosuchnet", "--data", missing, "--resume", missing, "--checkpoint", "a.txt"},
       "unknown net 'nosuchnet': expected one of alexnet"},
      {{"predict", "nosuchnet"}, "unknown net 'nosuchnet': expected one of alexnet"},
      {{"predict", "nosuchnet", "a.png"}, "unknown net 'nosuchnet': expected one of alexnet"},
      {{"time", "nosuchnet", "--plan", missing}, "unknown net 'nosuchnet'"},
      {{"sweep", "nosuchnet"}, "sweep: 'nosuchnet' is not a problem: expected one, as in mb1"},
      {{"sweep", tiny}, "sweep: nothing to vary"},
      {{"train", "unet3d", "--data", "synthetic"}, "train: unet3d scores each voxel of an image"},
      {{"train", "unet", "--data", "synthetic"}, "train: unet scores each pixel of an image"},
      {{"tune", tiny, "--workspace-max", "1.5M"},
       "--workspace-max: '1.5M': expected a whole number of bytes"},
      {{"tune", tiny, "--workspace-max", "99999999999999999999"},
       "'99999999999999999999': expected"},
      {{"tune", tiny, "--budget", "1e400"}, "--budget: '1e400' does not fit"},
      {{"diff", "a", "b", "--threshold", "inf%"}, "expected a percentage"},
      {{"tune", tiny, "--batch", "0"}, "1 or more"},
      {{"tune", tiny, "--batch", "-1"}, "1 or more"},
      {{"tune", tiny, "--threads", "100000"}, "1 to 1024"},
      {{"tune", tiny, "--threads", "2147483648"}, "1 to 1024"},
      {{"sweep", tiny, "-a", "threads=4294967297"}, "1 to 1024"},
      {{"sweep", tiny, "-a", "threads=1:4096:*4"}, "1 to 1024"},
      {{"tune", tiny, "--workspace-max", "9223372036854775808"}, "expected less than 8E"},
      {{"tune", tiny, "--batch", "x"}, "'x'"},
      {{"tune", tiny, "--batch", "1,,2"}, "empty item"},
      {{"tune", tiny, "--batch", "1,1"}, "twice"},
      {{"tune", tiny, "--batch", "1000000000"}, "GiB"},
      {{"tune", tiny, "--batch", "99999999999999999999"}, "--batch"},
      {{"tune", tiny, "--batch"}, "--batch"},
      {{"tune", tiny, "--batch", "1", "--batch", "2"}, "--batch"},
      {{"tune", tiny, "--pass", "forward"}, "bwd_d"},
      {{"tune", tiny, "--dtype", "f8"}, "f64"},
      {{"tune", tiny, "--layout", "chwn"}, "nhwc"},
      {{"tune", tiny, "--cache", "warm"}, "cold"},
      {{"tune", tiny, "--threads", "0"}, "--threads"},
      {{"tune", tiny, "--threads", "-2"}, "--threads"},
      {{"tune", tiny, "--seed", "-1"}, "--seed"},
      {{"tune", tiny, "--device", "tpu"}, "cuda"},
      {{"tune", tiny, "--device", "cuda:"}, "--device"},
      {{"tune", tiny, "--device", "cuda:-1"}, "0 or more"},
      {{"tune", tiny, "--device", "cuda", "--threads", "2"}, "--threads"},
      {{"tune", tiny, "--format", "xml"},
       "--format: 'xml': expected one of table, csv, json, md, hpp\n"},
      {{"check", tiny, "--format", "xml"},
       "--format: 'xml': expected one of table, csv, json, md\n"},
      {{"bench", tiny, "--format", "hpp"}, "'hpp': expected one of table, csv, json, md\n"},
      {{"tune", tiny, "--max-error", "-1"}, "--max-error"},
      {{"tune", tiny, "--workspace-max", "-1"}, "--workspace-max"},
      {{"tune", tiny, "--workspace-max", "18446744073709551615"}, "expected less than 8E"},
      {{"tune", tiny, "--workspace-max", "8E"}, "expected less than 8E"},
      {{"sweep", "resnet18", "-a", "n=1,2"}, "'resnet18' is not a problem"},
      {{"sweep", "mlp:20-256x5-1", "-a", "n=1,2"}, "'mlp:20-256x5-1' is not a problem"},
      {{"sweep", "@list", "-a", "n=1,2"}, "'@list' is not a problem"},
      {{"time", "lenet", "--plan", missing}, "--plan: cannot read '"},
      {{"tune", tiny, "--workspace-max", "1parsec"}, "--workspace-max"},
      {{"tune", tiny, "--budget", "0s"}, "--budget: '0s': expected a time above 0"},
      {{"tune", tiny, "--budget", "soon"}, "--budget"},
      {{"tune", tiny, "--budget", "1parsec"}, "'1parsec': expected a time above 0"},
      {{"train", "lenet", "--epochs", "0"}, "--epochs: '0': expected a whole number, 1 to "},
      {{"tune", tiny, "--mode", "guess"}, "heuristic"},
      {{"tune", tiny, "--algos", "a\nb"}, "a\\x0ab"},
      {{"tune", tiny, "--output", ""}, "--output has no value: expected --output FILE"},
      {{"diff", "a", "b", "--control", ""}, "--control has no value: expected --control ID"},
      {{"diff", "--before", "", "--after", "b"}, "--before has no value"},
      {{"sweep", tiny, "-a", ""}, "--axis has no value: expected --axis NAME=VALUES"},
      {{"tune", tiny, "--db", ""}, "--db has no value: expected --db FILE"},
      {{"tune", tiny, "--db", "--wide"}, "--db has no value: expected --db FILE"},
      {{"list", "--db="}, "--db= has no value: expected one after '=', or no '='"},
      {{"tune", tiny, "--wide="}, "--wide= has no value"},
      {{"tune", ""}, "tune: empty TARGET: see convlab tune --help"},
      {{"db", "show", ""}, "db show: empty PROBLEM: see convlab db show --help"},
      {{"db", "merge", ""}, "db merge: empty FILE: see convlab db merge --help"},
      {{"tune", "mb1ic16ih8oc16oh8kh3ph1zz4"}, "kh3ph1zz4' at character 24: expected a field"},
      {{"tune", "nothing-like-it"}, "unknown net 'nothing-like-it': expected one of "},
      {{"tune", tiny, "--layer", "conv1"}, "is one layer itself: expected a net"},
      {{"tune", tiny, "--algos", "fastest"}, "fastest"},
      {{"tune", tiny, "--exclude", "fastest"}, "fastest"},
      {{"tune", tiny, "--algos", "im2col", "--exclude", "im2col"}, "both"},
      {{"tune", tiny, "--algos", "direct_plain", "--exclude", "direct"},
       "--exclude: 'direct' leaves none of --algos direct_plain"},
      {{"tune", tiny, "--math", "bf16"},
       "--math: 'bf16' is not for products of f32: expected --dtype bf16"},
      {{"tune", tiny, "--math", "f32", "--dtype", "f64"},
       "--math: chooses how products of f32 are formed, not of f64: drop it"},
      {{"check", tiny, "--math", "f32", "--dtype", "f64"}, "--math: chooses how products of f32"},
      {{"time", "lenet", "--math", "f32", "--dtype", "f64"}, "--math: chooses how products of f32"},
      {{"tune", tiny, "--algos", "onedn"}, ", or a family: direct, fft_tiled, im2col"},
      {{"tune", tiny, "--mode", "heuristic", "--budget", "5s"}, "drop one"},
      {{"tune", tiny, "--output", missing + "/table"}, missing},
      {{"db", "show", "--db", missing}, missing},
      {{"db", "show", "--before", "soon"}, "--before"},
      {{"db", "prune", "--before", "2026-2-1"}, "2026-01-31"},
      {{"db", "prune", "--before", "2026-13-45"}, "2026-01-31"},
      {{"db", "prune", "--damaged", "--stale"}, "--damaged alone"},
      {{"db", "import", "/"}, "Is a directory"},
      {{"diff", "/", "/"}, "Is a directory"},
      {{"time", "lenet", "--plan", "/"}, "Is a directory"},
      {{"roofline", "--from", "/"}, "Is a directory"},
      {{"db", "merge", missing}, missing},
      {{"db", "import", missing}, missing},
      {{"db", "prune"}, "--stale"},
      {{"explain"}, "no target"},
      {{"explain", "resnet18", "--layer", "layer1.0.conv9"}, "layer1.0.conv1"},
      {{"tune", "resnet18", "--layer", "layer1.0.conv9"}, "did you mean layer1.0.conv1"},
      {{"tune", "resnet18", "lenet", "--layer", "conv1"}, "--layer: 2 targets"},
      {{"bench", "resnet18", "--layer", "layer1.0.conv9"}, "did you mean layer1.0.conv1"},
      {{"db", "show", "resnet18"}, "not a problem"},
      {{"explain", tiny, "--format", "csv"}, "json"},
      {{"roofline", tiny}, "convlab tune mb1ic16ih8oc16oh8kh3ph1"},
      {{"roofline", "--svg", "a.svg"}, "TARGET"},
      {{"roofline", "--from", missing}, missing},
      {{"roofline", tiny, "--from", missing}, "drop it"},
      {{"roofline", "--from", missing, "--measure"}, "drop it"},
      {{"roofline", tiny, "--html", missing + "/page"}, "--html"},
  };
  expect_refused([&](const Words& words) { return run(words); }, cases);
}

TEST_F(ProgramTest, ImpossibleSizesAreRefusedByField) {
  for (const auto& [problem, says] :
       std::vector<std::pair<std::string, std::string>>{{"mb1ic16ih8oc16oh8kh0", "kh"},
                                                        {"g3mb1ic16ih8oc16oh8kh3ph1", "3"},
                                                        {"mb0ic16ih8oc16oh8kh3ph1", "mb"},
                                                        {"mb1ic-16ih8oc16oh8kh3ph1", "ic"}}) {
    const Ran ran = run({"tune", problem});
    EXPECT_EQ(ran.exit_code, 2) << problem;
    EXPECT_TRUE(contains(ran.err, says)) << ran.err;
  }
}

TEST_F(ProgramTest, ACardThatIsNotThereIsExitCode3) {
  const std::string obstacle = cuda_obstacle();
  if (obstacle.empty()) GTEST_SKIP() << "there is a card here";
  for (const char* device : {"cuda", "cuda:7"})
    for (const Words& verb : {Words{"tune", tiny}, Words{"bench", tiny}, Words{"check", tiny},
                              Words{"list"}, Words{"list", tiny}}) {
      const Ran ran = run(verb + Words{"--device", device});
      EXPECT_EQ(ran.exit_code, 3) << verb[0];
      EXPECT_EQ(ran.err, "convlab: " + obstacle + "\n") << verb[0];
      EXPECT_EQ(ran.out, "") << verb[0];
    }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tune.db"));
}

TEST_F(ProgramTest, DoctorSaysWhatStandsBetweenItAndACard) {
  const std::string obstacle = cuda_obstacle();
  if (obstacle.empty()) GTEST_SKIP() << "there is a card here";
  for (const Words& device : {Words{}, Words{"--device", "cuda"}}) {
    const Ran ran = run(Words{"doctor", "--format", "json"} + device);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    std::string found;
    for (const json& row : rows_of(ran.out))
      if (row["what"] == "card") {
        found = row["found"].get<std::string>() + row["remedy"].get<std::string>();
        EXPECT_EQ(row["verdict"], device.empty() ? "" : "PROBLEM");
      }
    EXPECT_TRUE(contains(found, obstacle)) << ran.out;
  }
}

TEST_F(ProgramTest, UnknownAlgorithmsLeaveNoStore) {
  EXPECT_EQ(run({"tune", tiny, "--algos", "fastest"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tune.db"));
}

// winograd_grouped takes it, and no f64.
constexpr const char* grouped = "g4mb1ic16ih6oc16oh6kh3ph1";

TEST_F(ProgramTest, ATypeThatNothingTakesIsOneLine) {
  for (const char* verb : {"tune", "bench"}) {
    const Ran ran =
        run({verb, grouped, "--algos", "winograd_grouped", "--dtype", "f64", "--pass", "fwd"});
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_EQ(lines(ran.err), 1) << ran.err;
    EXPECT_TRUE(contains(ran.err, "expected f32 or f16 or bf16")) << ran.err;
  }
}

TEST_F(ProgramTest, SixteenBitsAreATypeLikeOthers) {
  for (const char* type : {"f16", "bf16"}) {
    const Ran check = run({"check", tiny, "--dtype", type, "--format", "csv"});
    EXPECT_EQ(check.exit_code, 0) << check.err;
    EXPECT_FALSE(contains(check.out, "FAILED")) << check.out;
    const Ran tune = run({"tune", tiny, "--dtype", type, "--pass", "fwd", "--algos",
                          "im2col,direct", "--format", "json"});
    ASSERT_EQ(tune.exit_code, 0) << tune.err;
    const json tuned = json::parse(tune.out);
    for (const json& layer : tuned["layers"]) {
      EXPECT_EQ(layer["dtype"], type);
      // Results are rounded to 8 and 11 bits.
      EXPECT_GT(layer["chosen"]["rel_error"], 1e-5) << layer;
      EXPECT_LT(layer["chosen"]["rel_error"], 4e-3) << layer;
    }
    // The store has it: nothing is measured again.
    const Ran explain =
        run({"explain", tiny, "--dtype", type, "--pass", "fwd", "--algos", "im2col,direct"});
    ASSERT_EQ(explain.exit_code, 0) << explain.err;
    EXPECT_TRUE(contains(explain.out, "widen")) << explain.out;
    EXPECT_TRUE(contains(explain.out, "round")) << explain.out;
    const Ran sweep = run({"sweep", tiny, "-a", std::string("dtype=f32,") + type, "--pass", "fwd",
                           "--algos", "im2col", "--format", "csv"});
    EXPECT_EQ(sweep.exit_code, 0) << sweep.err;
  }
}

TEST_F(ProgramTest, ALimitBelowEveryNeedSaysTheSmallestThatWouldDo) {
  const Words command{"tune", tiny, "--pass", "fwd", "--algos", "fft", "--layout", "nchw"};
  const Ran ran = run(command + Words{"--workspace-max", "10"});
  EXPECT_EQ(ran.exit_code, 1);
  // One for the layer, one for the end. A slow run also says that it is screening.
  EXPECT_EQ(lines(ran.err) - occurrences(ran.err, "screening"), 2) << ran.err;
  const std::size_t at = ran.err.find("--workspace-max ", ran.err.find("too small"));
  ASSERT_NE(at, std::string::npos) << ran.err;
  const std::string least =
      ran.err.substr(at + 16, ran.err.find_first_not_of("0123456789", at + 16) - at - 16);
  const Ran enough = run(command + Words{"--workspace-max", least});
  EXPECT_EQ(enough.exit_code, 0) << enough.err;
  const Ran less = run(command + Words{"--workspace-max", std::to_string(std::stoll(least) - 1)});
  EXPECT_EQ(less.exit_code, 1) << less.err;
}

TEST_F(ProgramTest, TunePrintsEveryFormat) {
  const Ran table = tune();
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_TRUE(contains(table.out, "next best")) << table.out;
  EXPECT_TRUE(contains(tune({"--wide"}).out, "eff_gflops"));
  EXPECT_TRUE(contains(table.err, "[1/1]")) << table.err;  // plain lines: stderr is no terminal
  EXPECT_FALSE(contains(table.err, "\r"));

  const Ran as_json = tune({"--format", "json"});
  ASSERT_EQ(as_json.exit_code, 0) << as_json.err;
  const json parsed = json::parse(as_json.out);
  ASSERT_EQ(parsed["layers"].size(), 1u);
  EXPECT_EQ(parsed["layers"][0]["problem"], tiny);
  EXPECT_GT(parsed["layers"][0]["chosen"]["ms"], 0);
  EXPECT_LT(parsed["layers"][0]["chosen"]["rel_error"], 1e-4);
  for (const char* field : {"convlab", "command", "cpu", "isa", "threads", "compiler", "flags",
                            "commit", "openblas", "date"})
    EXPECT_TRUE(parsed["provenance"].contains(field)) << field;

  EXPECT_TRUE(contains(tune({"--format", "csv"}).out, "\nlayer,problem,pass,"));
  EXPECT_TRUE(tune({"--format", "md"}).out.starts_with("| layer |"));
  EXPECT_TRUE(contains(tune({"--format", "hpp"}).out, "constexpr"));
}

class Interruption : public ProgramTest, public testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Signals, Interruption, testing::Values(SIGINT, SIGTERM, SIGHUP),
                         [](const auto& info) {
                           return info.param == SIGINT    ? "CtrlC"
                                  : info.param == SIGTERM ? "Term"
                                                          : "Hangup";
                         });

TEST_P(Interruption, KeepsAndPrintsWhatIsDone) {
  const auto start = [&] {
    std::filesystem::remove(directory_ / "tune.db");
    return Program(directory_, {"tune", "resnet20", "--pass", "fwd"});
  };
  const Ran ran = interrupted(start, "[1/", GetParam());
  EXPECT_EQ(ran.exit_code, 130) << ran.err;
  EXPECT_TRUE(contains(ran.out, "conv1")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "Stopped early")) << ran.out;
  EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
  // An interruption does not count as a failure of any candidate.
  for (const StoreRow& row : Store(directory_ / "tune.db", Store::Open::existing).rows()) {
    EXPECT_NE(row.candidate.status, Status::failed) << row.candidate.reason;
    EXPECT_NE(row.candidate.status, Status::timeout) << row.candidate.reason;
  }
}

TEST_F(ProgramTest, AnInterruptedCheckSaysThatItIsIncomplete) {
  const auto start = [&] {
    return Program(directory_, {"check", "resnet20", "--pass", "fwd", "--format", "json"});
  };
  const Ran ran = interrupted(start, "[1/", SIGINT);
  EXPECT_EQ(ran.exit_code, 130) << ran.err;
  const json parsed = json::parse(ran.out);
  EXPECT_EQ(parsed["complete"], false);
  EXPECT_TRUE(contains(parsed["notes"].dump(), "Stopped early")) << parsed["notes"];
}

TEST_F(ProgramTest, ABudgetThatTheStartSpendsLeavesPredictions) {
  const Ran ran = tune({"--budget", "0.001"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "~")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "Stopped early before anything was measured")) << ran.out;
  EXPECT_FALSE(contains(ran.err, "screening")) << ran.err;
}

TEST_F(ProgramTest, HeuristicModeRunsNothingAndMakesNoStore) {
  const Ran ran = tune({"--mode", "heuristic"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, tiny)) << ran.out;
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tune.db"));
}

TEST_F(ProgramTest, CheckPassesFailsAndSkips) {
  const Ran good = run({"check", tiny, "--algos", "im2col", "--format", "json"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  int passed = 0;
  for (const json& row : rows_of(good.out)) passed += row["result"] == "PASSED";
  EXPECT_GE(passed, 3);
  EXPECT_EQ(json::parse(good.out)["complete"], true);

  // Sums of N(0,1) products are not exact in f32. The printed command repeats the failure.
  const Ran bad = run({"check", tiny, "--pass", "fwd", "--algos", "im2col", "--max-error", "0"},
                      {{"CONVLAB_AMX", "off"}});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_TRUE(contains(bad.out, "FAILED")) << bad.out;
  const std::size_t repeat = bad.out.find("CONVLAB_AMX=off convlab check ");
  ASSERT_NE(repeat, std::string::npos) << bad.out;
  std::istringstream line(bad.out.substr(repeat, bad.out.find('\n', repeat) - repeat));
  Words words;
  for (std::string word; line >> word;) words.push_back(word);
  const Ran repeated = run(Words(words.begin() + 2, words.end()));
  EXPECT_EQ(repeated.exit_code, 1) << repeated.err;

  const Ran skipped = run({"check", strided, "--pass", "fwd", "--algos", "fft"});
  EXPECT_EQ(skipped.exit_code, 0);
  EXPECT_TRUE(contains(skipped.out, "SKIPPED")) << skipped.out;
  EXPECT_TRUE(contains(skipped.out, "Nothing was checked")) << skipped.out;
  EXPECT_FALSE(contains(bad.out, "Nothing was checked")) << bad.out;
}

TEST_F(ProgramTest, DepthIsChecked) {
  const Ran ran = run({"check", "mb1ic16id3ih6oc16kd3kh3pd1ph1", "--format", "json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  std::set<std::string> passed;
  for (const json& row : rows_of(ran.out))
    if (row["result"] == "PASSED") passed.insert(row["algo"]);
  for (const char* algo : {"direct", "im2col", "implicit_gemm", "winograd", "fft_tiled"})
    EXPECT_TRUE(passed.contains(algo)) << algo;

  const Ran list = run({"list", "mb1ic16id3ih6oc16kd3kh3pd1ph1", "--pass", "fwd"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_TRUE(contains(list.out, "mb1ic16id3ih6iw6oc16od3oh6ow6kd3kh3kw3pd1ph1pw1")) << list.out;
}

TEST_F(ProgramTest, ListSaysWhoTakesWhatAndWhyNot) {
  const Ran all = run({"list", "--format", "json"});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  const std::string isa = make_cpu_device()->info().isa;
  bool im2col = false;
  for (const json& row : rows_of(all.out)) {
    if (row["algo"] == "im2col") im2col = row["3x3"] == "fdw" && row["types"] == "f32 f64 f16 bf16";
    if (row["algo"] == "onednn.winograd" && isa != "avx512") continue;  // refuses everything there
    EXPECT_NE(row["types"], "") << row << " takes none of the problems asked about";
  }
  EXPECT_TRUE(im2col) << all.out;
  const Ran target = run({"list", strided, "--pass", "fwd", "--format", "json"});
  ASSERT_EQ(target.exit_code, 0) << target.err;
  bool refused = false;
  for (const json& row : rows_of(target.out))
    if (row["algo"] == "fft") refused = row["takes"] == "no" && row["reason"] != "";
  EXPECT_TRUE(refused) << target.out;
}

TEST_F(ProgramTest, ATypeThatNoAlgorithmTakesIsRefused) {
  std::vector<BadUsage> cases;
  for (const Words& verb :
       {Words{"check"}, Words{"tune"}, Words{"bench"}, Words{"tune", "--mode", "heuristic"},
        Words{"bench", "--mode", "heuristic"}, Words{"sweep", "-a", "n=1,2"},
        Words{"sweep", "-a", "n=1,2", "--mode", "heuristic"}})
    cases.push_back({verb + Words{grouped, "--algos", "winograd_grouped", "--dtype", "f64"},
                     std::string("no algorithm takes ") + grouped + " in f64 on "});
  expect_refused([&](const Words& words) { return run(words); }, cases);
  // These refuse the problem in every type, and list says why each refuses whatever the type.
  EXPECT_EQ(run({"check", strided, "--pass", "fwd", "--algos", "fft"}).exit_code, 0);
  const Ran list = run({"list", grouped, "--dtype", "f64"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_TRUE(contains(list.out, "needs f32, has f64")) << list.out;
}

TEST_F(ProgramTest, BenchShowsEveryAlgorithmAndMakesNoStore) {
  const Ran ran = run({"bench", tiny, "--pass", "fwd", "--algos", "im2col,fft", "--format", "csv"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, ",im2col,")) << ran.out;
  EXPECT_TRUE(contains(ran.out, ",fft,")) << ran.out;
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tune.db"));
}

TEST_F(ProgramTest, DoctorReportsTheMachineAndRemedies) {
  const std::string worst = supported_isas().front();
  const Ran ran = run({"doctor", "--format", "json"}, {{"CONVLAB_ISA", worst}});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  std::map<std::string, json> found;
  for (const json& row : rows_of(ran.out)) found[row["what"]] = row;
  for (const char* what : {"cpu", "caches", "threads", "OpenBLAS kernels", "compiler", "noise"})
    EXPECT_TRUE(found.contains(what)) << what;
  ASSERT_TRUE(found.contains("isa in force"));
  EXPECT_EQ(found["isa in force"]["found"], worst);
  const auto core_to_core = [&](const char* threads) {
    return contains(run({"doctor", "--threads", threads, "--format", "json"}).out, "core to core");
  };
  EXPECT_TRUE(core_to_core("2"));
  EXPECT_FALSE(core_to_core("1"));
  EXPECT_TRUE(json::parse(ran.out)["provenance"].contains("command")) << ran.out;
  if (worst == supported_isas().back()) GTEST_SKIP() << "this CPU has only one ISA to choose";
  std::istringstream table(run({"doctor"}, {{"CONVLAB_ISA", worst}}).out);
  bool remedy = false;
  for (std::string line; std::getline(table, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    remedy |= contains(line, "  -> this CPU has");
  }
  EXPECT_TRUE(remedy);
  EXPECT_EQ(found["isa in force"]["verdict"], "PROBLEM");
  EXPECT_TRUE(contains(found["isa in force"]["remedy"], "CONVLAB_ISA"));
}

TEST_F(ProgramTest, VariablesOfTheCpuAreCheckedAndInProvenance) {
  const auto provenance = [&](const char* amx, const char* dots = "off") {
    const Ran ran = run({"list", tiny, "--format", "json"},
                        {{"CONVLAB_AMX", amx}, {"CONVLAB_AVX512_BF16", dots}});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return json::parse(ran.out)["provenance"];
  };
  const json off = provenance("off"), emulated = provenance("emulated");
  EXPECT_EQ(off.value("matrix_unit", ""), "off") << off;
  EXPECT_TRUE(contains(off.value("command", ""), "CONVLAB_AMX=off ")) << off;
  EXPECT_EQ(emulated.value("matrix_unit", ""), cpu::emulated_amx_unit) << emulated;
  EXPECT_EQ(off.value("dot_unit", ""), "off") << off;
  const json dots = provenance("off", "emulated");
  EXPECT_EQ(dots.value("dot_unit", ""), cpu::emulated_avx512_bf16_unit) << dots;

  for (const auto& [name, expected] :
       {std::pair{"CONVLAB_ISA", "convlab: CONVLAB_ISA=bogus: expected baseline, avx2 or avx512\n"},
        {"CONVLAB_AMX", "convlab: CONVLAB_AMX=bogus: expected emulated or off\n"},
        {"CONVLAB_AVX512_BF16",
         "convlab: CONVLAB_AVX512_BF16=bogus: expected emulated or off\n"}}) {
    const Ran ran = run({"list", tiny}, {{name, "bogus"}});
    EXPECT_EQ(ran.exit_code, 2) << ran.out;
    EXPECT_EQ(ran.err, expected);
  }
  // Verbs that open no device ask neither.
  ASSERT_EQ(tune().exit_code, 0);
  const Ran db = run({"db", "show"}, {{"CONVLAB_AMX", "bogus"}, {"CONVLAB_ISA", "bogus"}});
  EXPECT_EQ(db.exit_code, 0) << db.err;
}

TEST_F(ProgramTest, DoctorMeasuresOnTheCoresWhateverThreadsAreAskedFor) {
  const int cores = usable_cores(), asked = 4 * std::max(cores, 2);
  const Ran ran = run({"doctor", "--threads", std::to_string(asked), "--format", "json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  std::map<std::string, json> found;
  for (const json& row : rows_of(ran.out)) found[row["what"]] = row;
  EXPECT_EQ(found["threads"]["verdict"], "PROBLEM");
  EXPECT_TRUE(contains(found["threads"]["found"], std::to_string(asked) + " on ")) << ran.out;
  EXPECT_TRUE(contains(found["f32 peak"]["found"],
                       " on " + std::to_string(std::max(cores, 2)) + " threads"))
      << ran.out;
}

TEST_F(ProgramTest, RooflineKeepsTheRoofsAndPlacesWhatTuneMeasured) {
  ASSERT_EQ(tune().exit_code, 0);
  const Words roofline{"roofline", tiny, "--pass", "fwd", "--threads", "1", "--algos", "im2col"};
  const Ran first = run(roofline + Words{"--format", "json", "--output", directory_ / "r.json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(contains(first.err, "measuring the roofs")) << first.err;
  const json report = json::parse(read_file(directory_ / "r.json"));
  ASSERT_EQ(report["points"].size(), 1u) << report;
  const json& point = report["points"][0];
  EXPECT_EQ(point["algo"], "im2col");
  EXPECT_EQ(point["chosen"], true);
  EXPECT_GT(point["attainable_gflops"], 0);
  EXPECT_EQ(point["phases"].back()["name"], "other");
  EXPECT_EQ(report["curves"].size(), 1u) << report["curves"];

  const Ran second = run(roofline);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_FALSE(contains(second.err, "measuring the roofs")) << second.err;
  EXPECT_TRUE(contains(second.out, "%_of_roof")) << second.out;
  EXPECT_TRUE(contains(second.out, "modelled")) << second.out;

  const Ran again = run({"roofline", "--from", directory_ / "r.json", "--format", "csv"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(contains(again.out, "im2col")) << again.out;
}

TEST_F(ProgramTest, RooflineWithoutATargetIsTheRoofsWhichDoctorShows) {
  const auto doctor_says = [&] {
    std::string found;
    for (const json& row : rows_of(run({"doctor", "--threads", "1", "--format", "json"}).out))
      if (row["what"] == "roofs of " + supported_isas().front()) found = row["found"];
    return found;
  };
  EXPECT_TRUE(contains(doctor_says(), "not measured: `convlab roofline`")) << doctor_says();
  const Ran ran = run({"roofline", "--threads", "1", "--format", "json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json rows = rows_of(ran.out);
  const auto device = make_cpu_device();
  const std::string_view unit = cpu::bf16_unit(device->info());
  const bool tiles = unit == cpu::amx_unit || unit == cpu::avx512_bf16_unit;  // on one of the sets
  EXPECT_EQ(rows.size(), 14 * supported_isas().size() + (tiles ? 1 : 0));
  for (const json& row : rows) EXPECT_GT(row["G/s"], 0) << row;
  EXPECT_TRUE(contains(doctor_says(), " GFLOP/s on 1 thread; L1 ")) << doctor_says();
}

TEST_F(ProgramTest, ExplainMeasuresOnceAndSaysWhy) {
  const Words explain{"explain",   tiny, "--pass",  "fwd",
                      "--threads", "1",  "--algos", "im2col,direct"};
  const Ran now = run(explain + Words{"--format", "json"});
  ASSERT_EQ(now.exit_code, 0) << now.err;
  const json said = json::parse(now.out);
  EXPECT_EQ(said["convlab_explain"], 1);
  EXPECT_EQ(said["complete"], true);
  EXPECT_TRUE(contains(said["times"], "measured now")) << said["times"];
  const json& layer = said["layers"][0];
  EXPECT_FALSE(layer["phases"].empty());
  for (const json& c : layer["candidates"]) {
    EXPECT_NE(c["why"], "") << c;
    for (const json& bound : c["ratio"]) EXPECT_TRUE(bound.is_null() || bound > 0) << c;
    if (c["ratio"] != json({1, 1, 1})) continue;
    const std::string own = "By batch: " + c["algo"].get<std::string>() + " at 1 (";
    EXPECT_TRUE(contains(layer["sentences"].dump(), own)) << layer["sentences"];
  }

  const Ran blocked =
      run({"explain", tiny, "--pass", "fwd", "--threads", "1", "--algos", "direct", "--layout",
           "nchwc", "--format", "json", "--db", directory_ / "other.db"});
  ASSERT_EQ(blocked.exit_code, 0) << blocked.err;
  const json beforehand = json::parse(blocked.out)["layers"][0]["beforehand"];
  ASSERT_FALSE(beforehand.empty()) << blocked.out;
  EXPECT_EQ(beforehand.back()["name"], "conversion");
  EXPECT_GT(beforehand.back()["ms"], 0);

  const Ran known = run(explain);
  EXPECT_EQ(known.exit_code, 0) << known.err;
  EXPECT_TRUE(contains(known.out, "measured before")) << known.out;
  EXPECT_TRUE(contains(known.out, "Phases of")) << known.out;
  EXPECT_TRUE(contains(known.out, "By batch: ")) << known.out;
  EXPECT_TRUE(contains(known.out, "(predicted)")) << known.out;

  const std::string part = directory_ / "part.db";
  const Words forward{tiny, "--pass", "fwd", "--threads", "1", "--db", part, "--algos"};
  ASSERT_EQ(run(Words{"tune"} + forward + Words{"direct_plain"}).exit_code, 0);
  const Ran rest = run(Words{"explain"} + forward + Words{"direct_plain,im2col"});
  EXPECT_TRUE(contains(rest.out, "measured now")) << rest.out;
}

}  // namespace
}  // namespace convlab
