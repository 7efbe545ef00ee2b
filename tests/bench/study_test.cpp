// bench/studies/study.py on runs with known times.
#include "tests/bench/study_test.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

namespace convlab {
namespace {

// Forward is 550'504'448 FLOPs by the model in study.py: 1024 x 256 x (42 + 4 x 514) + 1024 x 514.
TEST_F(StudyTest, MlpComparesBackendsByTheFlopModel) {
  std::string runs;
  for (const auto& [name, t_f] : {std::pair{"cpu f32 20-256x5-1 batch 1024 1 thread", 1.100508896},
                                  {"cpu f32 20-256x5-1 batch 1024 2 threads", 0.550504448},
                                  {"cuda f32 20-256x5-1 batch 1024 2 streams", 0.0550504448}})
    runs +=
        fmt::format(R"({{"name": "{}", "iteration": {{"t_f": {}, "t_b": 1e9, "t_u": 0}}, )"
                    R"("kinds": {{"linear fwd": 3, "tanh fwd": 1}}, "machine": {{"cpu": "some"}}}})"
                    "\n",
                    name, t_f);
  write_file(log(), runs);
  const std::string out = study("mlp --only none --device cuda");
  expect(out, "| cpu | f32 | 256 | 1024 | 2 threads | 1000 |");
  expect(out, "| cpu | f32 | 256 | 1024 | 1 thread | 500 |");
  expect(out, "| cuda | f32 | 256 | 1024 | 2 streams | 10000 |");
  expect(out, "| linear fwd | 75.0 |");
  expect(out, "cuda f32, 2 streams");
  expect(out, "- cpu: some\n");
  expect(out, "- command: bench/studies/study.py mlp --only none --device cuda --log " + log());
  expect_plot("mlp.svg", "cuda f32, 2 streams is fastest");
}

// In Google Benchmark's format: 10 GFLOP/s times the batch's columns, and half of that for TN.
std::string products(const char* whose, int size) {
  std::string cases;
  for (const int n : {1, 2, 4, 7, 8, 16, 31, 32, 48, 64, 96, 128, 192, 256})
    for (const char* const ops : {"NN", "TN", "NT"})
      cases += fmt::format(R"({{"name": "gemm/{}/f32/{}/{}x{}x{}/iterations:10/manual_time", )"
                           R"("best_GFLOPs": {}}}, )",
                           whose, ops, size, n, size, ops == std::string("TN") ? 5 * n : 10 * n);
  return cases;
}

// A card's products: 10 GFLOP/s times the batch's columns, and half of that for TN. The explicit
// transpose, 2^21 bytes at 1 GB/s, takes twenty times TN's product of one column, 2^19 FLOPs at 5
// GFLOP/s.
TEST_F(StudyTest, GemmOfACardStandsByItself) {
  write_file(directory_ / "told",
             fmt::format(R"({{"context": {{"gpu": "some", "isa": "sm_90", "threads": "2", )"
                         R"("cublas": "13", "date": "today"}}, "benchmarks": [{}{{"name": )"
                         R"("transpose/card/f32/512x512/iterations:10/manual_time", )"
                         R"("best_GBps": 1}}]}})",
                         products("cublas", 512)));
  const std::string program = directory_ / "card", calls = directory_ / "calls";
  write_file(program, fmt::format("#!/bin/sh\necho \"$@\" >>'{}'\ncat '{}'\n", calls,
                                  (directory_ / "told").string()));
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string out =
      study(fmt::format("gemm --device cuda --card-kernels '{}' --only 'card f32 512'", program));
  expect(read_file(calls), "--benchmark_filter=(gemm/.*/f32/.*/512x.*x512/|");
  expect(out, "## f32: GFLOP/s over N, M = K, NN: cuBLAS\n");
  expect(out, "| 31 | 310 |");
  expect(out, "| 1 | 0.50 | 1.00 | 20.00 | 0 of 1 |");
  expect(out, "| 7 to 8 | cuBLAS | 1.00 |");
  expect(out, "- gpu: some\n");
  expect(out, fmt::format("- command: bench/studies/study.py gemm --device cuda --card-kernels {} "
                          "--only 'card f32 512' --log {}",
                          program, log()));
  expect_plot("gemm-f32.svg", "cuBLAS is fastest in 14 of 14 products");
}

// The CPU's program has products from 512 on: its filter matches no smaller ones, and it then
// prints nothing. What was tried counts for no study.
TEST_F(StudyTest, GemmOfTheCpuCanBeTried) {
  write_file(
      directory_ / "told",
      fmt::format(R"({{"context": {{"cpu": "some", "date": "today"}}, "benchmarks": [{}{}]}})",
                  products("own", 512),
                  products("openblas", 512).substr(0, products("openblas", 512).size() - 2)));
  const std::string program = directory_ / "kernels";
  write_script(program,
               fmt::format("case \"$*\" in *f32*/512x*--benchmark_min_time=0.001) cat '{}';; "
                           "*) echo 'Failed to match any benchmarks' >&2;; esac\n",
                           (directory_ / "told").string()));
  const Words arguments{"gemm", "--log", log(), "--kernels", program, "--small"};
  const Ran ran = run(arguments);
  EXPECT_EQ(ran.exit_code, 1);
  expect(ran.out, "## f32: GFLOP/s over N, M = K, NN: own, OpenBLAS\n");
  expect(ran.out, "| 31 | 310, 310 |");
  EXPECT_TRUE(
      ran.err.ends_with("\nstudy.py: failed: small f64 512: printed no JSON: Failed to match any "
                        "benchmarks\n"))
      << ran.err;
  EXPECT_EQ(lines(ran.err), 4) << ran.err;
  EXPECT_EQ(study("gemm --only none"), "");
}

TEST_F(StudyTest, BatchMakesEachRunOnceAndSharesItsTime) {
  write_file(directory_ / "told", R"({"steps": [
      {"layer": "conv1", "kind": "conv",
       "phases": {"fwd": {"ms": 1, "algo": "direct", "eff_gflops": 8}}},
      {"layer": "pool", "kind": "pooling", "phases": {"bwd_d": {"ms": 1}}}],
    "iteration": {"ms": 4, "images_per_s": 1000, "t_f": 1, "t_b": 1, "t_u": 0, "t_h2d": 2},
    "memory": {"total": 1048576}, "provenance": {"cpu": "some", "date": "today"}})");
  const std::string program = directory_ / "convlab", calls = directory_ / "calls";
  write_file(program, fmt::format("#!/bin/sh\necho \"$@\" >>'{}'\ncat '{}'\n", calls,
                                  (directory_ / "told").string()));
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string arguments = fmt::format("batch --convlab '{}' --only alexnet", program);
  const std::string out = study(arguments);
  expect(out, "| copies from the host | 50.0 | 50.0 | 50.0 | 50.0 | 50.0 |");
  expect(out, "| direct fwd | 25.0 |");
  expect(out, "| pooling backward | 25.0 |");
  expect(out, "| everything else | 0.0 |");
  expect(out, "| conv1 | direct |");
  expect_plot("batch-alexnet.svg", "copies from the host takes up to 50% of a training step");
  // An algorithm has the program's colour.
  expect_plot("batch-alexnet.svg", "rgb(101,  86, 171)");
  EXPECT_EQ(study(arguments), out);
  const std::string called = read_file(calls);
  EXPECT_EQ(std::count(called.begin(), called.end(), '\n'), 5) << called;
}

