// `--device cuda` end to end without a card: the program and its workers run with kernels executed
// on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "autotune/store/store.h"
#include "tests/bench/program/run_program.h"

#ifdef CONVLAB_PROGRAM_ON_CPU

namespace convlab {
namespace {

using nlohmann::json;

constexpr const char* tiny = "mb1ic4ih6oc6oh6kh3ph1";

class CudaProgramTest : public testing::Test {
 protected:
  Ran run(Words arguments, const Words& more = {}) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Program(directory_, arguments, {}, CONVLAB_PROGRAM_ON_CPU).wait();
  }
  Ran run_on_card(const std::string& card, const Words& arguments) {
    return Program(directory_, arguments, {{"CONVLAB_CARD", card}}, CONVLAB_PROGRAM_ON_CPU).wait();
  }
  TemporaryDirectory directory_;
};

json rows_of(const std::string& text) { return json::parse(text).at("rows"); }

TEST_F(CudaProgramTest, ListNamesItsAlgorithmsAndNoOthers) {
  const Ran ran = run({"list", "--device", "cuda", "--format", "json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  std::set<std::string> ids;
  for (const json& row : rows_of(ran.out)) ids.insert(row["algo"]);
  EXPECT_TRUE(ids.contains("direct")) << ran.out;
  EXPECT_FALSE(ids.contains("onednn.direct")) << ran.out;
}

TEST_F(CudaProgramTest, CheckTriesTheLayoutsOfACard) {
  const Ran ran = run({"check", tiny, "--device", "cuda:0", "--pass", "fwd", "--algos",
                       "direct,fft", "--format", "json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  int passed = 0;
  for (const json& row : rows_of(ran.out)) {
    passed += row["result"] == "PASSED";
    EXPECT_TRUE(row["layouts"] == "nchw" || row["layouts"] == "nhwc") << row;
  }
  EXPECT_GT(passed, 0) << ran.out;
}

// Layouts are converted in every type. A candidate whose conversion cannot be timed is lost.
TEST_F(CudaProgramTest, HalfTypesAreRacedInBothLayouts) {
  for (const char* const dtype : {"f16", "bf16"}) {
    const Ran ran = run({"bench", "mb1ic8ih4oc8oh4kh3ph1", "--device", "cuda", "--pass", "fwd",
                         "--algos", "implicit_gemm", "--dtype", dtype, "--format", "json"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    std::set<std::string> measured;
    const json told = json::parse(ran.out);
    for (const json& c : told.at("layers").at(0).at("candidates")) {
      EXPECT_NE(c["status"], "failed") << c;
      if (!c["predicted"].get<bool>()) measured.insert(c["layouts"][0]);
    }
    EXPECT_EQ(measured, (std::set<std::string>{"nchw", "nhwc"})) << dtype;
  }
}

TEST_F(CudaProgramTest, AFailedCheckRepeatsOnTheSameDevice) {
  const Ran ran = run({"check", tiny, "--device", "cuda", "--pass", "fwd", "--algos", "direct",
                       "--max-error", "0", "--format", "json"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  const json row = rows_of(ran.out)[0];
  EXPECT_TRUE(contains(row["repeat"], "--device cuda:0")) << row;
  EXPECT_FALSE(contains(row["repeat"], "--threads")) << row;
}

TEST_F(CudaProgramTest, TuneMeasuresInAWorkerAndRemembersTheCard) {
  const Words command{"tune",    tiny,     "--device", "cuda", "--pass",   "fwd",
                      "--algos", "direct", "--layout", "nchw", "--format", "json"};
  const Ran ran = run(command);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json parsed = json::parse(ran.out), layer = parsed["layers"][0];
  EXPECT_EQ(layer["chosen"]["algo"], "direct");
  EXPECT_GT(layer["chosen"]["ms"], 0);
  EXPECT_LT(layer["chosen"]["rel_error"], 1e-4);
  EXPECT_TRUE(parsed["provenance"].contains("gpu")) << parsed["provenance"];
  const std::vector<StoreRow> rows = Store(directory_ / "tune.db", Store::Open::existing).rows();
  ASSERT_FALSE(rows.empty());
  for (const StoreRow& row : rows)
    for (const char* part : {"cuda=CUDA kernels executed on the CPU", "isa=sm_90", "driver="})
      EXPECT_TRUE(contains(row.fingerprint, part)) << row.fingerprint;
  const Ran again = run(command);
  EXPECT_TRUE(contains(again.err, "resuming")) << again.err;
}

// The test's own nvidia-smi, called as the program calls the real one.
TEST_F(CudaProgramTest, TheClocksAreInTheProvenance) {
  const std::filesystem::path tool = directory_ / "nvidia-smi";
  write_file(tool, "#!/bin/sh\n[ \"$1 $2\" = '-i 0' ] && echo '1755, 1980, 2619, 41, 310, 0x4'\n");
  std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  const Words command{"bench",   tiny,     "--device", "cuda", "--pass",   "fwd",
                      "--algos", "direct", "--layout", "nchw", "--format", "json"};
  const std::string path = directory_.path().string() + ":" + std::getenv("PATH");
  const Ran ran = Program(directory_, command, {{"PATH", path}}, CONVLAB_PROGRAM_ON_CPU).wait();
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json provenance = json::parse(ran.out)["provenance"];
  EXPECT_EQ(provenance["clocks before"], "1755 of 1980 MHz, memory 2619 MHz, 41 C, 310 W");
  EXPECT_EQ(provenance["clocks after"], provenance["clocks before"]);
  EXPECT_EQ(provenance["throttled"], "power cap");
}

TEST_F(CudaProgramTest, BenchMeasuresColdToo) {
  const Ran ran = run({"bench", tiny, "--device", "cuda", "--pass", "fwd", "--algos", "direct",
                       "--layout", "nchw", "--cache", "cold", "--format", "csv"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, ",direct,")) << ran.out;
}

TEST_F(CudaProgramTest, NetsInBf16AreRefusedOnACard) {
  const Ran ran = run({"time", "lenet", "--device", "cuda", "--dtype", "bf16"});
  EXPECT_EQ(ran.exit_code, 2) << ran.err;
  EXPECT_TRUE(contains(ran.err, "net lenet: nets run in bf16 on the CPU only")) << ran.err;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
}

TEST_F(CudaProgramTest, TimeTrainsAndInfersOnTheCard) {
  for (const Words& mode : {Words{}, Words{"--forward-only"}}) {
    const Ran ran = run({"time", "lenet", "--device", "cuda", "--algos", "direct,im2col",
                         "--iterations", "1", "--format", "json"},
                        mode);
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_TRUE(contains(ran.err, "--device cuda:0")) << ran.err;  // how to tune it
    const json timed = json::parse(ran.out);
    for (const json& step : timed["steps"]) {
      if (step["kind"] == "input") continue;
      EXPECT_GT(step["phases"]["fwd"]["ms"], 0) << step;
    }
    EXPECT_GT(timed["iteration"]["images_per_s"], 0);
    EXPECT_TRUE(timed["provenance"].contains("gpu")) << timed["provenance"];
  }
}

TEST_F(CudaProgramTest, SeveralStreamsCountTheImagesOfAll) {
  const Words command{"time",           "lenet",    "--device", "cuda",         "--algos",
                      "direct",         "--batch",  "2",        "--iterations", "1",
                      "--forward-only", "--format", "json"};
  const Ran ran = run(command, {"--streams", "3"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json timed = json::parse(ran.out);
  EXPECT_EQ(timed["net"]["streams"], 3);
  EXPECT_NEAR(timed["iteration"]["images_per_s"],
              3 * 2 * 1e3 / timed["iteration"]["ms"].get<double>(),
              1e-6 * timed["iteration"]["images_per_s"].get<double>());
  const Ran cpu = run({"time", "lenet", "--streams", "2"});
  EXPECT_EQ(cpu.exit_code, 2);
  EXPECT_TRUE(contains(cpu.err, "--device cuda --streams 2")) << cpu.err;
}

TEST_F(CudaProgramTest, TheProfileSaysWhyNoKernelsWereRecorded) {
  const Ran ran = run({"time", "lenet", "--device", "cuda", "--algos", "direct", "--iterations",
                       "1", "--forward-only", "--profile"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "No kernels as the card ran them: kernels executed on the CPU"))
      << ran.out;
  EXPECT_TRUE(contains(ran.out, "The ceilings are the card's theoretical peaks")) << ran.out;
  const std::string next = ran.out.substr(ran.out.find("What to tune next"));
  EXPECT_TRUE(contains(next, " direct\n") && contains(next, "e-0")) << next;
  EXPECT_FALSE(contains(next, " 0.000 ")) << next;
}

TEST_F(CudaProgramTest, TrainsOnTheCardAndGoesOnThere) {
  const std::string checkpoint = directory_ / "c.safetensors";
  const std::map<std::string, std::string> cache{{"XDG_CACHE_HOME", directory_.path()}};
  const auto train = [&](const Words& more) {
    Words command{"train", "lenet", "--device", "cuda", "--epochs"};
    command.insert(command.end(), more.begin(), more.end());
    return Program(directory_, command, cache, CONVLAB_PROGRAM_ON_CPU).wait();
  };
  const Ran begun =
      train({"1", "--data", "synthetic:40", "--batch", "8", "--checkpoint", checkpoint});
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_TRUE(contains(begun.err, "CUDA kernels executed on the CPU")) << begun.err;
  EXPECT_TRUE(contains(begun.out, " on 10 test images")) << begun.out;
  const Ran more = train({"2", "--resume", checkpoint});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_TRUE(contains(more.err, "layouts and algorithms are those of")) << more.err;
  // They belong to the card.
  const Ran elsewhere =
      Program(directory_, {"train", "--resume", checkpoint}, cache, CONVLAB_PROGRAM_ON_CPU).wait();
  EXPECT_EQ(elsewhere.exit_code, 0) << elsewhere.err;
  EXPECT_TRUE(contains(elsewhere.err, "the plan is for machine CUDA kernels")) << elsewhere.err;
}

TEST_F(CudaProgramTest, DoctorShowsTheCard) {
  const Ran ran = run({"doctor", "--device", "cuda"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "cuda:0 CUDA kernels executed on the CPU, sm_90")) << ran.out;
}

TEST_F(CudaProgramTest, ACardWithoutSomeLibrariesWorksAndDoctorSaysWhich) {
  const char* const card = "cublas=0,cufft=0";
  const Ran doctor = run_on_card(card, {"doctor", "--device", "cuda", "--format", "json"});
  EXPECT_EQ(doctor.exit_code, 0) << doctor.err;
  std::map<std::string, json> found;
  for (const json& row : rows_of(doctor.out)) found[row["what"]] = row;
  for (const char* const library : {"cublas", "cufft"}) {
    EXPECT_EQ(found[library]["verdict"], "PROBLEM") << doctor.out;
    EXPECT_EQ(found[library]["found"], "missing: the algorithms that call it refuse");
    EXPECT_EQ(found[library]["remedy"],
              std::string(library) + ": CONVLAB_CARD says that it is missing");
  }
  EXPECT_FALSE(found.contains("cudnn")) << doctor.out;

  const Ran check = run_on_card(card, {"check", tiny, "--device", "cuda", "--pass", "fwd",
                                       "--layout", "nchw", "--format", "json"});
  EXPECT_EQ(check.exit_code, 0) << check.err;
  std::set<std::string> passed, skipped;
  for (const json& row : rows_of(check.out)) {
    (row["result"] == "PASSED" ? passed : skipped).insert(row["algo"]);
    if (row["algo"] == "fft") {
      EXPECT_EQ(row["reason"], "cublas: CONVLAB_CARD says that it is missing") << row;
    }
  }
  EXPECT_TRUE(passed.contains("direct") && passed.contains("implicit_gemm")) << check.out;
  EXPECT_TRUE(skipped.contains("fft") && skipped.contains("im2col")) << check.out;

  const Ran net = run_on_card(card, {"time", "lenet", "--device", "cuda", "--iterations", "1"});
  EXPECT_EQ(net.exit_code, 3) << net.err;
  EXPECT_TRUE(contains(net.err, "cublas: CONVLAB_CARD says that it is missing")) << net.err;
}

TEST_F(CudaProgramTest, AnOlderCardIsRefusedInThoseWords) {
  const char* const says =
      "cuda:0: CUDA kernels executed on the CPU is sm_70: the kernels need sm_80 or newer";
  for (const Words& verb : {Words{"list"}, {"check", tiny}, {"tune", tiny}, {"time", "lenet"}}) {
    const Ran ran = run_on_card("sm=70", verb + Words{"--device", "cuda"});
    EXPECT_EQ(ran.exit_code, 3) << verb[0];
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err, std::string("convlab: ") + says + "\n") << verb[0];
  }
  EXPECT_EQ(run_on_card("sm=70", {"check", tiny, "--pass", "fwd", "--algos", "direct"}).exit_code,
            0);
  const Ran doctor = run_on_card("sm=70", {"doctor", "--format", "json"});
  EXPECT_EQ(doctor.exit_code, 0) << doctor.err;
  EXPECT_TRUE(contains(doctor.out, says)) << doctor.out;
}

TEST_F(CudaProgramTest, ASmallerCardRefusesWithBothNumbers) {
  const Words list{"list", "mb1ic1ih32oc1oh32kh13ph6", "--device", "cuda", "--pass", "fwd"};
  EXPECT_TRUE(contains(run_on_card("block_shared=49152", list).out,
                       "needs 65536 bytes of shared memory a block, has 49152"));
  EXPECT_FALSE(contains(run_on_card("sm=86,block_shared=101376", list).out, "shared memory"));
  expect_refused(
      [&](const Words& words) {
        return run_on_card(words[0], {"list", "--device", "cuda"});
      },
      {{{"block_shared=big"}, "CONVLAB_CARD: 'block_shared=big': expected some of sm=10"},
       {{"cuda=0"}, "CONVLAB_CARD: 'cuda=0': expected some of sm=10"},
       {{"foo"}, "CONVLAB_CARD: 'foo': expected some of sm=10"},
       {{"sm=86.5"}, "CONVLAB_CARD: 'sm=86.5': expected some of sm=10"},
       {{"sm=86,"}, "CONVLAB_CARD: 'sm=86,': expected some of sm=10"}});
}

TEST_F(CudaProgramTest, WhatTheCardCannotDoIsOneLine) {
  expect_refused([&](const Words& words) { return run(words); },
                 {
                     {{"tune", tiny, "--device", "cuda:1"}, "cuda:0"},
                     {{"doctor", "--device", "cuda:1"}, "cuda:0"},
                     {{"tune", tiny, "--device", "cuda", "--layout", "nchwc"}, "nhwc"},
                     {{"tune", tiny, "--device", "cuda", "--algos", "onednn.direct"}, "direct"},
                 });
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tune.db"));
}

}  // namespace
}  // namespace convlab

#endif  // CONVLAB_PROGRAM_ON_CPU
