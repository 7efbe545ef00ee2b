// tests/gpu/run without a card: with a shell script as convlab, and with the convlab that executes
// kernels on the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

using nlohmann::json;
// It has two algorithms and checks both. `list` and every check are logged in `calls`.
constexpr const char* script = R"sh(#!/bin/sh
cd "$(dirname "$0")"
echo "$$ $*" >>calls
output=$OLDPWD/$(echo "$*" | sed -n 's/.*--output \([^ ]*\).*/\1/p')
case "$*" in
  list*) cat list.json; exit ;;
  *"--algos winograd"*) . ./winograd ;;
  tune*) cat tune.json >"$output"; exit ;;
esac
echo '# note: 2 passed, 0 failed, 0 skipped' >"$output"
echo 'layer,pass,algo,config,layouts,result,rel_error,reason,repeat' >>"$output"
)sh";

constexpr const char* list = R"({"provenance": {"convlab": "0.1.0", "gpu": "some card"}, "rows": [
  {"algo": "direct", "origin": "own", "3x3": "f", "types": "f32"},
  {"algo": "winograd", "origin": "own", "3x3": "f", "types": "f32"},
  {"algo": "cudnn.graph", "origin": "vendor", "3x3": "fdw", "types": "f32 bf16"},
  {"algo": "cudnn.gemm", "origin": "vendor", "3x3": "f", "types": "f64"}]})";

class GpuRunTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3";
    write_script("convlab", script);
    write_file(directory_ / "list.json", list);
    write_file(directory_ / "winograd", "");
  }
  void write_script(const std::string& name, const std::string& text) {
    write_file(directory_ / name, text);
    std::filesystem::permissions(directory_ / name, std::filesystem::perms::owner_all);
  }
  Program start(const Words& more, const std::string& convlab = "") {
    Words arguments{"--small", "--out", directory_ / "results"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Program(directory_, arguments,
                   {{"CONVLAB", convlab.empty() ? (directory_ / "convlab").string() : convlab},
                    {"CONVLAB_GPU_TESTS", (directory_ / "convlab_gpu_tests").string()},
                    {"CONVLAB_MICRO_GEMM", CONVLAB_MICRO_GEMM}},
                   CONVLAB_GPU_RUN);
  }
  Ran run(const Words& more, const std::string& convlab = "") {
    return start(more, convlab).wait();
  }
  std::string report() const { return read_file(directory_ / "results" / "report.md"); }
  // The last outcome of each job, by its name.
  std::map<std::string, json> outcomes() const {
    std::map<std::string, json> found;
    std::istringstream lines(read_file(directory_ / "results" / "jobs.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const json outcome = json::parse(line);
      found[outcome["name"]] = outcome;
    }
    return found;
  }
  std::ptrdiff_t calls(const std::string& part) const {
    std::istringstream lines(read_file(directory_ / "calls"));
    std::ptrdiff_t count = 0;
    for (std::string line; std::getline(lines, line);)
      count += line.find(part) != std::string::npos;
    return count;
  }
  static void expect(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }
  TemporaryDirectory directory_;
};

TEST_F(GpuRunTest, ChecksWhatIsListedInAProcessEach) {
  const Ran ran = run({"--only", "check"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const std::map<std::string, json> found = outcomes();
  // cuDNN's only in f32 and bf16, its graphs not at all.
  ASSERT_EQ(found.size(), 2u) << read_file(directory_ / "calls");
  EXPECT_EQ(found.at("direct-f32-fwd")["result"], "passed");
  EXPECT_EQ(found.at("direct-f32-fwd")["found"], "2 passed, 0 failed, 0 skipped");
  expect(report(), "- gpu: some card\n");
  expect(report(), "| check | 2 | 0 |");
  expect(ran.err, "gpu: 1 of 1 stage passed: see ");
  EXPECT_TRUE(
      report().starts_with("# convlab on a card: tried with --small, whose times say nothing\n"))
      << report();
}

TEST_F(GpuRunTest, ACandidateThatLosesTheCardLosesOneJob) {
  write_file(directory_ / "winograd", "echo 'an illegal address'\nkill -s SEGV $$\n");
  const Ran ran = run({"--only", "check"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  const std::map<std::string, json> found = outcomes();
  EXPECT_EQ(found.at("direct-f32-fwd")["result"], "passed");
  EXPECT_EQ(found.at("winograd-f32-fwd")["result"], "failed");
  EXPECT_EQ(found.at("winograd-f32-fwd")["exit"], -SIGSEGV);
  expect(report(), "failed: ended by SIGSEGV: an illegal address");
  expect(report(), "convlab check @problems.txt --algos winograd --dtype f32 --pass fwd");
  expect(ran.err, "gpu: 0 of 1 stage passed; failed or unfinished: check: see ");
}

TEST_F(GpuRunTest, ALongReasonEndsAfterAWord) {
  std::string said;
  for (int i = 0; i < 40; ++i) said += " illegal";
  write_file(directory_ / "winograd", "echo '" + said + "'\nkill -s SEGV $$\n");
  EXPECT_EQ(run({"--only", "check"}).exit_code, 1);
  const std::string found = outcomes().at("winograd-f32-fwd")["found"];
  EXPECT_TRUE(found.ends_with(" illegal illegal...")) << found;
  EXPECT_LE(found.size(), 230u) << found;
}

// The rows before it are on the page.
TEST_F(GpuRunTest, ACheckThatIsCutOffLeavesItsRows) {
  write_file(directory_ / "winograd", R"(cat >"$output.partial" <<'end'
layer,pass,algo,config,layouts,result,rel_error,reason,repeat
tiny,fwd,winograd,tile=2,nhwc,FAILED,0.5,wrong result,convlab check tiny --algos winograd
tiny,fwd,winograd,tile=4,nhwc,PASSED,1e-7,,
end
kill -s KILL $$
)");
  EXPECT_EQ(run({"--only", "check"}).exit_code, 1);
  expect(outcomes().at("winograd-f32-fwd")["found"], "ended by SIGKILL after 2 candidates");
  expect(report(),
         "- winograd tile=2 nhwc, tiny: wrong result: `convlab check tiny --algos winograd`\n");
}

TEST_F(GpuRunTest, EachTypeOfAnAlgorithmIsCheckedBeforeTheNextAlgorithm) {
  write_file(directory_ / "list.json", R"({"provenance": {}, "rows": [
    {"algo": "direct", "origin": "own", "3x3": "f", "types": "f32 bf16"},
    {"algo": "winograd", "origin": "own", "3x3": "f", "types": "f32 f64"}]})");
  EXPECT_EQ(run({"--only", "check", "--jobs", "1"}).exit_code, 0);
  std::istringstream log(read_file(directory_ / "calls"));
  std::vector<std::string> order;
  for (std::string line; std::getline(log, line);)
    for (const char* part : {"direct --dtype f32", "direct --dtype bf16", "winograd --dtype f32",
                             "winograd --dtype f64"})
      if (contains(line, part)) order.emplace_back(part);
  EXPECT_EQ(order, (std::vector<std::string>{"direct --dtype f32", "direct --dtype bf16",
                                             "winograd --dtype f32", "winograd --dtype f64"}));
}

// ncu would lock the clocks and replay thousands of launches; compute-sanitizer might not end.
TEST_F(GpuRunTest, ToolsLeaveTheClocksAloneAndEndInTime) {
  write_script("ncu", R"sh(#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >>ncu.calls
log=$OLDPWD/$(echo "$*" | sed -n 's/.*--log-file \([^ ]*\).*/\1/p')
printf '"Metric Name","Metric Unit","Metric Value"\n"Duration","us","7"\n' >"$log"
exit 9
)sh");
  write_script("compute-sanitizer", "#!/bin/sh\nsleep 100\n");
  const std::string path = directory_.path().string() + ":" + std::getenv("PATH");
  const Ran ran = Program(directory_,
                          {"--small", "--out", directory_ / "results", "--only", "profile",
                           "--only", "memcheck", "--minutes", "0.4"},
                          {{"CONVLAB", directory_ / "convlab"}, {"PATH", path}}, CONVLAB_GPU_RUN)
                      .wait();
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  const std::map<std::string, json> found = outcomes();
  EXPECT_EQ(found.at("winograd")["found"], "Duration 7 us") << ran.err;
  for (const auto& [name, outcome] : found) {
    const bool memcheck = outcome["stage"] == "memcheck";
    EXPECT_EQ(outcome["result"], memcheck ? "unfinished" : "passed") << outcome;
  }
  std::istringstream log(read_file(directory_ / "ncu.calls"));
  int calls = 0;
  for (std::string line; std::getline(log, line); ++calls)
    for (const char* part : {"--clock-control none", "--launch-count 3", "--kill yes"})
      EXPECT_TRUE(contains(line, part)) << line;
  EXPECT_EQ(calls, 5);
}

TEST_F(GpuRunTest, FailedCandidatesAreListedWithTheLineThatRepeatsThem) {
  write_file(directory_ / "winograd", R"(cat >"$output" <<'end'
# note: 0 passed, 1 failed, 0 skipped
# note: The card was lost with the last one: what was to follow was not checked.
layer,pass,algo,config,layouts,result,rel_error,reason,repeat
tiny,fwd,winograd,tile=4,nhwc,FAILED,inf,an illegal address,convlab check tiny --algos winograd
end
exit 1
)");
  EXPECT_EQ(run({"--only", "check"}).exit_code, 1);
  expect(outcomes().at("winograd-f32-fwd")["found"], "1 failed, 0 skipped, the card lost");
  expect(report(),
         "- winograd tile=4 nhwc, tiny: an illegal address: `convlab check tiny --algos "
         "winograd`\n");
}

TEST_F(GpuRunTest, ASecondRunRepeatsOnlyWhatRanOutOfTime) {
  write_file(directory_ / "winograd", "sleep 60\n");
  EXPECT_EQ(run({"--only", "check", "--minutes", "0.5", "--jobs", "2"}).exit_code, 1);
  EXPECT_EQ(outcomes().at("winograd-f32-fwd")["result"], "unfinished");
  write_file(directory_ / "winograd", "");
  EXPECT_EQ(run({"--only", "check"}).exit_code, 0);
  EXPECT_EQ(outcomes().at("winograd-f32-fwd")["result"], "passed");
  EXPECT_EQ(calls("--algos winograd"), 2);
  EXPECT_EQ(calls("--algos direct"), 1);
  // A job whose logs are lost counts as not done.
  std::filesystem::remove(directory_ / "results" / "logs.tar.gz");
  EXPECT_EQ(run({"--only", "check"}).exit_code, 0);
  EXPECT_EQ(calls("--algos direct"), 2);
}

// The machine went away while they were written.
TEST_F(GpuRunTest, HalvesOfFilesCostTheirJobsOnly) {
  EXPECT_EQ(run({"--only", "check"}).exit_code, 0);
  const std::filesystem::path results = directory_ / "results";
  const std::string whole = read_file(results / "jobs.jsonl");
  const std::size_t line = whole.find('\n') + 1;
  write_file(results / "jobs.jsonl", whole.substr(0, line + 20));
  write_file(results / "machine.json", "{\"made_by\"");
  EXPECT_EQ(run({"--only", "check"}).exit_code, 0);
  EXPECT_EQ(calls("check @problems.txt"), 3);
  EXPECT_EQ(run({"--only", "check"}).exit_code, 0);
  EXPECT_EQ(calls("check @problems.txt"), 3);
  const std::string archive = read_file(results / "logs.tar.gz");
  write_file(results / "logs.tar.gz", archive.substr(0, archive.size() / 2));
  const Ran ran = run({"--only", "check"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  expect(ran.err, "logs.tar.gz is damaged");
}

TEST_F(GpuRunTest, TwoRunsDoNotShareAFolder) {
  write_file(directory_ / "winograd", "touch begun; sleep 60\n");
  Program first = start({"--only", "check"});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(directory_ / "begun") && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Ran second = run({"--only", "check"});
  EXPECT_EQ(second.exit_code, 2);
  expect(second.err, "another run works there: wait for it, or name another folder\n");
  first.signal_group(SIGINT);
  EXPECT_EQ(first.wait().exit_code, 130);
}

TEST_F(GpuRunTest, RefusesAFolderWithResultsOfAnotherCard) {
  EXPECT_EQ(run({"--only", "check"}).exit_code, 0);
  std::string other = list;
  write_file(directory_ / "list.json", other.replace(other.find("some card"), 4, "any"));
  const Ran ran = run({"--only", "check"});
  EXPECT_EQ(ran.exit_code, 2);
  expect(ran.err, "has results of 0.1.0  some card (small), this is 0.1.0  any card (small)");
}

TEST_F(GpuRunTest, BadUsageIsOneLine) {
  for (const auto& [arguments, part] :
       {std::pair<Words, const char*>{{"--only", "chek"},
                                      "no stage 'chek': expected one of tests "},
        {{"--device", "cpu"}, "no card 'cpu': expected cuda or cuda:i"},
        {{"--minutes", "0"}, "--minutes: '0': expected a number above 0"},
        {{"--jobs", "1.5"}, "--jobs: '1.5': expected a whole number above 0"},
        {{"--out", ""}, "argument --out: '': expected a folder"},
        {{"--ony", "check"}, "unrecognized arguments: --ony check"}}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    expect(ran.err, part);
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "results"));
  write_file(directory_ / "results", "");
  const Ran ran = run({});
  EXPECT_EQ(ran.exit_code, 2);
  expect(ran.err, "results: is no folder: expected one, or a name for a new one\n");
}

TEST_F(GpuRunTest, AStageThatCannotBePlannedLeavesTheOthers) {
  write_script("convlab_gpu_tests", "no program");
  const Ran ran = run({"--only", "tests", "--only", "check"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  expect(ran.err, "gpu: 1 of 2 stages passed; skipped: tests: see ");
  expect(report(), "- tests: skipped: cannot be planned: OSError");
  expect(report(), "| check | 2 | 0 |");
}

// Nets need the race's or tune's store; without it they wait for a run that has one.
TEST_F(GpuRunTest, NetsWithoutATuningStoreAreUnfinished) {
  write_script("convlab", R"(#!/bin/sh
case $1 in
  list) cat "${0%/*}/list.json";;
  *) echo "convlab: tune.db: there is no tuning store" >&2; exit 2;;
esac
)");
  const Ran ran = run({"--only", "nets"});
  expect(report(), "nothing is tuned yet: run race or tune");
  for (const auto& [name, outcome] : outcomes()) EXPECT_EQ(outcome["result"], "unfinished") << name;
  EXPECT_FALSE(outcomes().empty());
}

TEST_F(GpuRunTest, SaysInTheProgramsWordsThatThereIsNoCard) {
  write_script("convlab", "#!/bin/sh\necho 'convlab: no NVIDIA driver' >&2\nexit 3\n");
  const Ran ran = run({});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_EQ(ran.err, "tests/gpu/run: no card to run on: convlab: no NVIDIA driver\n");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "results"));
}

// The number of a card, or what CONVLAB_CARD says of one: there are cards.
TEST_F(GpuRunTest, WhatTheProgramTakesForBadInputIsNoLackOfACard) {
  write_script("convlab", "#!/bin/sh\necho 'convlab: cuda:99 does not exist' >&2\nexit 2\n");
  const Ran ran = run({"--device", "cuda:99"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err, "tests/gpu/run: convlab: cuda:99 does not exist\n");
}

// As in a build tree; nothing names the program of products.
TEST_F(GpuRunTest, ProductsOnTheCpuAreThoseBesideTheProgramOnTheCpu) {
  const std::filesystem::path build = directory_ / "build";
  std::filesystem::create_directories(build / "tests/bench");
  std::filesystem::create_directories(build / "bench/micro");
  write_script("build/tests/bench/convlab_on_cpu", script);
  write_file(build / "tests/bench/list.json", list);
  const auto run_studies = [&] {
    Program(directory_, {"--small", "--only", "studies", "--out", directory_ / "results"},
            {{"CONVLAB", build / "tests/bench/convlab_on_cpu"}, {"CONVLAB_MICRO_GEMM", ""}},
            CONVLAB_GPU_RUN)
        .wait();
  };
  run_studies();
  EXPECT_FALSE(outcomes().contains("gemm"));
  expect(report(),
         "- studies: skipped: gemm: there is no micro_gemm_on_cpu: build it, or name it in "
         "CONVLAB_MICRO_GEMM\n");
  write_script("build/bench/micro/micro_gemm_on_cpu", "#!/bin/sh\necho it was asked >&2; exit 3\n");
  run_studies();
  expect(outcomes().at("gemm")["found"], "exit 3: it was asked");
}

// This includes children that ignore SIGTERM, and their own children.
TEST_F(GpuRunTest, ASignalEndsTheChildrenAndLeavesAReport) {
  write_file(directory_ / "winograd",
             "trap '' TERM\n(while :; do echo >>beats; sleep 0.05; done) &\n"
             "while :; do sleep 1; done\n");
  const auto beats = [&] { return read_file(directory_ / "beats").size(); };
  Program program = start({"--only", "check"});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (beats() == 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  program.signal_group(SIGINT);
  const Ran ran = program.wait();
  EXPECT_EQ(ran.exit_code, 130) << ran.err;
  expect(report(), "## Stages");
  std::istringstream lines(read_file(directory_ / "calls"));
  for (std::string line; std::getline(lines, line);)
    EXPECT_NE(kill(std::stoi(line), 0), 0) << line << " is still running";
  const std::size_t then = beats();
  EXPECT_GT(then, 0u);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(beats(), then);
}

TEST_F(GpuRunTest, EachSuiteIsAProcessOfItsOwn) {
  write_script("convlab_gpu_tests", R"(#!/bin/sh
case "$*" in
  --gtest_list_tests) printf 'Card.\n  IsDescribed\nNets/Cards.  # TypeParam = int\n  Have/a\n' ;;
  *Card.*) echo '[ RUN      ] Card.IsDescribed'; kill -s ABRT $$ ;;
  *) echo '[  PASSED  ] 1 test.'
     echo '[  FAILED  ] 1 test, listed below:'
     echo '[  FAILED  ] Nets/Cards.Have/a'
     exit 1 ;;
esac
)");
  EXPECT_EQ(run({"--only", "tests"}).exit_code, 1);
  expect(outcomes().at("Card")["found"], "ended by SIGABRT in Card.IsDescribed");
  expect(outcomes().at("Nets_Cards")["found"], "1 passed, 1 failed");
  expect(report(), "- Nets/Cards.Have/a: `convlab_gpu_tests --gtest_filter=Nets/Cards.Have/a`\n");
}

// 3x3 at ratios 2 and 8, 1x1 without cuDNN's; predictions and failures do not count. Each type has
// a race of its own.
TEST_F(GpuRunTest, TheRaceIsComparedByClass) {
  const auto candidate = [](const char* algo, double ms, const char* status = "ok",
                            bool predicted = false) {
    return fmt::format(R"({{"algo": "{}", "config": "", "ms": {}, "eff_gflops": 5000, )"
                       R"("status": "{}", "predicted": {}}})",
                       algo, ms, status, predicted);
  };
  const auto layer = [](const char* name, const char* problem, const std::string& candidates) {
    return fmt::format(
        R"({{"layer": "{}", "problem": "{}", "verdict": "WIN", "candidates": [{}]}})", name,
        problem, candidates);
  };
  write_file(
      directory_ / "tune.json",
      fmt::format(R"({{"provenance": {{"clocks": "1980 MHz"}}, "layers": [{}, {}, {}], "totals": )"
                  R"({{"complete": true, "contest": {{"rows": 0}}}}}})",
                  layer("a", "mb1ic64ih6oc6kh3ph1",
                        candidate("direct", 1) + "," + candidate("winograd", 0.1, "failed") + "," +
                            candidate("cudnn.gemm", 2, "dropped")),
                  layer("b", "mb1ic64ih6oc6kh3ph1",
                        candidate("winograd", 1) + "," + candidate("cudnn.gemm", 8) + "," +
                            candidate("cudnn.fft", 0.5, "ok", true)),
                  layer("c", "mb1ic64ih6oc6kh1", candidate("direct", 3))));
  const Ran ran = run({"--only", "race"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  expect(report(), "- clocks while racing: 1980 MHz\n");
  expect(report(), "| 3x3 | 4.00 (2) | 4.00 (2) |");
  expect(report(), "| f32 a | 3x3 | 1.0000 | 5 | direct | 2.0000 | 5 | gemm | 2.00 |\n");
  expect(report(), "| f64 c | 1x1 | 3.0000 | 5 | direct | - | - | - | - |\n");
  expect(report(), "| class | f32 | tf32 | bf16 | f16 | f64 |\n");
  expect(report(), "\n- race bf16: winograd, a: failed\n");
  for (const char* const flags : {"f32", "f32 --max-error 5e-3", "bf16", "f16", "f64"})
    EXPECT_EQ(calls(fmt::format("--dtype {} --exclude cudnn.graph --device cuda --budget ", flags)),
              1)
        << flags;
}

TEST_F(GpuRunTest, SaysThatThereIsNoCudnnToCompareWith) {
  write_file(directory_ / "list.json", R"({"provenance": {}, "rows": [
    {"algo": "direct", "origin": "own", "3x3": "f", "types": "f32"}]})");
  write_file(directory_ / "tune.json",
             R"({"provenance": {}, "layers": [{"layer": "a", "problem": "mb1ic64ih6oc6kh3ph1",
                "verdict": "ONLY", "candidates": [{"algo": "direct", "config": "", "ms": 1,
                "eff_gflops": 1, "status": "ok", "predicted": false}]}],
                "totals": {"complete": true, "contest": {"rows": 0}}})");
  EXPECT_EQ(run({"--only", "race"}).exit_code, 0);
  expect(report(), "No layer was measured on both sides: there is no cuDNN; `convlab doctor` says");
}