// Alexnet's batch 8 fails, and the log ends in half a line.
TEST_F(StudyTest, ARunThatFailsCostsItself) {
  write_file(directory_ / "told", R"({"steps": [], "memory": {"total": 1048576},
    "iteration": {"ms": 4, "images_per_s": 1000, "t_f": 1, "t_b": 1, "t_u": 0, "t_h2d": 2},
    "provenance": {"cpu": "some", "date": "today"}})");
  const std::string program = directory_ / "convlab", calls = directory_ / "calls";
  write_file(program, fmt::format("#!/bin/sh\necho \"$@\" >>'{}'\n"
                                  "case \"$*\" in *'--batch 8 '*) echo 'no memory' >&2; exit 3;; "
                                  "esac\ncat '{}'\n",
                                  calls, (directory_ / "told").string()));
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  write_file(log(), R"({"name": "alexnet 4", "iter)");
  const auto run = [&] {
    return std::system(fmt::format("python3 '{}' batch --convlab '{}' --only alexnet --log '{}' "
                                   "--output '{}' 2>'{}'",
                                   CONVLAB_STUDY, program, log(), (directory_ / "page.md").string(),
                                   (directory_ / "err").string())
                           .c_str());
  };
  EXPECT_EQ(WEXITSTATUS(run()), 1);
  expect(read_file(directory_ / "err"), "study.py: failed: alexnet 8: exit 3: no memory\n");
  expect(read_file(directory_ / "page.md"), "| part | batch 4 | batch 16 | batch 32 | batch 64 |");
  EXPECT_EQ(WEXITSTATUS(run()), 1);
  const std::string called = read_file(calls);
  EXPECT_EQ(std::count(called.begin(), called.end(), '\n'), 6) << called;  // batch 8 twice
}

TEST_F(StudyTest, WhatIsNotThereIsOneLine) {
  for (const auto& [words, says] :
       {std::pair<Words, std::string>{{"--only", "alexnet 4", "--convlab", "/nowhere/convlab"},
                                      "/nowhere/convlab: No such file or directory\n"},
        {{"--only", "none", "--output", "/nowhere/page.md"},
         "--output /nowhere/page.md: cannot be written\n"}}) {
    const Ran ran =
        Program(directory_, Words{"python3", CONVLAB_STUDY, "batch", "--log", log()} + words, {},
                "/usr/bin/env")
            .wait();
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    EXPECT_TRUE(ran.err.ends_with("study.py: " + says)) << ran.err;
  }
}

