// Recurrent problems through the program: the verbs that take them, and those that do not.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "autotune/store/store.h"
#include "tests/bench/program/program_lab.h"

namespace convlab {
namespace {

using nlohmann::json;

constexpr const char* layer = "gru:t4mb2slc6dhc10";
constexpr const char* canonical = "gru:l1t4mb2sic10slc6dhc10dic10";

class RecurrentProgramTest : public ProgramTest {
 protected:
  json json_of(Words words) {
    const Ran ran = run(std::move(words) + Words{"--format", "json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.exit_code == 0 ? json::parse(ran.out) : json();
  }
};

TEST_F(RecurrentProgramTest, TuneRacesAndRemembersThem) {
  const json table = json_of({"tune", layer});
  ASSERT_EQ(table["layers"].size(), 3u);
  for (const json& row : table["layers"]) {
    EXPECT_EQ(row["problem"], canonical);
    EXPECT_EQ(row["training"], row["pass"] == "fwd");
    ASSERT_FALSE(row["chosen"].is_null()) << row.dump(1);
    EXPECT_FALSE(row["chosen"]["predicted"]);
    EXPECT_LT(row["chosen"]["rel_error"], 1e-5);
    EXPECT_TRUE(row["chosen"]["layouts"].empty());
  }
  const Ran shown = run({"db", "show", layer, "--format", "csv"});
  EXPECT_TRUE(contains(shown.out, canonical)) << shown.out;
  const Ran again = run({"tune", layer});
  EXPECT_TRUE(contains(again.err, "resuming")) << again.err;
  EXPECT_EQ(run({"db", "verify"}).exit_code, 0);
  EXPECT_TRUE(contains(run({"db", "prune", "--stale"}).out, "nothing matched"));

  // Inference is another problem, of which the store knows nothing.
  const json inference = json_of({"tune", layer, "--pass", "fwd", "--mode", "heuristic"});
  EXPECT_EQ(inference["layers"][0]["training"], false);
  ASSERT_EQ(run({"tune", layer, "--pass", "fwd", "--algos", "stepwise"}).exit_code, 0);
  const Words both{"db", "show", layer, "--pass", "fwd", "--algos", "stepwise"};
  std::istringstream rows(run(both).out);
  int training = 0, all = 0;
  for (std::string row; std::getline(rows, row);) {
    all += contains(row, "stepwise");
    training += contains(row, " training");
  }
  EXPECT_EQ(all, 2);
  EXPECT_EQ(training, 1);
  EXPECT_TRUE(contains(run(both + Words{"--format", "csv"}).out, ",fwd,training,f32,stepwise,"));
}

TEST_F(RecurrentProgramTest, AFileMayHaveBothKinds) {
  write_file(directory_ / "mixed",
             std::string("# both\n") + layer + "\nmb1ic4ih5oc4oh5kh3ph1n\"c\"\n");
  const json table = json_of(
      {"tune", "@" + (directory_ / "mixed").string(), "--mode", "heuristic", "--pass", "fwd"});
  ASSERT_EQ(table["layers"].size(), 2u);
  EXPECT_EQ(table["layers"][0]["problem"], canonical);
  EXPECT_EQ(table["layers"][1]["layer"], "c");
  EXPECT_FALSE(table["layers"][1].contains("training"));
  for (const json& c : table["layers"][1]["candidates"]) EXPECT_NE(c["algo"], "stepwise");
}

TEST_F(RecurrentProgramTest, BenchShowsEveryCandidate) {
  const Ran ran = run({"bench", layer, "--pass", "bwd_d"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  for (const char* algo : {"stepwise", "batched_input", "persistent"})
    EXPECT_TRUE(contains(ran.out, algo)) << ran.out;
  EXPECT_FALSE(contains(ran.out, "nchw")) << ran.out;
}

TEST_F(RecurrentProgramTest, CheckPassesEverything) {
  const Ran ran = run({"check", layer, "lstm:l2t3mb2dhc8", "rnn:t3mb2dhc9:bi"});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_TRUE(contains(ran.out, " 0 failed")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "persistent")) << ran.out;
}

TEST_F(RecurrentProgramTest, ListSaysWhoTakesThemAndTheirSizes) {
  const Ran all = run({"list"});
  for (const char* text : {"winograd", "stepwise", "batched_input", "persistent"})
    EXPECT_TRUE(contains(all.out, text)) << all.out;
  const Ran one = run({"list", layer, "--pass", "bwd_w"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_TRUE(contains(one.out, "needs fwd or bwd_d")) << one.out;
  EXPECT_TRUE(contains(one.out, std::string(canonical) + ": weights 2.1 KiB")) << one.out;
  EXPECT_FALSE(contains(one.out, "winograd")) << one.out;
  EXPECT_TRUE(contains(one.out, "if they are computed again")) << one.out;
  const Ran vanilla = run({"list", "rnn:t4mb2dhc10"});
  EXPECT_FALSE(contains(vanilla.out, "computed again")) << vanilla.out;
}

TEST_F(RecurrentProgramTest, ExplainHoldsThemAgainstTheRoofs) {
  const Ran ran = run({"explain", "rnn:t4mb1dhc64", "--pass", "fwd", "--algos", "batched_input"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "Recurrent weights: 16 KiB a step, 4 steps; L2 holds")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "By batch: ")) << ran.out;
  EXPECT_TRUE(contains(ran.out, "steps ")) << ran.out;  // a phase
}

TEST_F(RecurrentProgramTest, ANetsRecurrentLayersAreProblems) {
  const char* const net = "rnn:3x5-8-2:lstm";
  const std::string problem = "lstm:l1t5mb2sic8slc3dhc8dic8";
  const json table = json_of({"tune", net, "--batch", "2"});
  ASSERT_EQ(table["layers"].size(), 3u);
  for (const json& row : table["layers"]) {
    EXPECT_EQ(row["layer"], "rnn");
    EXPECT_EQ(row["problem"], problem);
    EXPECT_EQ(row["training"], row["pass"] == "fwd");
  }
  const json inference =
      json_of({"tune", net, "--batch", "2", "--pass", "fwd", "--mode", "heuristic"});
  ASSERT_EQ(inference["layers"].size(), 1u);
  EXPECT_EQ(inference["layers"][0]["training"], false);
  for (const char* verb : {"bench", "check", "list", "explain"}) {
    const Ran ran = run({verb, net, "--batch", "2", "--pass", "fwd,bwd_d"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_TRUE(contains(ran.out, "persistent")) << ran.out;
    EXPECT_TRUE(contains(ran.out, "rnn")) << ran.out;
  }
}

// With one algorithm no race stays open.
TEST_F(RecurrentProgramTest, PlansGoByWhatTuneMeasured) {
  for (const Words& mode : {Words{}, Words{"--forward-only"}}) {
    const Words plan =
        Words{"plan", "rnn:3x5-8-2:gru", "--batch", "2", "--algos", "stepwise", "--no-audit"} +
        mode;
    const Ran untuned = run(plan);
    ASSERT_EQ(untuned.exit_code, 0) << untuned.err;
    EXPECT_TRUE(contains(untuned.err, " untuned or UNSURE here and go")) << untuned.err;
    const std::size_t at = untuned.err.find("convlab tune ");
    ASSERT_NE(at, std::string::npos) << untuned.err;
    const Words command = words_of(untuned.err.substr(at, untuned.err.find('\n', at) - at));
    const Ran tune = run(Words(command.begin() + 1, command.end()));
    ASSERT_EQ(tune.exit_code, 0) << tune.err;
    const Ran tuned = run(plan + Words{"--format", "csv"});
    EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
    EXPECT_FALSE(contains(tuned.err, "tune")) << tuned.err;
    EXPECT_TRUE(contains(tuned.out, ",store,")) << tuned.out;
    EXPECT_FALSE(contains(tuned.out, ",prediction,")) << tuned.out;
  }
}

// The advice repeats the limit as a person would write it.
TEST_F(RecurrentProgramTest, AdviceIsForAPersonToRead) {
  for (const auto& [given, said] : {std::pair{"1T", "1T"}, {"1024k", "1M"}, {"1000000", "1000000"}})
    EXPECT_TRUE(contains(run({"plan", "rnn:3-8-2", "--no-audit", "--workspace-max", given}).err,
                         std::string("--workspace-max ") + said))
        << given;
  const Ran one = run({"plan", "rnn:3-8-2", "--no-audit", "--forward-only"});
  EXPECT_TRUE(contains(one.err,
                       "1 pass of a layer is untuned or UNSURE here and goes by predictions; to "
                       "tune it:\n  convlab tune"))
      << one.err;
}

TEST_F(RecurrentProgramTest, AnOmittedBatchIsSaid) {
  EXPECT_EQ(run({"list", "gru:dhc8"}).err,
            "convlab: gru:dhc8: no mb: a batch of 2, as in benchdnn\n");
  EXPECT_EQ(run({"list", "gru:dhc8", "--batch", "3"}).err, "");
  EXPECT_EQ(run({"list", layer}).err, "");
  write_file(directory_ / "layers", std::string(layer) + "\ngru:dhc8\n");
  const Ran file = run({"list", "@" + (directory_ / "layers").string()});
  EXPECT_TRUE(contains(file.err, "1 of 2 problems have no mb")) << file.err;
}

// What is saved is another problem: its rows, its results and its line that repeats a check.
TEST_F(RecurrentProgramTest, GatesAreComputedAgainOnDemand) {
  const char* const gru = "gru:l1t3mb2sic8slc8dhc8dic8";
  const json again = json_of({"tune", gru, "--pass", "fwd,bwd_d", "--recompute"});
  const json kept = json_of({"tune", gru, "--pass", "fwd,bwd_d"});
  ASSERT_EQ(again["layers"].size(), 2u);
  for (const json& row : again["layers"]) EXPECT_EQ(row["recompute"], true);
  for (const json& row : kept["layers"]) EXPECT_EQ(row["recompute"], false);
  EXPECT_TRUE(contains(run({"db", "show", "--format", "csv"}).out, "training+recompute"));
  const Ran check = run({"check", gru, "--pass", "bwd_d", "--recompute", "--algos", "stepwise",
                         "--max-error", "1e-30"});
  EXPECT_EQ(check.exit_code, 1) << check.err;
  EXPECT_TRUE(contains(check.out + check.err, "--pass bwd_d --recompute")) << check.out;
  for (const Words& words : {Words{"rnn:dhc8mb1"}, Words{"gru:dhc8mb1", "--pass", "fwd"}}) {
    const Ran none = run(Words{"list", "--recompute"} + words);
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_TRUE(contains(none.err, "--recompute: expected a gru or lstm")) << none.err;
  }
}

TEST_F(RecurrentProgramTest, CsvTellsInferenceTrainingAndRecomputationApart) {
  const auto csv_of = [&](const Words& words) {
    return run(words + Words{"--mode", "heuristic", "--format", "csv"}).out;
  };
  const std::string sizes = std::string(canonical) + ",";
  EXPECT_TRUE(contains(csv_of({"tune", layer, "--pass", "fwd"}), sizes + "fwd,,f32,"));
  const Words both{"tune", layer, "--pass", "fwd,bwd_d"};
  EXPECT_TRUE(contains(csv_of(both), sizes + "fwd,training,f32,"));
  EXPECT_TRUE(contains(csv_of(both), sizes + "bwd_d,,f32,"));
  const std::string again = csv_of(both + Words{"--recompute"});
  EXPECT_TRUE(contains(again, sizes + "fwd,training+recompute,f32,")) << again;
  EXPECT_TRUE(contains(again, sizes + "bwd_d,recompute,f32,")) << again;
  EXPECT_TRUE(contains(csv_of({"bench", layer}), sizes + "fwd,training,"));
  EXPECT_TRUE(contains(csv_of({"sweep", layer, "-a", "n=2"}), sizes + "training,"));
}

// The same row in a store and in a result file has one key.
TEST_F(RecurrentProgramTest, DiffKnowsRecomputationInAStoreAndInAFile) {
  const std::string file = directory_ / "tuned.json", db = directory_ / "t.db";
  const Ran tune = run({"tune", layer, "--pass", "fwd,bwd_d", "--recompute", "--algos", "stepwise",
                        "--db", db, "--output", file});
  ASSERT_EQ(tune.exit_code, 0) << tune.err;
  const Ran diff = run({"diff", db, file, "--threshold", "50%"});
  EXPECT_EQ(diff.exit_code, 0) << diff.out << diff.err;
  EXPECT_TRUE(contains(diff.out, "+training+recompute")) << diff.out;
}

TEST_F(RecurrentProgramTest, TheStoreTakesRowsOfTheirAlgorithmsOnly) {
  ASSERT_EQ(run({"tune", layer, "--pass", "fwd", "--algos", "stepwise"}).exit_code, 0);
  const std::string file = directory_ / "rows.json", db = directory_ / "other.db";
  json rows = json::parse(run({"db", "export"}).out);
  const auto import_with = [&](const char* field, const char* value) {
    json changed = rows;
    changed["rows"][0][field] = value;
    write_file(file, changed.dump());
    return run({"db", "import", file, "--db", db});
  };
  expect_refused(
      [&](const Words& words) { return import_with(words[0].c_str(), words[1].c_str()); },
      {{{"algo", "winograd"},
        "rows.json: row 0: gru:l1t4mb2sic10slc6dhc10dic10 fwd: winograd is not an "
        "algorithm of recurrent layers"},
       {{"epilogue", "bias"}, "expected none, training, recompute or training+recompute"}});
  EXPECT_EQ(import_with("algo", "of_another_build").exit_code, 0);
  EXPECT_EQ(run({"db", "verify", "--db", db}).exit_code, 0);

  rows["rows"][0]["algo"] = "winograd";
  Store(db).merge(import_json(rows.dump()));
  const Ran verify = run({"db", "verify", "--db", db});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_TRUE(contains(verify.out, "winograd is not an algorithm of recurrent layers"))
      << verify.out;
  ASSERT_EQ(run({"db", "prune", "--stale", "--db", db}).exit_code, 0);
  EXPECT_EQ(run({"db", "verify", "--db", db}).exit_code, 0);
}

TEST_F(RecurrentProgramTest, RooflineOffersNoneOfTheirs) {
  const std::string help = run({"roofline", "--help"}).out;
  EXPECT_FALSE(contains(help, "lstm") || contains(help, "--recompute")) << help;
  for (const char* verb : {"list", "check", "tune", "bench", "sweep", "explain"}) {
    const std::string other = run({verb, "--help"}).out;
    EXPECT_TRUE(contains(other, "lstm:t32mb16dhc512") && contains(other, "--recompute")) << other;
  }
}

TEST_F(RecurrentProgramTest, SweepVariesTheirSizes) {
  const json sweep = json_of({"sweep", "rnn:t4mb1dhc16", "-a", "h=8,16", "-a", "t=2,4", "--pass",
                              "fwd", "--mode", "heuristic"});
  std::vector<std::string> problems;
  for (const json& point : sweep["layers"]) problems.push_back(point["problem"]);
  EXPECT_EQ(problems,  // along the first axis, line by line
            (Words{"rnn:l1t2mb1sic8slc8dhc8dic8", "rnn:l1t2mb1sic16slc16dhc16dic16",
                   "rnn:l1t4mb1sic8slc8dhc8dic8", "rnn:l1t4mb1sic16slc16dhc16dic16"}));
}

TEST_F(RecurrentProgramTest, BadInputIsOneLineAndExitCode2) {
  write_file(directory_ / "layers", std::string(layer) + "\n");
  const std::string file = "@" + (directory_ / "layers").string();
  int files = 0;
  const auto line = [&](const std::string& text) {
    const std::string name = "line-" + std::to_string(++files);
    write_file(directory_ / name, std::string(layer) + "\n" + text + "\n");
    return "@" + (directory_ / name).string();
  };
  const std::string targets =
      "': expected rnn: rnn_relu: gru: or lstm: and sizes, as in lstm:t32mb16dhc512, or a net, as "
      "in rnn:28-32-10:lstm";
  const std::vector<BadUsage> cases{
      {{"list", "lstm"}, "unknown target 'lstm" + targets},
      {{"list", "LSTM:t8dhc8"}, "unknown target 'LSTM:t8dhc8" + targets},
      {{"list", "lbr_gru:t8dhc8"}, "unknown target 'lbr_gru:t8dhc8" + targets},
      {{"list", "vanilla_rnn:t8dhc8"}, "unknown target 'vanilla_rnn:t8dhc8" + targets},
      {{"list", "rnn_tanh:t8dhc8"}, "unknown target 'rnn_tanh:t8dhc8" + targets},
      {{"list", "lstm:28-32-10"}, "unknown target 'lstm:28-32-10" + targets},
      {{"plan", "lstm"}, "a net of recurrent layers is written rnn:28-128x2-10:lstm"},
      {{"db", "show", "LSTM:t8dhc8"}, "'LSTM:t8dhc8' is not a problem: expected one, as in"},
      {{"list", line("LSTM:t8dhc8")},
       ":2: malformed problem 'LSTM:t8dhc8' at character 1: expected"},
      {{"list", line("rnn:28-8-10:lstm # it")},
       ":2: 'rnn:28-8-10:lstm' is a net, but a file holds"},
      {{"list", line("alexnet")}, ":2: 'alexnet' is a net, but a file holds problems"},
      {{"list", "lstm:t8n2dhc8"}, "is missing: n begins the layer's name, which ends the text"},
      {{"list", "ic3oc4n2ih8kh3"}, "kh3ph1: n begins the layer's name, which ends the text"},
      {{"check", line("mb1ic4ih5oc4oh5kh3ph1"), "--dtype", "f16", "--pass", "fwd"},
       std::string("--dtype f16: '") + canonical +
           "' is a recurrent layer, which takes f32 or f64"},
      {{"sweep", layer, "--dtype", "f16", "-a", "n=1,2"}, "--dtype: impossible problem"},
      {{"sweep", "rnn:28-8-10", "-a", "n=1,2"},
       "is not a problem: expected one, as in mb1ic64ih56oc64oh56kh3ph1 or lstm:t32mb16dhc512"},
      {{"tune", "rnn:t4mb1"}, "dhc, the number of hidden units, is missing"},
      {{"tune", "gru:x4"}, "expected a size (l t mb sic slc dhc dic)"},
      {{"tune", layer, "--algos", "winograd"}, "expected one of stepwise, batched_input"},
      {{"tune", layer, "--dtype", "bf16"}, "--dtype bf16: 'gru:l1t4"},
      {{"bench", "lstm:t100000mb100000dhc100"}, "expected a batch of at most"},
      {{"roofline", layer}, "is a recurrent layer: expected convolutions"},
      {{"roofline", file}, "is a recurrent layer: expected convolutions"},
      {{"roofline", "rnn:28-8-10"}, "is a recurrent layer: expected convolutions"},
      {{"sweep", layer, "-a", "c=1,2"}, "expected one of t, n, i, h, l"},
      {{"sweep", layer, "-a", "layout=nchw,nhwc"}, "expected one of t, n, i, h, l"},
      {{"plan", layer}, layer},
      {{"time", layer}, layer},
  };
  expect_refused([&](const Words& words) { return run(words); }, cases);
}

}  // namespace
}  // namespace convlab