// It runs again once the race knows its layers, whose roofs are then on the studies' page.
TEST_F(GpuRunTest, RoofsWaitForTheRace) {
  write_script("convlab", R"sh(#!/bin/sh
output=$(echo "$*" | sed -n 's/.*--output \([^ ]*\).*/\1/p')
cd "$(dirname "$0")"
case "$*" in
  list*) cat list.json ;;
  roofline*) [ -f told ] || { echo 'convlab: roofline: the store knows nothing of @layers.txt'; exit 2; }
    cat told >"$OLDPWD/$output" ;;
esac
)sh");
  EXPECT_EQ(run({"--only", "studies"}).exit_code, 1);
  EXPECT_EQ(outcomes().at("roofline-f32")["result"], "unfinished");
  EXPECT_EQ(outcomes().at("roofline-f32")["found"], "the race has measured nothing yet");
  const auto tell = [&](const char* note) {
    write_file(directory_ / "told", fmt::format(R"({{"notes": ["{}"], "points": [
      {{"layer": "a", "algo": "direct", "config": "k=8", "ms": 2, "attained_gflops": 9000,
        "percent_of_roof": 41.4, "limit": "memory", "headroom_ms": 1.2, "chosen": true}}]}})",
                                                note));
  };
  tell("1 of 2 layers and passes are not in the store: ...");
  EXPECT_EQ(run({"--only", "studies"}).exit_code, 1);
  EXPECT_EQ(outcomes().at("roofline-f32")["result"], "unfinished");
  tell("The chosen algorithms take 2 ms in all; 1.2 ms of it could be saved at their roofs.");
  run({"--only", "studies"});
  EXPECT_EQ(outcomes().at("roofline-f32")["result"], "passed");
  const std::string page = read_file(directory_ / "results" / "studies.md");
  expect(page, "## The raced layers under the card's roofs, f32\n");
  expect(page, "| a | direct k=8 | 2.0000 | 9 | 41 | memory | 1.2000 |\n");
}