// A tree without a build, and then with the one that tests/run makes.
TEST_F(StudyTest, ProgramsAreThoseOfABuildThatIsThere) {
  const std::filesystem::path from =
                                  std::filesystem::path(CONVLAB_STUDY).parent_path().parent_path(),
                              to = directory_ / "bench", build = directory_ / "build-release/bench";
  std::filesystem::create_directories(to / "reports");
  std::filesystem::create_directories(build);
  std::filesystem::copy(from / "studies", to / "studies");
  std::filesystem::copy(from / "reports/algo_marks.json", to / "reports/algo_marks.json");
  const Words arguments{"batch", "--log", log(), "--only", "alexnet 4"};
  const Ran none = run(arguments, {}, to / "studies/study.py");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.err, fmt::format("study.py: there is no {}: build it, or name it by --convlab\n",
                                  (directory_ / "build/bench/convlab").string()));
  write_script(build / "convlab", "echo it was asked >&2; exit 3\n");
  const Ran there = run(arguments, {}, to / "studies/study.py");
  EXPECT_EQ(there.exit_code, 1);
  expect(there.err, "alexnet 4: exit 3: it was asked\n");
}

TEST_F(StudyTest, BadUsageIsOneLine) {
  const std::string number = "expected a whole number, ", above_0 = "expected a number above 0";
  for (const auto& [words, says] :
       {std::pair<Words, std::string>{{"network", "--ranks", "-1"},
                                      "'-1': " + number + "2 to 999999"},
        {{"network", "--ranks", "1000000"}, "'1000000': " + number + "2 to 999999"},
        {{"network", "--ranks", "1"}, "'1': " + number + "2 to 999999"},
        {{"network", "--latencies", "0,-5"}, "'-5': " + number + "0 to 999999"},
        {{"verdicts", "--runs", "0"}, "'0': " + number + "1 to 999999"},
        {{"survey", "--batches", "16,0"}, "'0': " + number + "1 to 999999"},
        {{"layers", "--minutes", "-1"}, "'-1': " + above_0},
        {{"layers", "--minutes", "nan"}, "'nan': " + above_0},
        {{"gemm", "--min-time", "0"}, "'0': " + above_0},
        {{"mlp", "--device", "foo"}, "'foo': expected cpu, cuda or cuda:i"},
        {{"gemm", "--device", "cuda:1"}, "gemm --device cuda:1: expected cpu, or cuda"},
        {{"rnn", "--device", "cuda"}, "rnn --device cuda: expected cpu"},
        {{"rnn", "--steps", "0"}, "'0': " + number + "1 to 999999"},
        {{"rnn", "--hidden", "512,x"}, "'x': " + number + "1 to 999999"},
        {{"layers", "--small"},
         "layers takes no --small: expected one of batch, gemm, mlp, rnn, network, compression"},
        {{"report", "--small"}, "report takes no --small"},
        {{"gem"}, "invalid choice: 'gem'"},
        {{"mlp", "--foo"}, "unrecognized arguments: --foo"}}) {
    const Ran ran = run(words + Words{"--log", log()});
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    EXPECT_TRUE(ran.err.starts_with("study.py: ")) << ran.err;
    EXPECT_TRUE(ran.err.ends_with("; --help says more\n")) << ran.err;
    EXPECT_EQ(lines(ran.err), 1) << ran.err;
    expect(ran.err, says);
  }
  EXPECT_FALSE(std::filesystem::exists(log()));
}

// Neither a file of another kind, nor the log of another study, is appended to.
TEST_F(StudyTest, WhatIsNoLogOfTheStudyIsLeftAlone) {
  const std::string file = directory_ / "x.hpp";
  for (const char* const text :
       {"#pragma once\nint x;", R"({"name": "f32 512", "best": {}, "machine": {}})",
        R"({"name": ["alexnet 4"], "iteration": {}, "machine": {}})",
        R"({"name": "alexnet 4", "iteration": {}, "machine": 1})", "[1]\n"}) {
    write_file(file, text);
    const Ran ran = run({"batch", "--log", file, "--only", "none"});
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_EQ(ran.err, fmt::format("study.py: {} is no log of this study\n", file));
    EXPECT_EQ(read_file(file), text);
  }
}

// Whatever goes wrong, the page of an earlier run is not lost, and the log is no page.
TEST_F(StudyTest, AFailureKeepsThePageThatWasThere) {
  const std::string page = directory_ / "page.md";
  write_file(page, "earlier\n");
  const Ran lost =
      run({"report", "--log", directory_ / "none", "--only", "none", "--output", page});
  EXPECT_EQ(lost.exit_code, 2);
  expect(lost.err, "there are no runs");
  EXPECT_EQ(read_file(page), "earlier\n");
  write_file(log(), "");
  const Ran same = run({"batch", "--log", log(), "--only", "none", "--output", log()});
  EXPECT_EQ(same.exit_code, 2);
  expect(same.err, "is the log as well");
  const Ran words = run({"batch", "--log", log(), "--only", "none", "--options", "'"});
  EXPECT_EQ(words.exit_code, 2);
  expect(words.err, "--options: \"'\": No closing quotation");
}

