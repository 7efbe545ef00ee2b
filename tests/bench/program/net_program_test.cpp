// `convlab time` and `convlab plan` end to end, on small nets and small batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "kernels_cuda/cuda.h"
#include "nets/plan/plan.h"
#include "nets/zoo/zoo.h"
#include "tests/bench/program/run_program.h"

namespace convlab {

using namespace nets;
namespace {

using nlohmann::json;

class NetProgramTest : public testing::Test {
 protected:
  Ran run(const Words& arguments, const std::map<std::string, std::string>& environment = {}) {
    return Program(directory_, arguments, environment).wait();
  }
  // A short measurement.
  Ran time(const Words& more) { return run(Words{"time", "--iterations", "2"} + more); }
  json time_json(const Words& more) {
    const Ran ran = time(more + Words{"--format", "json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.exit_code == 0 ? json::parse(ran.out) : json();
  }
  TemporaryDirectory directory_;
};

TEST_F(NetProgramTest, TimeShowsEveryStepAndPhaseOfTraining) {
  const json timed = time_json({"resnet20", "--batch", "2"});
  EXPECT_EQ(timed["net"], (json{{"name", "resnet20"},
                                {"batch", 2},
                                {"streams", 1},
                                {"mode", "training"},
                                {"dtype", "f32"}}));
  const std::vector<Step> steps = steps_of(make_net("resnet20", 2), Mode::training);
  ASSERT_EQ(timed["steps"].size(), steps.size());
  double sum = 0, share = 0;
  for (const json& step : timed["steps"]) {
    sum += step["ms"].get<double>();
    share += step["share"].get<double>();
    if (step["kind"] != "convolution") continue;
    const bool first = step["layer"] == "conv1";
    for (const char* phase : {"fwd", "bwd_d", "bwd_w", "update"}) {
      const json& p = step["phases"][phase];
      if (first && phase == std::string("bwd_d")) {  // not needed
        EXPECT_EQ(p["ms"], 0) << step;
        EXPECT_FALSE(p.contains("algo")) << step;
        continue;
      }
      EXPECT_GT(p["ms"], 0) << phase << step;
      EXPECT_GT(p["bytes"], 0) << phase << step;
      if (phase == std::string("update")) continue;
      EXPECT_GT(p["eff_gflops"], 0) << phase << step;
      EXPECT_GT(p["exec_gflops"], 0) << phase << step;
      EXPECT_NE(p["algo"], "") << phase << step;
    }
  }
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_NEAR(timed["iteration"]["steps_ms"].get<double>(), sum, 1e-9 * sum);

  double kinds = 0;
  std::set<std::string> names;
  for (const json& kind : timed["kinds"]) {
    kinds += kind["ms"].get<double>();
    names.insert(kind["kind"]);
  }
  EXPECT_NEAR(kinds, sum, 1e-9 * sum);
  for (const char* kind : {"convolution", "batch norm", "fully connected", "pooling"})
    EXPECT_TRUE(names.contains(kind)) << kind;

  const json& iteration = timed["iteration"];
  EXPECT_EQ(iteration["samples_ms"].size(), 2u);
  for (const char* part : {"t_io", "t_h2d", "t_f", "t_b", "t_u", "ms"})
    EXPECT_GT(iteration[part], 0) << part;
  EXPECT_NEAR(iteration["images_per_s"].get<double>(), 2e3 / iteration["ms"].get<double>(), 1e-6);
  EXPECT_EQ(timed["complete"], true);
}

TEST_F(NetProgramTest, TimeSaysWhereTheMemoryIs) {
  const json memory = time_json({"resnet20", "--batch", "2"})["memory"];
  const Graph graph = make_net("resnet20", 2);
  const std::int64_t weights = 4 * graph.parameters();
  EXPECT_GE(memory["weights"], weights);
  EXPECT_GE(memory["gradients"], weights);
  EXPECT_GE(memory["optimizer"], weights);  // momentum
  EXPECT_GT(memory["activations"], 0);
  EXPECT_GE(memory["total"].get<double>(), memory["arena"].get<double>() + 3.0 * double(weights));
  EXPECT_GT(memory["resident_peak"], memory["resident_before"]);
}

TEST_F(NetProgramTest, ForwardOnlyIsInference) {
  const json timed = time_json({"resnet20", "--batch", "2", "--forward-only"});
  EXPECT_EQ(timed["net"]["mode"], "inference");
  for (const json& step : timed["steps"]) {
    EXPECT_NE(step["kind"], "batch norm") << step;  // folded
    EXPECT_EQ(step["phases"].size(), 1u) << step;
    EXPECT_TRUE(step["phases"].contains("fwd")) << step;
  }
  EXPECT_EQ(timed["iteration"]["t_b"], 0);
  EXPECT_EQ(timed["memory"]["optimizer"], 0);
  const Ran table = time({"resnet20", "--forward-only"});
  EXPECT_FALSE(contains(table.out, "bwd")) << table.out;
}

TEST_F(NetProgramTest, TimePrintsEveryFormat) {
  const Ran table = time({"lenet", "--batch", "4"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* part : {"c1", "fully connected", "images/s", "t_b", "workspace", "cpu "})
    EXPECT_TRUE(contains(table.out, part)) << part << table.out;
  EXPECT_FALSE(contains(table.err, "\r")) << table.err;  // plain lines: stderr is no terminal

  const Ran csv = time({"lenet", "--format", "csv"});
  EXPECT_TRUE(contains(csv.out, "\nlayer,fused,kind,x_layout,y_layout,ms,mad_ms,share_%,fwd_ms,"))
      << csv.out;
  std::istringstream stream(csv.out);
  std::size_t rows = 0;
  for (std::string line; std::getline(stream, line);) rows += !line.starts_with("#");
  EXPECT_EQ(rows, 1 + steps_of(make_net("lenet", 1), Mode::training).size()) << csv.out;
  const Ran md = time({"lenet", "--format", "md"});
  EXPECT_TRUE(md.out.starts_with("| layer |")) << md.out;
  EXPECT_TRUE(contains(md.out, "\n| kind |")) << md.out;
}

TEST_F(NetProgramTest, AMultilayerPerceptronHasNothingToTune) {
  for (const char* mode : {"", "--forward-only"}) {
    Words command{"mlp:20-256x5-1", "--batch", "64", "--dtype", "f64"};
    if (*mode != '\0') command.push_back(mode);
    const Ran ran = time(command);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_FALSE(contains(ran.err, "tune")) << ran.err;
  }
}

// A step of every phase, by the algorithms that the plan's file names.
TEST_F(NetProgramTest, ARecurrentNetIsTimedByItsPlan) {
  const std::string file = directory_ / "rnn.json";
  const std::string name = "rnn:9x7-33x2-4:lstm:bi";
  const Ran planned = run(
      {"plan", name, "--batch", "3", "--algos", "stepwise", "--format", "json", "--output", file});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_TRUE(contains(planned.err, "convlab tune " + name)) << planned.err;
  const NetPlan plan = plan_from_json(read_file(file), file);
  EXPECT_EQ(plan.steps[1].layer, "rnn");
  const json timed = time_json({name, "--plan", file});
  const json& step = timed["steps"][1];
  EXPECT_EQ(step["kind"], "recurrent");
  const double per_input = 2.0 * 3 * 7 * 2 * 4 * 33;
  for (const Pass pass : all_passes) {
    const json& phase = step["phases"][std::string(to_string(pass))];
    EXPECT_EQ(plan.steps[1].passes[std::size_t(pass)]->algo, "stepwise");
    EXPECT_EQ(phase["algo"], "stepwise");
    // Nobody needs the gradient of the net's nine inputs.
    const double flops = per_input * ((pass == Pass::backward_data ? 0 : 9) + 33 + 66 + 33);
    EXPECT_NEAR(phase["eff_gflops"].get<double>() * phase["ms"].get<double>() * 1e6, flops,
                1e-3 * flops);
  }
  EXPECT_GT(step["phases"]["update"]["ms"], 0);
  for (const Words& more : {Words{"--profile"}, {"--forward-only", "--dtype", "f64"}}) {
    const Ran ran = time(Words{name, "--batch", "2"} + more);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
  }
}

TEST_F(NetProgramTest, WhatWasNeverTunedIsSaidOnceWithTheCommandThatTunesIt) {
  const Words restrictions{"--batch",  "3",    "--algos",   "im2col",
                           "--layout", "nchw", "--threads", "1"};
  const Ran ran = time(Words{"lenet"} + restrictions);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::size_t at = ran.err.find("convlab tune ");
  ASSERT_NE(at, std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("convlab tune ", at + 1), std::string::npos) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(directory_ / "tune.db"));
  const Words command = words_of(ran.err.substr(at, ran.err.find('\n', at) - at));
  const Ran tuned = run(Words(command.begin() + 1, command.end()));
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  for (const char* verb : {"time", "plan"}) {
    const Ran again = run(Words{verb, "lenet"} + restrictions +
                          (verb == std::string("plan") ? Words{"--no-audit"} : Words{}));
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_FALSE(contains(again.err, "tune")) << again.err;
  }
}

TEST_F(NetProgramTest, PlansGoByColdTimesWhereAsked) {
  const Words cold{"--forward-only", "--no-audit", "--threads", "1",       "--algos",
                   "im2col",         "--layout",   "nchw",      "--cache", "cold"};
  const Ran untuned = run(Words{"plan", "lenet"} + cold);
  ASSERT_EQ(untuned.exit_code, 0) << untuned.err;
  EXPECT_TRUE(contains(untuned.out, "alone, with a cold cache")) << untuned.out;
  const std::size_t at = untuned.err.find("convlab tune ");
  ASSERT_NE(at, std::string::npos) << untuned.err;
  const std::string command = untuned.err.substr(at, untuned.err.find('\n', at) - at);
  EXPECT_TRUE(contains(command, " --cache cold")) << command;
  const Words words = words_of(command);
  ASSERT_EQ(run(Words(words.begin() + 1, words.end())).exit_code, 0) << command;
  EXPECT_FALSE(contains(run(Words{"plan", "lenet"} + cold).err, "tune"));
  // Rows measured cold do not count for a hot plan.
  EXPECT_TRUE(contains(run(Words{"plan", "lenet"} + Words(cold.begin(), cold.end() - 2)).err,
                       "untuned or UNSURE here"));
}

// ---- The plan ----

TEST_F(NetProgramTest, APlanIsAFileThatTimeTakes) {
  const std::string file = directory_ / "plan.json";
  const Ran planned = run({"plan", "resnet20", "--batch", "2", "--format", "json", "--algos",
                           "direct,im2col", "--output", file});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(planned.out, "");
  const NetPlan plan = plan_from_json(read_file(file), file);
  EXPECT_EQ(plan.net, "resnet20");
  EXPECT_EQ(plan.batch, 2);
  EXPECT_EQ(plan.mode, Mode::training);

  const json timed = time_json({"resnet20", "--plan", file});
  ASSERT_EQ(timed["steps"].size(), plan.steps.size());
  EXPECT_EQ(timed["net"]["batch"], 2);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const json& step = timed["steps"][i];
    EXPECT_EQ(step["layer"], plan.steps[i].layer);
    EXPECT_EQ(step["layouts"][0], to_string(plan.steps[i].x_layout));
    for (const Pass pass : all_passes)
      if (const auto& expected = plan.steps[i].passes[std::size_t(pass)]) {
        const json& phase = step["phases"][std::string(to_string(pass))];
        EXPECT_EQ(phase["algo"], expected->algo) << step;
        EXPECT_EQ(phase["config"], expected->config.text()) << step;
      }
  }
  EXPECT_FALSE(contains(time({"resnet20", "--plan", file}).err, "tune"));
}

TEST_F(NetProgramTest, APlanForSomethingElseIsRefused) {
  const std::string file = directory_ / "plan.json";
  ASSERT_EQ(
      run({"plan", "lenet", "--batch", "2", "--threads", "1", "--format", "json", "--output", file})
          .exit_code,
      0);
  const std::string other = directory_ / "other.json", odd = directory_ / "odd.json",
                    none = directory_ / "none.json";
  NetPlan plan = plan_from_json(read_file(file), file);
  plan.machine = "Another CPU, avx512";
  write_file(other, to_json(plan));
  write_file(odd, "{\"net\": 3}");
  const Words one{"--threads", "1"};
  const std::vector<BadUsage> cases{
      {Words{"time", "resnet20", "--plan", file} + one, "lenet"},
      {Words{"time", "lenet", "--batch", "4", "--plan", file} + one, "batch 2"},
      {Words{"time", "lenet", "--forward-only", "--plan", file} + one, "training"},
      {Words{"time", "lenet", "--dtype", "f64", "--plan", file} + one, "f32"},
      {Words{"time", "lenet", "--plan", file, "--threads", "2"}, "threads 1"},
      {Words{"time", "lenet", "--plan", other} + one, "Another CPU, avx512"},
      {Words{"time", "lenet", "--plan", odd} + one, odd},
      {Words{"time", "lenet", "--plan", none} + one, none},
      {Words{"time", "lenet", "--plan", file, "--workspace-max", "1M"} + one, "--workspace-max"},
      {Words{"time", "lenet", "--plan", file, "--algos", "direct"} + one, "--algos"},
  };
  expect_refused([&](const Words& words) { return run(words); }, cases);
}

TEST_F(NetProgramTest, PlanAuditsItself) {
  const Ran table =
      run({"plan", "lenet", "--batch", "4", "--workspace-max", "1M", "--iterations", "3"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* part : {"c1", "expected", "measured", "ratio", "otherwise", "without a limit",
                           "alone, with a hot cache"})
    EXPECT_TRUE(contains(table.out, part)) << part << table.out;
  const Ran csv = run({"plan", "lenet", "--batch", "4", "--iterations", "3", "--format", "csv"});
  EXPECT_TRUE(contains(csv.out, ",expected_ms,measured_ms,")) << csv.out;

  for (const char* format : {"table", "csv", "md"}) {
    const Ran unaudited =
        run({"plan", "lenet", "--no-audit", "--forward-only", "--format", format});
    EXPECT_EQ(unaudited.exit_code, 0) << unaudited.err;
    EXPECT_TRUE(contains(unaudited.out, "expected")) << unaudited.out;
    EXPECT_FALSE(contains(unaudited.out, "measured")) << unaudited.out;
    EXPECT_TRUE(contains(unaudited.out, "inference's default")) << unaudited.out;
  }
}

// ---- The trace ----

TEST_F(NetProgramTest, TheTraceIsATimeline) {
  const std::string file = directory_ / "trace.json";
  const Ran ran = time({"lenet", "--batch", "4", "--trace", file});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json trace = json::parse(read_file(file));
  std::map<std::string, std::vector<std::pair<double, double>>> rows;
  std::map<std::string, int> slices;
  std::set<std::string> row_names;
  std::size_t counters = 0;
  for (const json& event : trace["traceEvents"]) {
    const std::string kind = event["ph"];
    if (kind == "M" && event["name"] == "thread_name") row_names.insert(event["args"]["name"]);
    if (kind == "X") {
      const double begin = event["ts"], length = event["dur"];
      EXPECT_GE(begin, 0) << event;
      EXPECT_GE(length, 0) << event;
      rows[event["tid"].dump()].emplace_back(begin, begin + length);
      ++slices[event["name"]];
    }
    if (kind == "C") {
      ++counters;
      for (const char* part : {"weights", "activations", "gradients"})
        EXPECT_GE(event["args"][part], 0) << event;
    }
  }
  EXPECT_EQ(row_names.size(), 2u);
  ASSERT_EQ(rows.size(), 2u);
  for (auto& [row, spans] : rows) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
      EXPECT_LE(spans[i - 1].second, spans[i].first + 1e-3) << "row " << row;
  }
  EXPECT_GT(counters, 0u);
  for (const char* name : {"t_io", "t_h2d", "t_f", "t_b", "t_u", "c3 fwd"})
    EXPECT_EQ(slices[name], 2) << name;
}

// ---- Bad input ----

TEST_F(NetProgramTest, BadUsageIsOneLineAndExitCode2) {
  const std::string missing = directory_ / "missing";
  const std::string underflow = directory_ / "underflow.json";
  write_file(underflow, R"({"ms": [0, 0.0, 1e-300, 0e-400, 1e-400]})");
  const auto runs = [&](const Words& words) { return run(words); };
  for (const std::string verb : {"time", "plan"}) {
    const std::vector<BadUsage> cases{
        {{verb}, "no net"},
        {{verb, "resnet19"}, "resnet18"},
        {{verb, "mb1ic16ih8oc16oh8kh3ph1"}, "convlab bench"},
        {{verb, "lenet", "resnet18"}, "unexpected argument 'resnet18'"},
        {{verb, "lenet", "--batch", "0"}, "1 or more"},
        {{verb, "lenet", "--batch", "1,16"}, "--batch"},
        {{verb, "lenet", "--dtype", "f16"}, "--dtype: 'f16': nets run in f32, f64 or bf16"},
        {{verb, "lenet", "--dtype", "f8"}, "--dtype: 'f8': nets run in f32, f64 or bf16"},
        {{verb, ""}, verb + ": empty NET: see convlab " + verb + " --help"},
        {{verb, "lenet", "--bacth", "1"}, "did you mean --batch?"},
        {{verb, "lenet", "--format", "hpp"}, "json"},
        {{verb, "lenet", "--algos", "fastest"}, "fastest"},
        {{verb, "rnn:28-128"}, "expected something like rnn:28-128x2-10:lstm"},
        {{verb, "rnn:28-128-10:elman"}, "'elman' is not tanh, relu, gru or lstm"},
        {{verb, "rnn:28-128-10", "--algos", "persistant"}, "persistant"},
        {{verb, "rnn:28-128-10", "--algos", "winograd"}, "expected one of stepwise"},
        {{verb, "lenet", "--algos", "stepwise"}, "expected one of direct"},
        {{verb, "rnn:28-128-10", "--algos", "persistent", "--exclude", "persistent"},
         "--exclude: 'persistent' leaves none of --algos persistent"},
        {{verb, "lenet", "--db", missing}, missing},
        {{verb, "lenet", "--output", missing + "/table"}, missing},
        {{verb, "lenet", "--batch", "1000000000000"}, "batch of at most"},
    };
    expect_refused(runs, cases);
  }
  expect_refused(runs,
                 {{{"time", "lenet", "--iterations", "0"}, "--iterations"},
                  {{"time", "lenet", "--trace", missing + "/trace"}, "--trace"},
                  {{"time", "lenet", "--trace", ""}, "--trace has no value"},
                  {{"time", "lenet", "--plan", ""}, "--plan has no value: expected --plan FILE"},
                  {{"time", "lenet", "--plan", underflow},
                   "not JSON (number underflow parsing '1e-400'): expected"},
                  {{"time", "lenet", "--pass", "fwd"}, "unknown flag '--pass'"},
                  {{"time", "lenet", "--profile=x"}, "expected the flag without a value"},
                  {{"time", "lenet", "--profile=2"}, "expected the flag without a value"},
                  {{"train", "lenet", "--lr=-1"}, "--lr: '-1': expected a number above 0"},
                  {{"train", "lenet", "--seed", "x"}, "--seed: seed 'x': expected a whole"},
                  {{"plan", "lenet", "--plan", missing}, "unknown flag '--plan'"}});
}

TEST_F(NetProgramTest, ACardThatIsNotThereIsExitCode3) {
  const std::string obstacle = cuda_obstacle();
  if (obstacle.empty()) GTEST_SKIP() << "there is a card here";
  for (const char* verb : {"time", "plan"}) {
    const Ran ran = run({verb, "lenet", "--device", "cuda"});
    EXPECT_EQ(ran.exit_code, 3) << verb;
    EXPECT_EQ(ran.err, "convlab: " + obstacle + "\n") << verb;
    EXPECT_EQ(ran.out, "") << verb;
  }
}

// ---- Interruption ----

class NetInterruption : public NetProgramTest, public testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Verbs, NetInterruption, testing::Values("time", "plan"));

TEST_P(NetInterruption, PrintsWhatIsKnown) {
  // More iterations than it will ever make, interrupted as soon as they have begun.
  Program program(directory_, {GetParam(), "resnet20", "--batch", "8", "--iterations", "1000000"});
  program.wait_until_said("the first iteration");
  program.signal_group(SIGINT);
  const Ran ran = program.wait();
  EXPECT_EQ(ran.exit_code, 130) << ran.err;
  EXPECT_TRUE(contains(ran.out, "conv1")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "Stopped early")) << ran.out;
}

}  // namespace
}  // namespace convlab
