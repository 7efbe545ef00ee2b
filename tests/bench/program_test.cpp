// The command line end to end: the built program, its exit codes, what it prints and where.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "autotune/store.h"
#include "bench/options.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cuda/cuda.h"
#include "tests/bench/run_program.h"

namespace convlab {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr const char* tiny = "mb1ic16ih8oc16oh8kh3ph1";
constexpr const char* strided = "mb1ic16ih8oc16oh4kh3sh2ph1";  // fft refuses it

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::ptrdiff_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

json rows_of(const std::string& text) { return json::parse(text).at("rows"); }

class ProgramTest : public testing::Test {
 protected:
  Ran run(const Words& arguments, const std::map<std::string, std::string>& environment = {}) {
    return Program(directory_, arguments, environment).wait();
  }
  // A short tuning run.
  Ran tune(const Words& more = {}) {
    return run(Words{"tune", tiny, "--pass", "fwd", "--threads", "1", "--algos", "im2col"} + more);
  }
  TemporaryDirectory directory_;
};

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

TEST_F(ProgramTest, NothingThatWorksIsExitCode1) {
  for (const char* verb : {"tune", "bench"}) {
    const Ran ran = run({verb, strided, "--pass", "fwd", "--algos", "fft"});
    EXPECT_EQ(ran.exit_code, 1) << ran.err;
    EXPECT_TRUE(contains(ran.out, verb == std::string("tune") ? "NONE" : "refused")) << ran.out;
  }
}

TEST_F(ProgramTest, BadUsageIsOneLineAndExitCode2) {
  const std::string missing = directory_ / "missing";
  struct Case {
    Words arguments;
    std::string says;
  };
  const std::vector<Case> cases{
      {{}, "no verb"},
      {{"tuen"}, "did you mean tune?"},
      {{"learn", "resnet18"}, "unknown verb 'learn'"},
      {{"train", "resnet18"}, "no --data"},
      {{"--tune"}, "no verb"},
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
      {{"tune", tiny, "--budget", "1e400"}, "expected a time above 0"},
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
      {{"tune", tiny, "--format", "xml"}, "json"},
      {{"bench", tiny, "--format", "hpp"}, "json"},
      {{"tune", tiny, "--max-error", "-1"}, "--max-error"},
      {{"tune", tiny, "--workspace-max", "-1"}, "--workspace-max"},
      {{"tune", tiny, "--workspace-max", "18446744073709551615"}, "expected less than 8E"},
      {{"tune", tiny, "--workspace-max", "8E"}, "expected less than 8E"},
      {{"sweep", "resnet18", "-a", "n=1,2"}, "'resnet18' is not a problem"},
      {{"sweep", "mlp:20-256x5-1", "-a", "n=1,2"}, "'mlp:20-256x5-1' is not a problem"},
      {{"sweep", "@list", "-a", "n=1,2"}, "'@list' is not a problem"},
      {{"time", "lenet", "--plan", missing}, "--plan: cannot read '"},
      {{"tune", tiny, "--workspace-max", "1parsec"}, "--workspace-max"},
      {{"tune", tiny, "--budget", "0s"}, "--budget: expected a time above 0"},
      {{"tune", tiny, "--budget", "soon"}, "--budget"},
      {{"tune", tiny, "--budget", "1parsec"}, "'1parsec': expected a time above 0"},
      {{"train", "lenet", "--epochs", "0"}, "--epochs: '0': expected a whole number, 1 to "},
      {{"tune", tiny, "--mode", "guess"}, "heuristic"},
      {{"tune", tiny, "--algos", "a\nb"}, "a\\x0ab"},
      {{"tune", tiny, "--output", ""}, "--output: expected a file's name"},
      {{"tune", "mb1ic16ih8oc16oh8kh3ph1zz4"}, "kh3ph1zz4' at character 24: expected a field"},
      {{"tune", "nothing-like-it"}, "unknown net 'nothing-like-it': expected one of "},
      {{"tune", tiny, "--layer", "conv1"}, "is one layer itself: expected a net"},
      {{"tune", tiny, "--algos", "fastest"}, "fastest"},
      {{"tune", tiny, "--exclude", "fastest"}, "fastest"},
      {{"tune", tiny, "--algos", "im2col", "--exclude", "im2col"}, "both"},
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
  for (const Case& bad : cases) {
    std::string command = "convlab";
    for (const std::string& word : bad.arguments) command += " " + word;
    const Ran ran = run(bad.arguments);
    EXPECT_EQ(ran.exit_code, 2) << command << "\n" << ran.err;
    EXPECT_EQ(lines(ran.err), 1) << command << "\n" << ran.err;
    EXPECT_TRUE(ran.err.starts_with("convlab: ")) << command << "\n" << ran.err;
    EXPECT_TRUE(contains(ran.err, bad.says)) << command << "\n" << ran.err;
    EXPECT_EQ(ran.out, "") << command;
  }
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

TEST_F(ProgramTest, ATypeThatNothingTakesIsOneLine) {
  for (const char* verb : {"tune", "bench"}) {
    const Ran ran = run({verb, tiny, "--dtype", "bf16", "--pass", "fwd"});
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_EQ(lines(ran.err), 1) << ran.err;
    EXPECT_TRUE(contains(ran.err, "expected f32 or f64")) << ran.err;
  }
}

TEST_F(ProgramTest, ALimitBelowEveryNeedSaysTheSmallestThatWouldDo) {
  const Words command{"tune", tiny, "--pass", "fwd", "--algos", "fft", "--layout", "nchw"};
  const Ran ran = run(command + Words{"--workspace-max", "10"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(lines(ran.err), 2) << ran.err;  // one for the layer, one for the end
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

TEST_F(ProgramTest, ASecondRunResumesFromTheStore) {
  // A single candidate: between several, noise may call for another race.
  const Words command{"tune",    tiny,     "--pass",   "fwd",  "--threads", "1",
                      "--algos", "im2col", "--layout", "nchw", "--format",  "json"};
  const Ran first = run(command);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_FALSE(contains(first.err, "resuming")) << first.err;
  const Ran second = run(command);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_TRUE(contains(second.err, "resuming")) << second.err;
  EXPECT_EQ(json::parse(first.out)["layers"], json::parse(second.out)["layers"]);
  const Ran fresh = run(command + Words{"--fresh"});
  EXPECT_EQ(fresh.exit_code, 0);
  EXPECT_FALSE(contains(fresh.err, "resuming")) << fresh.err;
}

TEST_F(ProgramTest, TheStoreIsWhereItIsSaidToBe) {
  EXPECT_EQ(tune().exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "tune.db"));  // CONVLAB_DB
  EXPECT_EQ(tune({"--db", directory_ / "other.db"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "other.db"));
  EXPECT_EQ(run({"tune", tiny, "--pass", "fwd", "--algos", "im2col"},
                {{"CONVLAB_DB", ""}, {"XDG_CACHE_HOME", directory_ / "cache"}})
                .exit_code,
            0);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "cache" / "convlab" / "tune.db"));
}

class Interruption : public ProgramTest, public testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Signals, Interruption, testing::Values(SIGINT, SIGTERM, SIGHUP),
                         [](const auto& info) {
                           return info.param == SIGINT    ? "CtrlC"
                                  : info.param == SIGTERM ? "Term"
                                                          : "Hangup";
                         });

TEST_P(Interruption, KeepsAndPrintsWhatIsDone) {
  Program program(directory_, {"tune", "resnet20", "--pass", "fwd"});
  using Clock = std::chrono::steady_clock;
  const auto give_up = Clock::now() + std::chrono::minutes(5);
  while (!contains(program.err(), "[1/") && Clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  program.signal_group(GetParam());
  const Ran ran = program.wait();
  EXPECT_EQ(ran.exit_code, 130) << ran.err;
  EXPECT_TRUE(contains(ran.out, "conv1")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "Stopped early")) << ran.out;
  EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
  // Nobody is blamed for having been interrupted.
  for (const StoreRow& row : Store(directory_ / "tune.db", Store::Open::existing).rows()) {
    EXPECT_NE(row.candidate.status, Status::failed) << row.candidate.reason;
    EXPECT_NE(row.candidate.status, Status::timeout) << row.candidate.reason;
  }
}

TEST_F(ProgramTest, AStoreThatCannotBeUsedIsNamedAndLeftAlone) {
  write_file(directory_ / "tune.db", "this is no store");
  const Ran foreign = tune();
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_EQ(lines(foreign.err), 1) << foreign.err;
  EXPECT_TRUE(contains(foreign.err, "tune.db")) << foreign.err;
  EXPECT_EQ(read_file(directory_ / "tune.db"), "this is no store");
  const Ran unwritable = tune({"--db", "/proc/convlab/tune.db"});
  EXPECT_EQ(unwritable.exit_code, 3);
  EXPECT_EQ(lines(unwritable.err), 1) << unwritable.err;
  EXPECT_TRUE(contains(unwritable.err, "/proc/convlab")) << unwritable.err;
}

TEST_F(ProgramTest, OutputIsWrittenWholeOrNotAtAll) {
  const std::string file = directory_ / "table.csv";
  write_file(file, "old");
  EXPECT_EQ(run({"tune", "resnet19", "--output", file}).exit_code, 2);
  EXPECT_EQ(read_file(file), "old");
  const Ran ran = tune({"--format", "csv", "--output", file});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(contains(read_file(file), "layer,problem")) << read_file(file);
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
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

  // Sums of N(0,1) products are not exact in f32. The line it prints repeats the failure.
  const Ran bad = run({"check", tiny, "--pass", "fwd", "--algos", "im2col", "--max-error", "0"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_TRUE(contains(bad.out, "FAILED")) << bad.out;
  const std::size_t repeat = bad.out.find("convlab check ");
  ASSERT_NE(repeat, std::string::npos);
  std::istringstream line(bad.out.substr(repeat, bad.out.find('\n', repeat) - repeat));
  Words words;
  for (std::string word; line >> word;) words.push_back(word);
  const Ran repeated = run(Words(words.begin() + 1, words.end()));
  EXPECT_EQ(repeated.exit_code, 1) << repeated.err;

  const Ran skipped = run({"check", strided, "--pass", "fwd", "--algos", "fft"});
  EXPECT_EQ(skipped.exit_code, 0);
  EXPECT_TRUE(contains(skipped.out, "SKIPPED")) << skipped.out;
  EXPECT_TRUE(contains(skipped.out, "Nothing was checked")) << skipped.out;
  EXPECT_FALSE(contains(bad.out, "Nothing was checked")) << bad.out;
}

TEST_F(ProgramTest, ListSaysWhoTakesWhatAndWhyNot) {
  const Ran all = run({"list", "--format", "json"});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  const std::string isa = make_cpu_device()->info().isa;
  bool im2col = false;
  for (const json& row : rows_of(all.out)) {
    if (row["algo"] == "im2col") im2col = row["3x3"] == "fdw" && row["types"] == "f32 f64";
    if (row["algo"] == "onednn.winograd" && isa != "avx512") continue;  // takes nothing there
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

TEST_F(ProgramTest, DbCarriesRowsFromStoreToStore) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string other = directory_ / "other.db", file = directory_ / "rows.json";
  EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
  EXPECT_EQ(run({"db", "export", "--output", file}).exit_code, 0);
  EXPECT_EQ(run({"db", "import", file, "--db", other}).exit_code, 0);
  const auto rows = [&](const Words& more) {
    const Ran ran = run(Words{"db", "show", "--format", "json"} + more);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return rows_of(ran.out);
  };
  const json here = rows({});
  ASSERT_GE(here.size(), 1u);
  EXPECT_EQ(rows({std::string(tiny) + "n\"any name\"", "--pass", "fwd"}), here);
  EXPECT_EQ(rows({tiny, "--pass", "bwd_d"}).size(), 0u);
  EXPECT_EQ(rows({strided}).size(), 0u);
  std::istringstream table(run({"db", "show"}).out);
  for (std::string line; std::getline(table, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_TRUE(contains(run({"db", "show", "--wide"}).out, "rel_error"));
  EXPECT_EQ(rows({"--db", other}), here);
  const Ran merged = run({"db", "merge", other});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_TRUE(contains(merged.out, std::to_string(here.size()) + " kept")) << merged.out;
  json former = json::parse(read_file(file));
  former["rows"][0]["protocol"] = 1;
  write_file(file, former.dump());
  const std::string third = directory_ / "third.db";
  EXPECT_EQ(run({"db", "import", file, "--db", third}).exit_code, 0);
  const Ran dry = run({"db", "prune", "--stale", "--dry-run", "--db", third});
  EXPECT_TRUE(contains(dry.out, "1 of ")) << dry.out;
  EXPECT_TRUE(contains(run({"db", "prune", "--stale", "--db", third}).out, " 1 row removed ("));
  EXPECT_EQ(rows({"--db", third}).size() + 1, here.size());
  EXPECT_EQ(run({"db", "merge", third + ".undo", "--db", third}).exit_code, 0);
  EXPECT_EQ(rows({"--db", third}).size(), here.size());
  // A family's name stands for its algorithms, those of other builds included.
  former["rows"][0]["algo"] = "elsewhere.direct";
  write_file(file, former.dump());
  EXPECT_EQ(run({"db", "import", file}).exit_code, 0);
  EXPECT_EQ(rows({"--algos", "elsewhere"}).size(), 1u);
  for (const char* verb : {"show", "prune"}) {
    const Ran unknown = run({"db", verb, "--algos", "else"});
    EXPECT_EQ(unknown.exit_code, 2) << unknown.out;
    EXPECT_TRUE(contains(unknown.err, "unknown algorithm 'else': expected one of ")) << unknown.err;
  }
  EXPECT_TRUE(contains(run({"db", "show", "--format", "csv"}).out, ",status,predicted,ms,"));
  EXPECT_EQ(run({"db", "prune", "--algos", "im2col"}).exit_code, 0);
  EXPECT_EQ(rows({"--algos", "im2col"}).size(), 0u);
  const Ran none = run({"db", "prune", "--algos", "im2col"});
  EXPECT_TRUE(contains(none.out, "nothing matched")) << none.out;
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "not an exported tuning store"},
           {"{\n  \"rows\": [x]}",
            "rows.json: line 2, column 12: not JSON (invalid literal): expected"},
           {"", "line 1, column 1: not JSON (unexpected end of input)"}}) {
    write_file(file, text);
    const Ran bad = run({"db", "import", file});
    EXPECT_EQ(bad.exit_code, 2);
    EXPECT_TRUE(contains(bad.err, says)) << bad.err;
    EXPECT_FALSE(contains(bad.err, "json.exception")) << bad.err;
  }
  write_file(file, "{}");
  EXPECT_TRUE(contains(run({"db", "merge", file}).err, "`convlab db import`"));
}

// A store that both backends fill: this build knows the algorithms of one or of both.
TEST_F(ProgramTest, StaleRowsAreNotThoseOfAnotherDevice) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string file = directory_ / "rows.json", other = directory_ / "other.db";
  ASSERT_EQ(run({"db", "export", "--output", file}).exit_code, 0);
  json rows = json::parse(read_file(file));
  json& row = rows["rows"][0];
  AlgoRegistry registry;
  append_all_algos(registry);
  for (const ConvAlgo* algo : registry.for_device(DeviceKind::cuda)) {
    const ConvAlgo* const same = registry.find(DeviceKind::cpu, algo->info().id);
    if (same && same->info().version == algo->info().version) continue;
    row["algo"] = algo->info().id;
    row["version"] = algo->info().version;
  }
  row["fingerprint"] = "cuda=" + row["fingerprint"].get<std::string>();
  write_file(file, rows.dump());
  ASSERT_EQ(run({"db", "import", file, "--db", other}).exit_code, 0);
  const Ran ran = run({"db", "prune", "--stale", "--db", other});
  EXPECT_TRUE(contains(ran.out, "nothing matched: 0 of ")) << ran.out;
}

TEST_F(ProgramTest, AStoreIsNoOutput) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string store = directory_ / "tune.db", fresh = directory_ / "fresh.db";
  const std::string before = read_file(store);
  for (const Words& words :
       {Words{"db", "export", "--output", store}, Words{"db", "show", "--output", store},
        Words{"list", "--output", store},
        Words{"db", "export", "--db", fresh, "--output", store}}) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    EXPECT_TRUE(contains(ran.err, "tuning store")) << ran.err;
  }
  EXPECT_EQ(read_file(store), before);
  EXPECT_EQ(tune({"--db", fresh, "--output", fresh}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

TEST_F(ProgramTest, NoFileIsReadAndWrittenOrWrittenTwice) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string store = directory_ / "tune.db", list = directory_ / "list",
                    before = directory_ / "before.json", plan = directory_ / "plan.json",
                    fresh = directory_ / "fresh";
  write_file(list, std::string(tiny) + "\n");
  ASSERT_EQ(tune({"--output", before}).exit_code, 0);  // JSON by its suffix
  ASSERT_EQ(run({"plan", "lenet", "--no-audit", "--output", plan}).exit_code, 0);
  std::filesystem::create_symlink(before, directory_ / "link");
  const std::vector<Words> cases{
      {"diff", before, before, "--output", before},
      {"diff", before, before, "--output", directory_ / "link"},
      {"diff", before, before, "--output", directory_.path() / "." / "before.json"},
      {"diff", "--before", before, "--after", before, "--output", before},
      {"list", "@" + list, "--output", list},
      {"time", "lenet", "--plan", plan, "--trace", plan},
      {"time", "lenet", "--trace", fresh, "--output", fresh},
      {"predict", "lenet", "a.png", "--weights", before, "--output", before},
      {"train", "lenet", "--data", "synthetic", "--weights", before, "--log", before},
      {"train", "lenet", "--data", "synthetic", "--checkpoint", fresh, "--log", fresh},
      {"train", "lenet", "--data", "synthetic", "--log", store},
      // None of these is there yet.
      {"train", "lenet", "--data", "synthetic", "--checkpoint", "new", "--log", "./new"},
      {"train", "lenet", "--data", "synthetic", "--checkpoint", fresh, "--log",
       directory_ / "dangling"},
      {"db", "export", "--db", store, "--output", store + "-journal"},
      {"tune", tiny, "--db", "new.db", "--output", "./new.db.undo"},
  };
  std::filesystem::create_symlink("fresh", directory_ / "dangling");
  std::map<std::string, std::string> contents;
  for (const std::string& file : {store, list, before, plan}) contents[file] = read_file(file);
  for (const Words& words : cases) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.exit_code, 2) << words[0] << ran.err;
    EXPECT_TRUE(contains(ran.err, "name another file")) << ran.err;
  }
  for (const auto& [file, content] : contents) EXPECT_EQ(read_file(file) == content, true) << file;
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

TEST_F(ProgramTest, VerifyExitsOneForADamagedStore) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string store = directory_ / "tune.db";
  const std::string whole = read_file(store);
  write_file(store, whole.substr(0, whole.size() - 4096));
  const Ran ran = run({"db", "verify"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.out, "is damaged")) << ran.out;
  EXPECT_EQ(run({"db", "show"}).exit_code, 2);
  write_file(store, whole);
  EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
}

TEST_F(ProgramTest, DamagedRowsGoAndComeBackByTheLineThatPruneSays) {
  ASSERT_EQ(tune().exit_code, 0);
  const std::string store = directory_ / "tune.db";
  std::string damaged = read_file(store);
  const std::string algo = "im2col", config = "rows=";  // a byte of the version is between, or none
  for (std::size_t at = 0; (at = damaged.find(algo, at)) != std::string::npos; ++at)
    if (damaged.find(config, at) <= at + algo.size() + 1) damaged[at] = 'j';
  write_file(store, damaged);
  ASSERT_EQ(run({"db", "verify"}).exit_code, 1);

  const Ran dry = run({"db", "prune", "--damaged", "--dry-run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_TRUE(contains(dry.out, "nothing was removed")) << dry.out;
  const Ran pruned = run({"db", "prune", "--damaged"});
  EXPECT_EQ(pruned.exit_code, 0) << pruned.err;
  EXPECT_TRUE(contains(pruned.out, " removed, 0 left")) << pruned.out;
  EXPECT_TRUE(contains(pruned.out, "to undo: cp " + store + ".undo " + store)) << pruned.out;
  EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
  EXPECT_TRUE(contains(read_file(store + ".undo"), "jm2col"));
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
  EXPECT_EQ(rows.size(), 14 * supported_isas().size());
  for (const json& row : rows) EXPECT_GT(row["G/s"], 0) << row;
  EXPECT_TRUE(contains(doctor_says(), " GFLOP/s on 1 thread; L1 ")) << doctor_says();
}

// In a checkout of somebody else, and from a directory that is gone.
TEST_F(ProgramTest, TheStartScriptRunsWhatIsBuiltWhereItCannotWrite) {
  const std::filesystem::path cmake = std::filesystem::path(CONVLAB_SETUP).parent_path(),
                              checkout = directory_ / "checkout";
  std::filesystem::create_directories(checkout / "cmake");
  for (const char* name : {"setup.sh", "debian-packages.txt"})
    std::filesystem::copy(cmake / name, checkout / "cmake");
  std::filesystem::copy(cmake.parent_path() / "convlab", checkout);
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
  const std::string start = std::string(geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 "
                                                         "--clear-groups "
                                                       : "") +
                            (checkout / "convlab").string() + " list";
  const auto run_script = [&](const std::string& before) {
    std::filesystem::permissions(checkout, std::filesystem::perms(0555));
    const Ran ran = Program(directory_, {"-c", before + start}, {}, "/bin/bash").wait();
    std::filesystem::permissions(checkout, std::filesystem::perms(0755));
    return ran;
  };
  const Ran nothing = run_script("");
  EXPECT_EQ(nothing.exit_code, 3);
  EXPECT_TRUE(nothing.err.starts_with("convlab: cannot write ")) << nothing.err;
  EXPECT_EQ(lines(nothing.err), 1) << nothing.err;
  std::filesystem::create_directories(checkout / "build" / "bench");
  write_file(checkout / "build" / "bench" / "convlab", "#!/bin/sh\necho \"built, $1\"\n");
  std::filesystem::permissions(checkout / "build", std::filesystem::perms(0555));
  std::filesystem::permissions(checkout / "build" / "bench" / "convlab",
                               std::filesystem::perms(0755));
  const std::string gone = directory_ / "gone";
  for (const std::string& before :
       {std::string(), "mkdir " + gone + "; cd " + gone + "; rmdir " + gone + "; "}) {
    const Ran ran = run_script(before);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(ran.out, "built, list\n");
  }
  std::filesystem::permissions(checkout / "build", std::filesystem::perms(0755));
}

TEST_F(ProgramTest, ABuildShowsHowFarItIs) {
  const std::string log = directory_ / "log";
  const auto stage = [&](const std::string& command) {
    const std::string err = directory_ / "stage.err";
    const int status = std::system(("bash -c 'source " CONVLAB_SETUP "; log=" + log + "; " +
                                    "stage building " + command + "' 2>" + err)
                                       .c_str());
    return std::pair(WEXITSTATUS(status), read_file(err));
  };
  write_file(directory_ / "build.sh",
             "for i in $(seq 200); do echo \"[$i/200] step $i\"; done; exit $1");
  const std::string script = "bash " + (directory_ / "build.sh").string();
  const auto [fine, said] = stage(script + " 0");
  EXPECT_EQ(fine, 0);
  EXPECT_TRUE(said.starts_with("convlab: building; log: " + log + "\nconvlab: 20 of 200\n"))
      << said;
  EXPECT_TRUE(said.ends_with("convlab: 200 of 200\n")) << said;
  EXPECT_EQ(lines(said), 11) << said;
  EXPECT_TRUE(contains(read_file(log), "[123/200] step 123\n"));
  const auto [failed, told] = stage(script + " 7");
  EXPECT_EQ(failed, 1);
  EXPECT_TRUE(contains(told, "failed after")) << told;
  EXPECT_TRUE(told.ends_with("[200/200] step 200\n")) << told;
}

TEST_F(ProgramTest, ExplainMeasuresOnceAndSaysWhy) {
  const Words explain{"explain",   tiny, "--pass",  "fwd",
                      "--threads", "1",  "--algos", "im2col,direct"};
  const Ran now = run(explain + Words{"--format", "json"});
  ASSERT_EQ(now.exit_code, 0) << now.err;
  const json said = json::parse(now.out);
  EXPECT_EQ(said["convlab_explain"], 1);
  EXPECT_TRUE(contains(said["times"], "measured now")) << said["times"];
  const json& layer = said["layers"][0];
  EXPECT_FALSE(layer["phases"].empty());
  for (const json& c : layer["candidates"]) {
    EXPECT_NE(c["why"], "") << c;
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
}

// ---- What the environment grants.

TEST_F(ProgramTest, FewerThreadsThanAskedForAreObeyedOrRefused) {
  const Words check{"check", tiny, "--pass", "fwd"};
  for (const char* limit : {"OMP_THREAD_LIMIT=1", "OMP_MAX_ACTIVE_LEVELS=0", "OMP_DYNAMIC=true"}) {
    const std::string text = limit;
    const std::map<std::string, std::string> environment{
        {text.substr(0, text.find('=')), text.substr(text.find('=') + 1)}};
    const Ran obeyed = run(check, environment);
    EXPECT_EQ(obeyed.exit_code, 0) << limit << obeyed.out << obeyed.err;
    const Ran asked = run(check + Words{"--threads", "3"}, environment);
    if (text.starts_with("OMP_DYNAMIC")) {
      EXPECT_EQ(asked.exit_code, 0) << asked.out << asked.err;
    } else {
      EXPECT_EQ(asked.exit_code, 3) << limit << asked.out << asked.err;
      EXPECT_EQ(lines(asked.err), 1) << asked.err;
      EXPECT_TRUE(contains(asked.err, "OpenMP gives 1: OMP_")) << asked.err;
    }
  }
}

TEST_F(ProgramTest, TrainingIsTheSameWithFewerThreads) {
  // Up to the test's loss: what follows in the log are times.
  const auto losses = [&](const std::vector<std::string>& threads,
                          const std::map<std::string, std::string>& environment) {
    const std::filesystem::path log = directory_ / "losses.csv";
    std::filesystem::remove(log);
    std::vector<std::string> arguments{"train", "lenet",   "--data", "synthetic:64", "--epochs",
                                       "1",     "--batch", "16",     "--log",        log.string()};
    arguments.insert(arguments.end(), threads.begin(), threads.end());
    const Ran ran = run(arguments, environment);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    std::ifstream file(log);
    std::string header, line;
    std::getline(file, header);
    std::getline(file, line);
    EXPECT_TRUE(header.starts_with("epoch,rate,loss,top1,test_loss,")) << header;
    std::size_t end = 0;
    for (int column = 0; column < 5; ++column) end = line.find(',', end) + 1;
    return line.substr(0, end);
  };
  const std::string one = losses({"--threads", "1"}, {});
  EXPECT_TRUE(contains(one, "1,")) << one;
  EXPECT_EQ(losses({}, {{"OMP_THREAD_LIMIT", "1"}}), one);
}

TEST_F(ProgramTest, StacksTooSmallForThreadsAreRefused) {
  const Ran ran = run({"check", tiny, "--pass", "fwd", "--threads", "2", "--algos", "direct"},
                      {{"OMP_STACKSIZE", "16k"}});
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_EQ(lines(ran.err), 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "OMP_STACKSIZE=2M")) << ran.err;
}

TEST_F(ProgramTest, ProcessorsThatAreNotThereAreRefused) {
  if (CONVLAB_SANITIZED)
    GTEST_SKIP() << "LLVM's OpenMP, under its sanitizers, ignores such processors";
  const std::string none = std::to_string(sysconf(_SC_NPROCESSORS_CONF));
  const Ran ran = run({"list", tiny, "--threads", "2"}, {{"GOMP_CPU_AFFINITY", none}});
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_EQ(lines(ran.err), 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "GOMP_CPU_AFFINITY")) << ran.err;
}

// OpenBLAS retries for ever when it gets no memory, even before main.
TEST_F(ProgramTest, MemoryLimitsEndInOneLine) {
  if (CONVLAB_SANITIZED) GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
  for (const int megabytes : {1200, 1400, 1600, 1800, 2000}) {
    const Ran ran =
        Program(directory_,
                {"-c", "ulimit -v " + std::to_string(megabytes << 10) + "; exec \"$0\" \"$@\"",
                 CONVLAB_PROGRAM, "check", tiny, "--threads", "2"},
                {}, "/bin/sh")
            .wait();
    EXPECT_TRUE(ran.exit_code == 0 || ran.exit_code == 3) << megabytes << ran.exit_code << ran.err;
    if (ran.exit_code == 3) {
      EXPECT_EQ(lines(ran.err), 1) << megabytes << ran.err;
    }
  }
}

TEST_F(ProgramTest, WithoutAHomeOnlyVerbsThatNeedAStoreRefuse) {
  const std::map<std::string, std::string> homeless{
      {"HOME", ""}, {"XDG_CACHE_HOME", ""}, {"CONVLAB_DB", ""}};
  for (const Words& verb : {Words{"doctor"}, Words{"plan", "lenet"},
                            Words{"time", "lenet", "--forward-only", "--iterations", "1"}}) {
    const Ran ran = run(verb, homeless);
    EXPECT_FALSE(contains(ran.err, "no place for the tuning store")) << ran.err;
    EXPECT_LE(ran.exit_code, 1) << verb.front() << ran.err;
  }
  const Ran tuned = run({"tune", tiny, "--pass", "fwd", "--threads", "1"}, homeless);
  EXPECT_EQ(tuned.exit_code, 3) << tuned.err;
  EXPECT_EQ(lines(tuned.err), 1) << tuned.err;
}

}  // namespace
}  // namespace convlab