// The page is of the runs so far.
TEST_F(StudyTest, ASignalEndsTheRunAndPrintsThePage) {
  write_file(directory_ / "told", R"({"steps": [], "memory": {"total": 1048576},
    "iteration": {"ms": 4, "images_per_s": 1000, "t_f": 1, "t_b": 1, "t_u": 0, "t_h2d": 2},
    "provenance": {"cpu": "some", "date": "today"}})");
  const std::string program = directory_ / "convlab";
  write_file(program,
             fmt::format("#!/bin/sh\ncase \"$*\" in *'--batch 8 '*) echo $$ >'{}'; exec sleep "
                         "100;; esac\ncat '{}'\n",
                         (directory_ / "pid").string(), (directory_ / "told").string()));
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  Program study(directory_,
                {"python3", CONVLAB_STUDY, "batch", "--convlab", program, "--log", log()}, {},
                "/usr/bin/env");
  study.wait_until_said("alexnet 8");
  while (read_file(directory_ / "pid").empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  study.signal_group(SIGTERM);
  const Ran ran = study.wait();
  EXPECT_EQ(ran.exit_code, 143) << ran.err;
  expect(ran.out, "| part | batch 4 |\n");
  EXPECT_FALSE(contains(ran.err, "alexnet 16")) << ran.err;
}

// In the format of `layers`, with times of ms, slightly less, and much more.
std::string candidate(const char* algo, const char* config, double ms, double pack_ms,
                      double executed_share, const char* error = "2.5e-7") {
  return fmt::format(R"({{"algo": "{}", "layouts": "a>b", "config": "{}", "ms": [{}, {}, 99], )"
                     R"("pack_ms": {}, "rel_error": {}, "workspace_bytes": 1048576, )"
                     R"("packed_filter_bytes": 0, "direct_GFLOP": 0.1, "eff_over_exec": {}}})",
                     algo, config, ms, ms - 0.1, pack_ms, error, executed_share);
}

// Counting packing makes another of our candidates the best; the fastest has too large an error.
TEST_F(StudyTest, LayersComparesTheBestOwnWithOneDnn) {
  const std::string run = R"({"name": "3x3/2: ResNet layer2.0 fwd, round 1, program 1", )"
                          R"("onednn": "2.6.3", "machine": {"cpu": "some"}, )";
  write_file(log(), run + R"("peak": 200, "candidates": [)" +
                        candidate("winograd", "tile=4", 1, 3, 2) + ", " +
                        candidate("winograd", "tile=7", 0.5, 0, 2, "1.1e-5") + ", " +
                        candidate("direct", "depth=8", 2, 0, 1) + ", " +
                        candidate("onednn.direct", "", 3, 1, 1, "2e-5") + "]}\n");
  const std::string one_thread = directory_ / "one_thread";
  write_file(one_thread, run + R"("peak": 100, "candidates": [)" +
                             candidate("direct", "depth=8", 1.9, 0, 1) + "]}\n");
  const std::string out = study(fmt::format("layers --only none --beside '{}'", one_thread));
  expect(out, "| ResNet layer2.0 fwd | winograd tile=4 | 1.00 | 100 | 25 | 3.00 | 2.00 | 17 |");
  expect(out, "| 3x3/2 | 1 of 3 | oneDNN's direct | 3.00 (2.00) |");
  expect(out, "\nIncomplete: 1 of 159 layers and passes were measured.\n");
  expect(out, "| winograd tile=4, 3x3/2 | 2.5e-07 |");
  expect(out, "| winograd tile=7, 3x3/2 | 1.1e-05 |");
  expect(out, "relative error\nis at most 1e-05");
  expect(out, "- ResNet layer2.0 fwd onednn.direct: 2.0e-05\n");
  expect(out, "- peak, measured before each layer: 200 GFLOP/s");
  expect(out,
         "Times in one_thread over these, each with its own best algorithm; the peak there is "
         "0.50 of this one:");
  expect(out, "| ResNet layer2.0 | 1.90 |  |  |");
  expect_plot("layers-fwd.svg", "faster than oneDNN's direct in 1 of 1 layers");
}

// The machine is slower while the newer version runs. Relative to our own times the newer version
// is faster.
TEST_F(StudyTest, LayersTakesRatiosWithinAProcess) {
  const auto run = [](int program, const char* onednn, double own, double peer) {
    return fmt::format(R"({{"name": "1x1: 64 to 256 fwd, round 1, program {}", "onednn": "{}", )"
                       R"("machine": {{"cpu": "some"}}, "peak": 200, "candidates": [{}, {}]}})"
                       "\n",
                       program, onednn, candidate("direct", "", own, 0, 1),
                       candidate("onednn.direct", "", peer, 0, 1));
  };
  write_file(log(), run(1, "2.6.3", 1, 3) + run(2, "3.14.0", 4, 8));
  const std::string out = study("layers --only none");
  expect(out, "| 1x1 | 1 of 3 | oneDNN's direct | 2.00 (2.00) |");
  expect(out, "- oneDNN: 2.6.3, 3.14.0\n");
}

