#include "autotune/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "autotune/limits.h"
#include "conv/error.h"
#include "tests/autotune/tuner_lab.h"

namespace convlab {
namespace {

TEST_F(TunerTest, ChoosesTheFastestInEveryPass) {
  for (Pass pass : all_passes) add(small, pass);
  const TuneTable table = run({"plain", "slow"});
  ASSERT_EQ(table.layers.size(), 3u);
  EXPECT_TRUE(table.complete);
  EXPECT_EQ(table.remaining_gain, 0);
  for (const LayerResult& layer : table.layers) {
    EXPECT_EQ(chosen(layer), "plain");
    const Candidate& c = layer.candidates[*layer.chosen];
    EXPECT_FALSE(c.predicted);
    EXPECT_NEAR(c.eff_gflops, layer.layer.problem.flops() / c.ms / 1e6, 1e-9);
    EXPECT_EQ(c.threads, device_->info().threads);
    EXPECT_EQ(row(layer, "slow").status, Status::dropped);
  }
  EXPECT_EQ(log_.finished, 3u);
}

TEST_F(TunerTest, TriesTheLayoutsOrTheOneAskedFor) {
  add(small);
  EXPECT_EQ(run({"plain"}).layers[0].candidates.size(), 4u);  // 4 channels: NCHW in, blocked out
  EXPECT_EQ(run({"nchw_only"}).layers[0].candidates.size(), 1u);
  options_.layout = Layout::nhwc;
  const LayerResult layer = run({"plain", "nchw_only"}).layers[0];
  ASSERT_EQ(layer.candidates.size(), 2u);
  EXPECT_EQ(row(layer, "plain").x_layout, Layout::nhwc);
  EXPECT_EQ(row(layer, "nchw_only").reason, "needs layout nchw");
}

// As in --mode heuristic, which measures no error.
TEST(KnownErrors, OfAMathCountWhereNoneIsMeasured) {
  std::vector<Candidate> candidates;
  for (const char* config : {"", "math=bf16x3", "math=bf16x6", "math=tf32"}) {
    Candidate& c = candidates.emplace_back();
    c.algo = "implicit_gemm";
    c.config = Config::parse(config);
    c.predicted = true;
    c.status = Status::ok;
  }
  const auto admitted = [](const KnownErrors& errors, std::vector<Candidate> all, double limit) {
    errors.apply(all, limit);
    std::string text;
    for (const Candidate& c : all) text += c.status == Status::ok ? 'x' : '-';
    return text;
  };
  KnownErrors errors;
  EXPECT_EQ(admitted(errors, candidates, 1e-3), "xxxx");
  EXPECT_EQ(admitted(errors, candidates, 1e-4), "xxx-");
  EXPECT_EQ(admitted(errors, candidates, 1e-6), "x-x-");
  // Minimal filtering enlarges them.
  Candidate minimal = candidates[1];
  minimal.config = Config::parse("tile=2,math=bf16x3");
  Candidate larger = candidates[1];
  larger.config = Config::parse("tile=4,math=bf16x3");
  EXPECT_EQ(admitted(errors, {candidates[1], minimal, larger}, 1e-4), "xxx");
  EXPECT_EQ(admitted(errors, {candidates[1], minimal, larger}, 1e-5), "xx-");
  EXPECT_EQ(admitted(errors, {candidates[1], minimal, larger}, 6e-6), "x--");
  Candidate measured = candidates[1];
  measured.predicted = false;
  measured.rel_error = 5e-7;
  errors.note(measured);
  EXPECT_EQ(admitted(errors, candidates, 1e-6), "xxx-");
}

TEST_F(TunerTest, OneRowSaysWhyAnAlgorithmIsRefused) {
  add(small);
  const LayerResult layer = run({"picky"}).layers[0];
  ASSERT_EQ(layer.candidates.size(), 1u);
  EXPECT_EQ(layer.candidates[0].status, Status::refused);
  EXPECT_EQ(layer.candidates[0].reason, "needs stride 7, has 1");
  EXPECT_EQ(layer.verdict, Verdict::none);
  EXPECT_FALSE(layer.chosen);
}

TEST_F(TunerTest, TunesEqualProblemsOnce) {
  add(small);
  add(R"(mb1ic4ih6oc8oh6kh3ph1n"other")");
  const TuneTable table = run({"plain"});
  EXPECT_EQ(log_.begun, 1u);
  EXPECT_EQ(log_.of, 1u);
  EXPECT_EQ(table.layers[0].candidates[0].ms, table.layers[1].candidates[0].ms);
  EXPECT_EQ(table.layers[1].layer.name, "other");
}

TEST_F(TunerTest, TotalsCountLayersAndLeaveOutTheFirstLayersInputGradient) {
  for (Pass pass : all_passes) add(small, pass, true);
  add(small, Pass::backward_data);
  const TuneTable table = run({"plain"});
  const auto ms = [&](std::size_t i) {
    return table.layers[i].candidates.at(table.layers[i].chosen.value()).ms;
  };
  EXPECT_DOUBLE_EQ(totals(table).chosen_ms, 3 * (ms(0) + ms(2) + ms(3)));
  EXPECT_DOUBLE_EQ(totals(table, Pass::backward_data).chosen_ms, 3 * ms(3));
}

TEST_F(TunerTest, AWorkerSurvivesCrashesAndLies) {
  options_.in_process = false;
  options_.timeout_s = 100;  // a sanitizer's report of a crash takes its time
  options_.layout = Layout::nchw;
  options_.exclude = {"hang"};
  add(small);
  const LayerResult layer = run({}, &store_).layers[0];
  EXPECT_EQ(row(layer, "segfault").status, Status::failed);
  EXPECT_EQ(row(layer, "abort").status, Status::failed);
  EXPECT_EQ(row(layer, "exit").status, Status::refused);
  EXPECT_EQ(row(layer, "killed").status, Status::refused);
  EXPECT_EQ(row(layer, "liar").status, Status::failed);
  EXPECT_EQ(row(layer, "thrower").status, Status::failed);
  EXPECT_EQ(row(layer, "late_segfault").status, Status::failed);
  EXPECT_EQ(row(layer, "sloppy").status, Status::inaccurate);
  EXPECT_EQ(row(layer, "greedy").status, Status::refused);
  EXPECT_EQ(row(layer, "picky").status, Status::refused);
  const std::string best = chosen(layer);
  // These are equivalent: in a worker nobody pretends.
  const std::set<std::string> right{"plain", "slow", "nchw_only", "chooser"};
  EXPECT_TRUE(right.contains(best)) << best;
  // Refusals are determined again; everything else is remembered.
  const auto refused =
      std::count_if(layer.candidates.begin(), layer.candidates.end(),
                    [](const Candidate& c) { return c.status == Status::refused; });
  EXPECT_EQ(refused, 7);
  EXPECT_EQ(store_.size(), std::int64_t(layer.candidates.size()) - refused);
}

TEST_F(TunerTest, AWorkerSurvivesAHang) {
  options_.in_process = false;
  options_.timeout_s = 5;
  options_.layout = Layout::nchw;
  add(small);
  const LayerResult layer = run({"plain", "hang"}).layers[0];
  EXPECT_EQ(row(layer, "hang").status, Status::timeout);
  EXPECT_EQ(chosen(layer), "plain");
}

// The error of "sloppy" is 1e-3 in the measured problem, so it is not chosen unmeasured in another.
TEST_F(TunerTest, NothingIsPredictedToBeMoreAccurateThanItWasElsewhere) {
  add(small);
  options_.layout = Layout::nchw;
  options_.max_error = 1;
  run({"sloppy"}, &store_);
  items_.clear();
  add("mb1ic5ih6oc8oh6kh3ph1");
  options_.budget_s = 1e-9;
  EXPECT_EQ(run({"sloppy"}, &store_).layers[0].verdict, Verdict::predicted);
  options_.max_error = 1e-5;
  const LayerResult layer = run({"sloppy"}, &store_).layers[0];
  EXPECT_EQ(layer.verdict, Verdict::none);
  EXPECT_EQ(layer.reason, "--max-error 1.00e-03 would admit sloppy, 1.00e-05 admits none");
  EXPECT_EQ(chosen(run({"plain", "sloppy"}, &store_).layers[0]), "plain");
}

TEST_F(TunerTest, SaysWhatLimitWouldDo) {
  add(small);
  options_.layout = Layout::nchw;
  options_.workspace_max = 8;
  EXPECT_EQ(run({"plain"}).layers[0].reason, "--workspace-max 64 would admit plain, 8 admits none");
}

TEST_F(TunerTest, TheHeuristicRunsNothing) {
  add(small);
  options_.mode = TuneMode::heuristic;
  const TuneTable table = run({"hang", "picky"});
  EXPECT_TRUE(table.complete);
  EXPECT_EQ(chosen(table.layers[0]), "hang");
  EXPECT_TRUE(row(table.layers[0], "hang").predicted);
  EXPECT_GT(row(table.layers[0], "hang").ms, 0);
}

TEST_F(TunerTest, DeterministicOnly) {
  add(small);
  options_.deterministic = true;
  const LayerResult layer = run({"plain", "slow"}).layers[0];
  EXPECT_EQ(row(layer, "slow").status, Status::refused);
  EXPECT_EQ(chosen(layer), "plain");
}

// The test algorithms have no choice: their products are f32's.
TEST_F(TunerTest, TheseMathsOnly) {
  add(small);
  options_.maths = {MathType::bf16x6, MathType::bf16x3};
  const LayerResult none = run({"plain"}).layers[0];
  EXPECT_EQ(row(none, "plain").status, Status::refused);
  EXPECT_EQ(row(none, "plain").reason, "forms products by f32: not among those of --math");
  EXPECT_FALSE(none.chosen);
  options_.maths = {MathType::bf16x6, MathType::f32};
  EXPECT_EQ(chosen(run({"plain"}).layers[0]), "plain");
}

TEST_F(TunerTest, SaysHowMuchMemoryIsMissing) {
  add("mb1000000000ic64ih56oc64oh56kh3ph1");
  try {
    run({"plain"});
    FAIL() << "did not throw";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("needs 4.3 PiB of memory"), std::string::npos) << e.what();
  }
}

TEST_F(TunerTest, LimitsThatMakeNoSenseAreInputErrors) {
  add(small);
  options_.max_error = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(run({"plain"}), InputError);
  options_.max_error = {};
  options_.workspace_max = -1;
  EXPECT_THROW(run({"plain"}), InputError);
  options_.workspace_max = {};
  options_.budget_s = -1;
  EXPECT_THROW(run({"plain"}), InputError);
}

TEST_F(TunerTest, UnknownNamesAreInputErrors) {
  add(small);
  EXPECT_THROW(run({"plane"}), InputError);
  options_.exclude = {"vendors"};
  EXPECT_THROW(run({}), InputError);
  EXPECT_THROW(parse_tune_mode("fast"), InputError);
}

}  // namespace
}  // namespace convlab