#if defined(CONVLAB_PROGRAM_ON_CPU) && !CONVLAB_SANITIZED
TEST_F(GpuRunTest, GoesThroughItsStagesOnTheCpu) {
  const Ran ran = run({"--only", "check", "--only", "race", "--only", "nets", "--only", "studies",
                       "--minutes", "4"},
                      CONVLAB_PROGRAM_ON_CPU);
  // A busy machine may not finish a job. Nothing fails, and finished jobs are on the page.
  EXPECT_TRUE(ran.exit_code == 0 || ran.exit_code == 1) << ran.err;
  std::map<std::string, int> passed;
  for (const auto& [name, outcome] : outcomes()) {
    EXPECT_NE(outcome["result"], "failed") << outcome;
    passed[outcome["stage"]] += outcome["result"] == "passed";
  }
  EXPECT_GT(passed["check"], 0) << ran.err;
  expect(report(), fmt::format("| check | {} | 0 |", passed["check"]));
  expect(report(), fmt::format("| race | {} | 0 |", passed["race"]));
  std::vector<std::string> titles{"Training over batch sizes", "A perceptron, over streams",
                                  "Where a training step of lenet goes, and what to improve first"};
#if CONVLAB_HAVE_MICRO
  titles.emplace_back("Products of matrices");
#endif
  if (passed["studies"] < int(titles.size()) + 2) return;
  const std::string page = read_file(directory_ / "results" / "studies.md");
  for (const std::string& title : titles) expect(page, "\n## " + title + "\n");
  expect(page, "| copies from the host |");
  expect(page, "| pooling backward |");
  expect(page, "What to tune next");
  expect(page, "| cuda | f32 | 8 | 16 | 4 streams |");
}
#endif

}  // namespace
}  // namespace convlab