// A layer of each kind.
TEST_F(StudyTest, LayersHasAClassForEachKindOfConvolution) {
  std::string runs;
  double own = 1;
  for (const char* const layer :
       {"depthwise 3x3 to 7x7: MobileNetV2 features.1",
        "depthwise 13x13 to 31x31: RepLKNet-31B stage 1, 31x31", "grouped: ResNeXt-50 layer1",
        "dilated: DeepLabV3 ASPP, by 12", "transposed: U-Net up2, 2x2/2", "3-D: C3D conv3b",
        "1-D: Whisper-base conv2, /2", "diffusion: SD U-Net 64x64"})
    runs += fmt::format(R"({{"name": "{} bwd_w, round 1, program 1", "onednn": "2.6.3", )"
                        R"("machine": {{"cpu": "some"}}, "peak": 200, "candidates": [{}, {}]}})"
                        "\n",
                        layer, candidate("direct", "", own += 1, 0, 1),
                        candidate("onednn.direct", "", 18, 0, 1));
  write_file(log(), runs);
  const std::string out = study("layers --only none");
  expect(out, "| depthwise 3x3 to 7x7 | 1 of 5 | oneDNN's direct |  |  | 9.00 (9.00) |");
  expect(out, "| grouped | 1 of 3 | oneDNN's direct |  |  | 4.50 (4.50) |");
  expect(out, "| 3-D | 1 of 3 | oneDNN's direct |  |  | 2.57 (2.57) |");
  expect(out, "| diffusion | 1 of 4 | oneDNN's direct |  |  | 2.00 (2.00) |");
  expect_plot("layers-kinds-bwd_w.svg", "faster than oneDNN's direct in 8 of 8 layers");
}

// One of two layers, which the net has twice, is behind.
TEST_F(StudyTest, SurveyFindsTheLayersThatAreBehind) {
  const auto race = [](const char* layer, int count, double own, double onednn) {
    return fmt::format(R"({{"layer": "{}", "pass": "fwd", "count": {}, "own": {{"algo": "direct", )"
                       R"("config": "", "ms": {}}}, "onednn": {{"algo": "onednn.direct", )"
                       R"("config": "", "ms": {}}}}})",
                       layer, count, own, onednn);
  };
  write_file(log(), R"({"name": "some batch 1", "machine": {"cpu": "some"}, "races": [)" +
                        race("conv1", 1, 1, 4) + ", " + race("conv2", 2, 2, 1) + "]}\n");
  const std::string out = study("survey --only none");
  expect(out, "| some batch 1 | fwd | 2 | 1 | 0 | 1 | 1.41 | 1.20 |");
  expect(out, "| some batch 1: conv2 fwd | direct  | 2.000 | 0.50 |");
}

// In the format of `verdicts`: one row, in which candidates a and b took these times.
std::string tuned(const std::string& name, const char* verdict, const char* chosen, double a,
                  double b, const char* a_status = "ok") {
  return fmt::format(
      R"({{"name": "{}", "seconds": 3, "machine": {{"cpu": "some"}}, "rows": [)"
      R"({{"row": "conv fwd", "count": 2, "verdict": "{}", "chosen": "{}", )"
      R"("times": {{"a nchw>nchw": [{}, 0, "{}"], "b nchw>nchw": [{}, 0, "ok"]}}}}]}})"
      "\n",
      name, verdict, chosen, a, a_status, b);
}

// Two of the quiet runs drop the best candidate, and the others contradict their WIN. Among the
// noisy rows one is UNSURE and does not count, one has a time that is 20% off, and one has the
// wrong choice.
TEST_F(StudyTest, VerdictsJudgesByThePooledQuietTimes) {
  const char *const a = "a nchw>nchw", *const b = "b nchw>nchw";
  std::string runs;
  for (const int run : {1, 2})
    runs += tuned(fmt::format("quiet, some, run {}", run), "WIN", a, 1, 1.1);
  for (const int run : {3, 4})
    runs += tuned(fmt::format("quiet, some, run {}", run), "WIN", b, 2, 1.1, "dropped");
  runs += tuned("bursts, some, run 1", "UNSURE", b, 4, 3);
  runs += tuned("bursts, some, run 2", "WIN", a, 1.2, 1.4);
  runs += tuned("bursts, some, run 3", "TIE", b, 1.12, 1.1);
  write_file(log(), runs);
  const std::string out = study("verdicts --only none");
  expect(out, "| quiet | 4 | 0.0 | 50.0 |  | 50.0 (50.0) | 100.0 | 4.8 | 3.0 |");
  expect(out, "| bursts | 3 | 33.3 | 0.0 |  | 50.0 (50.0) | 50.0 | 14.3 | 3.0 |");
  expect(out, "- quiet: UNSURE in at most 5%: 0.0%, of 4 rows: holds\n");
  expect(out, "- quiet: WIN contradicted by over 1% in at most 1%: 50.0%, of 4 rows: FAILS\n");
  expect(out, "- bursts: times within 5% in at least 99%: 50.0%, of 3 rows: FAILS\n");
  expect(study(fmt::format("verdicts --only none --beside '{}'", log())),
         "- quiet: at most 2.5 times the seconds of log: 1.00: holds\n");
}

// With equally fast twins, a WIN of one over the other is false. With a slowed twin a WIN is true,
// and a TIE misses it. The row of the other problem does not count, because another config is
// nearer than the twin.
TEST_F(StudyTest, VerdictsOfTwins) {
  const auto run = [](const char* name, const char* row, const char* verdict, double other) {
    return fmt::format(R"({{"name": "{}", "seconds": 3, "machine": {{"cpu": "some"}}, "rows": [)"
                       R"({{"row": "{}", "count": 1, "verdict": "{}", "chosen": "a x>y tile=2", )"
                       R"("times": {{"a x>y tile=2": [1, 0, "ok"], "a.twin x>y tile=2": )"
                       R"([1.05, 0, "ok"], "a x>y tile=4": [{}, 0, "ok"]}}}}]}})"
                       "\n",
                       name, row, verdict, other);
  };
  write_file(log(), run("A/A, some, run 1", "conv fwd", "WIN", 2) +
                        run("A/A, some, run 2", "conv fwd", "UNSURE", 2) +
                        run("+5%, some, run 1", "conv fwd", "WIN", 2) +
                        run("+5%, some, run 2", "conv fwd", "TIE", 2) +
                        run("+5%, some, run 3", "conv bwd_d", "TIE", 1.02));
  const std::string out = study("verdicts --only none");
  expect(out, "| A/A | 2 | 50.0 | 50.0 |  |  |  |  | 3.0 |");
  expect(out, "| +5% | 2 | 0.0 | 0.0 | 50.0 |  |  |  | 3.0 |");
  expect(out, "- A/A: WIN in less than 1%: 50.0%, of 2 rows: FAILS\n");
}

// Output of `convlab tune`: `a` beats b without its packing and loses with it. Packing counts only
// if the pass reads filters.
class VerdictsProgramTest : public StudyTest {
 protected:
  void SetUp() override {
    StudyTest::SetUp();
    write_file(program_,
               "#!/bin/sh\necho \"$CONVLAB_TWIN $@\" >>'" + calls_ + "'\ncat '" + told_ + "'\n");
    std::filesystem::permissions(program_, std::filesystem::perms::owner_all);
  }
  void tell(const std::string& twin) const {
    std::string layers;
    for (const char* const pass : {"fwd", "bwd_w"})
      layers += fmt::format(
          R"({}{{"problem": "conv", "pass": "{}", "count": 1, "verdict": "WIN",
             "chosen": {{"algo": "b", "layouts": ["x", "y"], "config": ""}}, "candidates": [
             {{"algo": "{}", "layouts": ["x", "y"], "config": "", "ms": 1, "pack_ms": 1,
               "rel_error": 1e-7, "status": "ok"}},
             {{"algo": "b", "layouts": ["x", "y"], "config": "", "ms": 1.5, "pack_ms": 0,
               "rel_error": 1e-7, "status": "ok"}},
             {{"algo": "c", "layouts": ["x", "y"], "config": "", "ms": 0, "pack_ms": 0,
               "rel_error": 0, "status": "refused"}},
             {{"algo": "d", "layouts": ["x", "y"], "config": "", "ms": 0.1, "pack_ms": 0,
               "rel_error": 0, "status": "dropped", "reason": "predicted, not run"}}]}})",
          layers.empty() ? "" : ", ", pass, twin);
    write_file(told_,
               R"({"provenance": {"cpu": "some", "date": "today"}, "layers": [)" + layers + "]}");
  }
  int calls() const {
    const std::string called = read_file(calls_);
    return static_cast<int>(std::count(called.begin(), called.end(), '\n'));
  }
  std::string program_ = directory_ / "convlab", calls_ = directory_ / "calls",
              told_ = directory_ / "told";
};

TEST_F(VerdictsProgramTest, GoesOnWhereItWasCutOff) {
  tell("direct.twin");
  const std::string arguments =
      fmt::format("verdicts --convlab '{}' --runs 2 --targets some --noise steady", program_);
  expect(study(arguments + " --only '^quiet, some, run 1'"), "| quiet | 2 | 0.0 | 50.0 |");
  EXPECT_EQ(calls(), 1);
  const std::string out = study(arguments);
  expect(out, "| steady | 4 | 0.0 | 50.0 |");
  EXPECT_EQ(calls(), 8);
  EXPECT_EQ(study(arguments), out);
  EXPECT_EQ(calls(), 8);
  const std::string called = read_file(calls_);
  expect(called, "direct tune some --fresh --db ");
  expect(called, "direct:1.05 tune some --fresh --db ");
  expect(called, "--algos direct\n");
  expect(read_file(log()), R"("command": "CONVLAB_TWIN=direct:1.05 convlab tune some)");
}

TEST_F(VerdictsProgramTest, TriesTwinsOnceWhereTheBuildHasNone) {
  tell("direct");
  const std::string arguments =
      fmt::format("verdicts --convlab '{}' --runs 3 --targets some --noise none", program_);
  study(arguments);
  EXPECT_EQ(calls(), 5);
  study(arguments);
  EXPECT_EQ(calls(), 5);
  expect(read_file(directory_ / "err"), "A/A: skipped: no candidate is named direct.twin");
}

// Ceilings and a perceptron, both of commit "abc"; then one of another commit.
TEST_F(StudyTest, ReportIsOnePageOfOneCommit) {
  plots_.clear();
  const std::string machine =
      R"("machine": {"cpu": "some", "isa": "avx2", "commit": "abc"}, "date": "today")";
  std::filesystem::create_directories(log());
  write_file(
      log() + "/ceilings.jsonl",
      R"({"name": "ceilings", "roofs": [{"isa": "avx2", "level": "registers", "what": "f32",)"
      R"( "threads": 2, "G/s": 96, "unit": "GFLOP/s", "noise_%": 1}], )" +
          machine + "}\n");
  const auto write_mlp = [&](const std::string& of) {
    write_file(log() + "/mlp.jsonl",
               R"({"name": "cpu f32 20-256x5-1 batch 1024 2 threads", )"
               R"("iteration": {"t_f": 1, "t_b": 1, "t_u": 0}, "kinds": {"tanh fwd": 1}, )" +
                   of + "}\n");
  };
  write_mlp(machine);
  const std::string out = study("report --only none --sections ceilings,mlp");
  expect(out, "# some, avx2\n");
  expect(out, "    bench/studies/study.py report --only none --sections ceilings,mlp --log " +
                  log() + "\n");
  expect(out, "| commit | abc |\n");
  expect(out, "| registers f32, GFLOP/s | 96.0 (1) |\n");
  expect(out, "\n## A perceptron\n\nGFLOP/s by the FLOP model");

  write_mlp(R"("machine": {"commit": "def"}, "date": "tomorrow")");
  EXPECT_NE(std::system(fmt::format("python3 '{}' report --only none --log '{}' 2>'{}'",
                                    CONVLAB_STUDY, log(), (directory_ / "err").string())
                            .c_str()),
            0);
  expect(read_file(directory_ / "err"), "has runs of commits abc, def: a page is of one");
}

// Predictions of 9 and 12 ms for measured 10, and of 8 for 10: off by 10, 20 and 20%.
TEST_F(StudyTest, NetworkPutsPredictionsBesideWhatWasMeasured) {
  const auto point = [](const char* exchange, double ms, double hidden, double measured_hidden) {
    return fmt::format(
        R"({{"exchange": "{}", "ms": {}, "hidden": {}, "exchange_ms": 4, "exposed_ms": 1, )"
        R"("measured": {{"ms": 10, "ratio": {}, "exchange_ms": 5, "exposed_ms": 2, "hidden": {}}}}})",
        exchange, ms, hidden, ms / 10, measured_hidden);
  };
  write_file(log(),
             fmt::format(R"({{"name": "lenet batch 16 2 ranks 100Mbit", "link": )"
                         R"({{"latency_s": 5e-5, "bytes_per_s": 1.25e7}}, "points": [{}, {}, )"
                         R"({}], "machine": {{"cpu": "some"}}}})"
                         "\n",
                         point("overlapped", 9, 0.75, 0.5), point("after", 12, 0, 0),
                         point("server", 8, 0.25, 0.2)));
  const std::string out = study("network --small --only none");
  expect(out,
         "| lenet batch 16 2 ranks 100Mbit | 50 us, 0.10 Gbit/s | overlapped | 9.0 | 10.0 | 0.90 | "
         "4.0 | 5.0 | 75% | 50% |\n");
  expect(out, "off by 20% in the median of 3, by 20% at most");
  expect(out, "| overlapped | 1 | 75% | 50% |");
  expect(out, "- command: bench/studies/study.py network --small --only none --log " + log());
  // Of other cases' runs, such as those of a case that failed, the page says nothing.
  EXPECT_EQ(study("network --small --only none --ranks 3"), "## Training over a network\n\n");
}

TEST_F(StudyTest, NetworkRefusesWhatIsNoRateAndNoNet) {
  for (const char* const flag :
       {"--rates 100", "--rates 0Gbit", "--nets lenet", "--nets lenet:0"}) {
    const std::string err = directory_ / "err";
    EXPECT_NE(std::system(fmt::format("python3 '{}' network --log '{}' {} 2>'{}'", CONVLAB_STUDY,
                                      log(), flag, err)
                              .c_str()),
              0);
    expect(read_file(err), "expected a ");
  }
}

// Each case would fail by itself, in namespaces.
TEST_F(StudyTest, NetworkLooksForTheProgramAndItsNetsFirst) {
  const std::string program = directory_ / "convlab";
  for (const char* const tool : {"ip", "tc", "mpirun"})
    write_script(directory_ / tool,
                 fmt::format("echo \"$0 $*\" >>'{}'\nexit 1\n", (directory_ / "calls").string()));
  const auto refused = [&] {
    const Ran ran =
        run({"network", "--log", log(), "--convlab", program, "--nets", "lenet:4,foo:4"},
            {{"PATH", directory_.path().string() + ":" + std::getenv("PATH")}});
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_EQ(ran.out, "");
    return ran.err;
  };
  EXPECT_EQ(refused(), "study.py: " + program + ": No such file or directory\n");
  write_script(program,
               "case \"$*\" in 'list foo') echo \"convlab: unknown net 'foo'\" >&2; exit 2;; "
               "esac\n");
  EXPECT_EQ(refused(), "study.py: unknown net 'foo'\n");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "calls")) << read_file(directory_ / "calls");
}

// Two nets by two seeds and epochs. The second seed ends 0.2 above the first, bf16 0.02. mpirun is
// a script.
TEST_F(StudyTest, CompressionPutsLossesSideBySide) {
  const std::string calls = directory_ / "calls", program = directory_ / "convlab";
  write_script(program, "echo '{\"provenance\": {\"cpu\": \"some\", \"date\": \"today\"}}'\n");
  write_script(directory_ / "mpirun",
               fmt::format("echo \"$*\" >>'{}'\n", calls) +
                   "case \"$*\" in *'--seed 1 '*bf16*) last=2.02;; *bf16*) last=2.22;;\n"
                   "*'--seed 1 '*) last=2.00;; *) last=2.20;; esac\n"
                   "echo epoch,rate,loss,test_loss,test_top1,t_comm_s\n"
                   "echo 1,0.1,3.5,4.5,0.25,\necho 2,0.1,$last,2.5,0.75,\n"
                   "echo 'top-1 75.00%, top-5 99.00%, loss 2.5000 on 128 test images'\n");
  const std::map<std::string, std::string> path{
      {"PATH", directory_.path().string() + ":" + std::getenv("PATH")}};
  const auto ran = [&](const std::string& nets) {
    return run({"compression", "--log", log(), "--convlab", program, "--small", "--nets", nets},
               path);
  };
  const Ran first = ran("lenet:8,resnet20:4");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  expect(first.out,
         "### lenet batch 8 2 ranks, 2 epochs of 640, mean of 2 seeds\n\n| epoch | loss f32 | loss "
         "bf16 |");
  expect(first.out,
         "| 1 | 3.5000 | 3.5000 | 4.5000 | 4.5000 |\n"
         "| 2 | 2.1000 | 2.1200 | 2.5000 | 2.5000 |\n");
  expect(first.out,
         "| lenet batch 8 2 ranks, 2 epochs of 640 | f32 | 2.1000 | 2.0000 to 2.2000 | 2.5000 |"
         " 2.5000 to 2.5000 | 75.0% |\n"
         "| lenet batch 8 2 ranks, 2 epochs of 640 | bf16 | 2.1200 | 2.0200 to 2.2200 |");
  expect(first.out, "| resnet20 batch 4 2 ranks, 2 epochs of 640 | bf16 |");
  expect(first.out, "- cpu: some\n");
  EXPECT_EQ(lines(read_file(calls)), 8);
  expect(read_file(calls), "-n 2 " + program + " train lenet --batch 16 --data synthetic:640 ");
  EXPECT_EQ(occurrences(read_file(calls), "--compress bf16"), 4);
  EXPECT_EQ(ran("lenet:8,resnet20:4").out, first.out);
  EXPECT_EQ(lines(read_file(calls)), 8);

  write_script(directory_ / "mpirun", "echo something\n");
  const Ran bad = ran("vgg11:2");
  EXPECT_EQ(bad.exit_code, 1);
  expect(bad.err,
         "failed: vgg11 batch 2 2 ranks, 2 epochs of 640 f32 seed 1: printed no log: something; ");
}

// Ranks that would wait for ever: a signal ends them, and nothing of their network stays.
TEST_F(StudyTest, NetworkIsTornDownWhenItIsStopped) {
  const std::string folder = std::filesystem::path(CONVLAB_STUDY).parent_path();
  if (std::system(fmt::format("cd '{}' && python3 -Bc 'import namespaces, sys; "
                              "sys.exit(bool(namespaces.missing()))'",
                              folder)
                      .c_str()) != 0)
    GTEST_SKIP() << "no network namespaces, or no mpirun, here";
  const std::string program = directory_ / "ranks", began = directory_ / "began";
  write_script(program, fmt::format("[ $1 = list ] || {{ touch '{}'; sleep 600; }}\n", began));
  const std::string script = fmt::format(
      "python3 '{}' network --small --log '{}' --convlab '{}' >'{}' 2>&1 &\n"
      "study=$!\nwhile kill -0 $study 2>/dev/null && ! [ -e '{}' ]; do sleep 0.1; done\n"
      "kill -TERM $study\nwait $study\n[ $? = 143 ] && ! ip netns list | grep convlab-",
      CONVLAB_STUDY, log(), program, (directory_ / "out").string(), began);
  write_file(directory_ / "script", script);
  EXPECT_EQ(std::system(fmt::format("sh '{}'", (directory_ / "script").string()).c_str()), 0)
      << read_file(directory_ / "out");
}

// The pipe closes when the last program that can write to it has ended: the noise and its burners.
// Their parent was killed and could not stop them.
TEST_F(StudyTest, NoiseEndsWithItsParent) {
  const std::string folder = std::filesystem::path(CONVLAB_STUDY).parent_path();
  for (const char* const kind : {"bursts", "four-way", "sigstop"}) {
    const std::string script = fmt::format(
        "import os, signal, sys; sys.dont_write_bytecode = True; sys.path.insert(0, '{}'); "
        "import verdicts\n"
        "with verdicts.noise('{}', 1) as there:\n"
        "  if there: print('noise', file=sys.stderr, flush=True)\n"
        "  os.kill(os.getpid(), signal.SIGKILL)\n",
        folder, kind);
    write_file(directory_ / "script.py", script);
    const std::string out = directory_ / "out";
    const std::string command = fmt::format("python3 '{}' 2>&1 >/dev/null | timeout 120 cat >'{}'",
                                            (directory_ / "script.py").string(), out);
    EXPECT_EQ(std::system(command.c_str()), 0) << kind << " goes on";
    EXPECT_EQ(read_file(out), "noise\n");
  }
}

}  // namespace
}  // namespace convlab
