// Several runs over one store: rows of an earlier run, runs cut off by a stop or a budget, and runs
// that resume.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "autotune/race/decide.h"
#include "conv/error.h"
#include "tests/autotune/tuner_lab.h"

namespace convlab {
namespace {

TEST_F(TunerTest, ASecondRunMeasuresNothing) {
  add(small);
  options_.layout = Layout::nchw;
  const TuneTable first = run({"plain", "slow", "liar", "sloppy"}, &store_);
  EXPECT_EQ(log_.ended_candidates, 4u);
  const TuneTable second = run({"plain", "slow", "liar", "sloppy"}, &store_);
  EXPECT_EQ(log_.ended_candidates, 0u);
  EXPECT_EQ(log_.resumed_rows, 4u);
  ASSERT_EQ(first.layers[0].candidates.size(), second.layers[0].candidates.size());
  for (std::size_t i = 0; i < first.layers[0].candidates.size(); ++i)
    EXPECT_EQ(first.layers[0].candidates[i].ms, second.layers[0].candidates[i].ms);
  EXPECT_EQ(first.layers[0].ratio, second.layers[0].ratio);
  EXPECT_EQ(first.layers[0].chosen, second.layers[0].chosen);
  options_.budget_s = 0;  // too little for anything
  EXPECT_TRUE(run({"plain", "slow", "liar", "sloppy"}, &store_).complete);
  options_.budget_s.reset();
  options_.fresh = true;
  run({"plain", "slow", "liar", "sloppy"}, &store_);
  EXPECT_EQ(log_.ended_candidates, 4u);
}

TEST_F(TunerTest, KnownFailuresAreCountedAndRunAgainWhenAsked) {
  add(small);
  options_.layout = Layout::nchw;
  run({"plain", "liar", "thrower"}, &store_);
  run({"plain", "liar", "thrower"}, &store_);
  EXPECT_EQ(log_.resumed_rows, 3u);
  EXPECT_EQ(log_.resumed_failed, 2u);
  std::set<std::string> ended;
  log_.on_ended = [&](const Candidate& c) { ended.insert(c.algo); };
  options_.retry_failed = true;
  const LayerResult layer = run({"plain", "liar", "thrower"}, &store_).layers[0];
  EXPECT_EQ(log_.resumed_rows, 1u);
  EXPECT_EQ(log_.resumed_failed, 0u);
  EXPECT_TRUE(ended.contains("liar") && ended.contains("thrower"));
  EXPECT_EQ(row(layer, "liar").status, Status::failed);
  EXPECT_EQ(chosen(layer), "plain");
}

TEST_F(TunerTest, WhatTheMachineLacksIsNotRemembered) {
  add(small);
  options_.layout = Layout::nchw;
  EXPECT_EQ(row(run({"plain", "threadless"}, &store_).layers[0], "threadless").status,
            Status::refused);
  EXPECT_EQ(store_.size(), 1);
}

TEST_F(TunerTest, TheTableOutlivesItsStore) {
  add(small);
  add("mb1ic5ih6oc8oh6kh3ph1");
  options_.layout = Layout::nchw;
  log_.on_begin = [&](std::size_t index) {
    if (index == 1) std::filesystem::remove(store_.path());
  };
  const TuneTable table = run({"plain", "liar"}, &store_);
  EXPECT_EQ(log_.stores_lost, 1u);
  EXPECT_NE(table.store_error.find("was removed"), std::string::npos) << table.store_error;
  EXPECT_TRUE(table.complete);
  for (const LayerResult& layer : table.layers) EXPECT_EQ(chosen(layer), "plain");
}

TEST_F(TunerTest, TheTableOutlivesAFullDisk) {
  add(small);
  options_.layout = Layout::nchw;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small_files{1024, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small_files), 0);
  const TuneTable table = run({"plain", "liar"}, &store_);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(table.store_error, "");
  EXPECT_EQ(chosen(table.layers[0]), "plain");
  EXPECT_TRUE(store_.verify().empty());
}

TEST_F(TunerTest, LimitsFilterWhatIsRemembered) {
  add(small);
  options_.layout = Layout::nchw;
  options_.max_error = 1;
  run({"plain", "sloppy"}, &store_);
  options_.max_error = 1e-5;
  const LayerResult strict = run({"plain", "sloppy"}, &store_).layers[0];
  EXPECT_EQ(row(strict, "sloppy").status, Status::inaccurate);
  EXPECT_EQ(row(strict, "sloppy").reason, "rel_error 1.00e-03 is above the limit 1.00e-05");
  EXPECT_EQ(chosen(strict), "plain");
  options_.workspace_max = 8;
  EXPECT_EQ(row(run({"plain"}, &store_).layers[0], "plain").reason,
            "needs 64 bytes of workspace, the limit is 8");
  EXPECT_EQ(log_.ended_candidates, 0u);
}

TEST_F(TunerTest, AWiderLimitRunsWhatWasInaccurate) {
  add(small);
  options_.layout = Layout::nchw;
  EXPECT_EQ(row(run({"sloppy"}, &store_).layers[0], "sloppy").status, Status::inaccurate);
  options_.max_error = 1;
  EXPECT_EQ(chosen(run({"sloppy"}, &store_).layers[0]), "sloppy");
}

TEST_F(TunerTest, ADroppedRowRunsAgainWhenWhatBeatItIsOut) {
  add(small);
  options_.layout = Layout::nchw;
  const std::vector<std::string> algos{"plain", "nchw_only", "slow"};
  run(algos, &store_);
  EXPECT_EQ(row(run(algos, &store_).layers[0], "slow").status, Status::dropped);
  options_.exclude = {"plain", "nchw_only"};
  EXPECT_EQ(chosen(run(algos, &store_).layers[0]), "slow");
}

TEST_F(TunerTest, ANewcomerRacesTheIncumbent) {
  add(small);
  options_.layout = Layout::nchw;
  run({"plain"}, &store_);
  std::string ended;
  log_.on_ended = [&](const Candidate& c) { ended += c.algo + " "; };
  const LayerResult layer = run({"plain", "nchw_only"}, &store_).layers[0];
  EXPECT_NE(ended.find("plain"), std::string::npos) << ended;
  EXPECT_NE(ended.find("nchw_only"), std::string::npos) << ended;
  EXPECT_TRUE(layer.chosen);
}

TEST_F(TunerTest, StoppingKeepsWhatIsDoneAndARerunGoesOn) {
  add(small);
  add("mb1ic5ih6oc8oh6kh3ph1");
  options_.layout = Layout::nchw;
  log_.on_begin = [&](std::size_t index) { stop_ = index == 1; };
  const TuneTable partial = run({"plain"}, &store_);
  EXPECT_FALSE(partial.complete);
  EXPECT_GT(partial.remaining_gain, 0);
  EXPECT_FALSE(row(partial.layers[0], "plain").predicted);
  EXPECT_EQ(partial.layers[0].verdict, Verdict::unsure);  // screened, but in no process yet
  EXPECT_EQ(partial.layers[1].verdict, Verdict::predicted);
  EXPECT_TRUE(row(partial.layers[1], "plain").predicted);
  EXPECT_EQ(chosen(partial.layers[1]), "plain");
  stop_ = false;
  log_.on_begin = {};
  const TuneTable whole = run({"plain"}, &store_);
  EXPECT_EQ(log_.ended_candidates, 2u);
  EXPECT_TRUE(whole.complete);
  for (const LayerResult& layer : whole.layers) EXPECT_EQ(layer.verdict, Verdict::only);
}

TEST_F(TunerTest, ALaterRunGoesOnWithAnUnsureRow) {
  add(small);
  options_.layout = Layout::nchw;
  log_.on_process = [&](std::size_t number) { stop_ = number == 3; };
  const LayerResult open = run({"plain", "slow"}, &store_).layers[0];
  EXPECT_EQ(open.verdict, Verdict::unsure);
  EXPECT_EQ(row(open, "plain").process_ms.size(), 2u);
  EXPECT_NE(open.reason, "");
  stop_ = false;
  log_.on_process = {};
  const LayerResult closed = run({"plain", "slow"}, &store_).layers[0];
  EXPECT_EQ(log_.resumed_rows, 2u);
  EXPECT_EQ(closed.verdict, Verdict::win);
  EXPECT_EQ(row(closed, "plain").process_ms[0], row(open, "plain").process_ms[0]);
  EXPECT_GT(row(closed, "plain").process_ms.size(), 2u);
}

TEST_F(TunerTest, WhatWasScreenedIsKnownBeforeAProcessConfirmsIt) {
  add(small);
  options_.layout = Layout::nchw;
  log_.on_process = [&](std::size_t) { stop_ = true; };
  const LayerResult screened = run({"plain", "slow"}, &store_).layers[0];
  stop_ = false;
  log_.on_process = {};
  options_.budget_s = 0;
  const LayerResult known = run({"plain", "slow"}, &store_).layers[0];
  EXPECT_EQ(chosen(known), "plain");
  EXPECT_FALSE(row(known, "plain").predicted);
  EXPECT_EQ(row(known, "plain").ms, row(screened, "plain").ms);
  EXPECT_EQ(known.verdict, Verdict::unsure);
}

// Excluding the winner leaves its runner-up only rivals that were dropped.
TEST_F(TunerTest, WhoIsLeftAloneRacesThoseThatWereDropped) {
  add(small);
  options_.layout = Layout::nchw;
  const std::vector<std::string> algos{"plain", "nchw_only", "chooser"};
  run(algos, &store_);
  for (StoreRow row : store_.rows()) {
    Candidate& c = row.candidate;
    c.status = c.algo == "chooser" ? Status::dropped : Status::ok;
    c.ms = c.algo == "chooser" ? 1.2 : 1;
    c.predicted = false;
    c.process_ms = {1, 1, 1}, c.process_pack_ms = {0, 0, 0};
    row.date = "2026-01-01T00:00:00.000Z";
    store_.put(row);
  }
  options_.exclude = {"plain"};
  const LayerResult layer = run(algos, &store_).layers[0];
  EXPECT_FALSE(row(layer, "chooser").process_ms.empty());
  EXPECT_EQ(row(layer, "chooser").process_ms.size(), row(layer, "nchw_only").process_ms.size());
}

// "slow" ran in different processes beside "nchw_only" than beside "plain".
TEST_F(TunerTest, ProcessesOfTwoRacesAreNotPaired) {
  add(small);
  options_.layout = Layout::nchw;
  run({"plain", "slow"}, &store_);
  run({"nchw_only", "slow"}, &store_);
  run({"plain", "nchw_only"}, &store_);
  run({"plain", "nchw_only"}, &store_);
  EXPECT_EQ(log_.resumed_rows, 2u);  // of one race
  EXPECT_EQ(run({"plain", "nchw_only", "slow"}, &store_).layers[0].candidates.size(), 3u);
  EXPECT_EQ(log_.resumed_rows, 0u);
}

// A backward pass may take long: times raced again are then trusted by later runs.
TEST_F(TunerTest, WhatIsKnownIsNotRacedAgain) {
  add(small);
  add(small, Pass::backward_data);
  options_.layout = Layout::nchw;
  run({"plain"}, &store_);
  for (StoreRow row : store_.rows())
    if (row.problem.pass() == Pass::backward_data) {
      row.candidate.ms *= 10;
      store_.put(row);
    }
  log_.raced_again = 0;
  run({"plain"}, &store_);
  EXPECT_EQ(log_.raced_again, 0u);
  EXPECT_EQ(log_.ended_candidates, 0u);
}

TEST_F(TunerTest, WhatRanIsStoredWhenTheRunFails) {
  add(small);
  options_.layout = Layout::nchw;
  log_.on_process = [&](std::size_t number) {
    if (number == 3) throw EnvironmentError("cannot start a worker");
  };
  EXPECT_THROW(run({"plain", "slow"}, &store_), EnvironmentError);
  ASSERT_EQ(store_.size(), 2);
  EXPECT_EQ(store_.rows()[0].candidate.process_ms.size(), 2u);
}

// A time that contradicts an earlier run is measured once more before it is trusted.
TEST_F(TunerTest, WhatContradictsAnEarlierRunIsRacedAgain) {
  add(small);
  options_.layout = Layout::nchw;
  run({"plain"}, &store_);
  for (StoreRow row : store_.rows()) {
    row.candidate.ms /= 3;
    store_.put(row);
  }
  options_.fresh = true;
  const LayerResult layer = run({"plain"}, &store_).layers[0];
  EXPECT_EQ(log_.raced_again, 1u);
  EXPECT_EQ(layer.verdict, Verdict::only);
}

TEST_F(TunerTest, ASpentBudgetLeavesPredictions) {
  add(small);
  options_.budget_s = 0;
  const TuneTable table = run({"plain", "slow"});
  EXPECT_FALSE(table.complete);
  EXPECT_GT(table.remaining_gain, 0);
  EXPECT_NE(chosen(table.layers[0]), "nothing");
  EXPECT_EQ(log_.ended_candidates, 0u);
}

// The budget includes the time before the tuner: the device, the ceilings, the list.
TEST_F(TunerTest, ABudgetCountsFromTheProgramsStart) {
  add(small);
  options_.budget_s = 1000;
  options_.start -= std::chrono::seconds(2000);
  const TuneTable table = run({"plain", "slow"});
  EXPECT_FALSE(table.complete);
  EXPECT_EQ(table.layers[0].verdict, Verdict::predicted);
  EXPECT_EQ(log_.begun, 0u);
}

TEST_F(TunerTest, ARaceThatMeasuredNothingLeavesWhatTheStoreKnows) {
  add(small);
  options_.layout = Layout::nchw;
  const LayerResult known = run({"plain", "slow"}, &store_).layers[0];
  log_.on_begin = [&](std::size_t) { stop_ = true; };
  for (const std::optional<double> budget_s : {std::optional<double>(), std::optional(1000.0)}) {
    stop_ = false;
    options_.budget_s = budget_s;
    const TuneTable table = run({"plain", "nchw_only", "slow"}, &store_);
    EXPECT_FALSE(table.complete);
    const LayerResult& layer = table.layers[0];
    EXPECT_EQ(chosen(layer), "plain");
    EXPECT_EQ(layer.verdict, Verdict::unsure);  // "nchw_only" may be as fast
    for (const char* algo : {"plain", "slow"}) {
      EXPECT_FALSE(row(layer, algo).predicted);
      EXPECT_EQ(row(layer, algo).ms, row(known, algo).ms);
      EXPECT_EQ(row(layer, algo).process_ms, row(known, algo).process_ms);
    }
  }
  EXPECT_EQ(store_.size(), 2);
  stop_ = false;
  log_.on_begin = {};
  EXPECT_TRUE(run({"plain", "slow"}, &store_).complete);
  EXPECT_EQ(log_.ended_candidates, 0u);
}

// A stopped run stores its measurements beside the rows it did not reach: it overwrites nothing,
// and drops nothing by times from another run.
TEST_F(TunerTest, ARaceThatIsStoppedKeepsWhatItDidNotReach) {
  watch();
  add(small);
  options_.layout = Layout::nchw;
  run({"plain", "slow"}, &store_);
  const auto stored = [&](const std::string& algo) {
    for (const StoreRow& row : store_.rows())
      if (row.candidate.algo == algo) return row.candidate.process_ms;
    return std::vector<double>();
  };
  const std::vector<double> plain = stored("plain"), slow = stored("slow");
  ASSERT_GE(plain.size(), least_processes);
  options_.budget_s = 1000;
  watch_.on_plan = [&] { stop_ = watch_.planned.size() == 1; };
  watch_.planned.clear();
  run({"nchw_only", "plain", "slow"}, &store_);
  ASSERT_EQ(watch_.planned.size(), 1u);
  for (const auto& [algo, processes] : {std::pair{"plain", plain}, {"slow", slow}}) {
    if (watch_.planned.front() == algo) continue;
    EXPECT_EQ(stored(algo), processes) << algo;
  }
  stop_ = false;
  watch_.on_plan = [] {};
  const LayerResult raced = run({"nchw_only", "plain", "slow"}, &store_).layers[0];
  for (const char* algo : {"plain", "nchw_only"})
    EXPECT_GE(row(raced, algo).process_ms.size(), least_processes) << algo;
}

TEST_F(TunerTest, TimesOfTwoRacesAreKnownUnderABudget) {
  add(small);
  options_.layout = Layout::nchw;
  run({"plain", "slow"}, &store_);
  run({"nchw_only", "slow"}, &store_);
  options_.budget_s = 0;
  const LayerResult known = run({"plain", "nchw_only"}, &store_).layers[0];
  EXPECT_FALSE(known.candidates[*known.chosen].predicted);
  EXPECT_TRUE(known.candidates[*known.chosen].process_ms.empty());
  EXPECT_EQ(known.verdict, Verdict::unsure);
  options_.budget_s = 1000;
  const LayerResult raced = run({"plain", "nchw_only"}, &store_).layers[0];
  EXPECT_GE(row(raced, "plain").process_ms.size(), least_processes);
  EXPECT_EQ(row(raced, "plain").process_ms.size(), row(raced, "nchw_only").process_ms.size());
}

TEST_F(TunerTest, UnderABudgetWhatIsSlowToListIsListedWithItsRow) {
  watch("chooser");
  add(small);
  add("mb1ic5ih6oc8oh6kh3ph1");
  options_.layout = Layout::nchw;
  const std::vector<std::string> algos{"plain", "chooser"};
  const auto has_chooser = [](const LayerResult& layer) {
    return std::any_of(layer.candidates.begin(), layer.candidates.end(),
                       [](const Candidate& c) { return c.algo == "chooser"; });
  };
  options_.budget_s = 1e-9;
  TuneTable table = run(algos);
  EXPECT_EQ(watch_.slow_listings, 0);
  for (const LayerResult& layer : table.layers) EXPECT_EQ(chosen(layer), "plain");

  options_.budget_s = 1000;
  log_.on_begin = [&](std::size_t index) { stop_ = index == 1; };
  table = run(algos, &store_);
  EXPECT_EQ(watch_.slow_listings, 2);  // refuse() and configs() for one row
  EXPECT_FALSE(table.complete);
  EXPECT_NE(has_chooser(table.layers[0]), has_chooser(table.layers[1]));

  stop_ = false;
  log_.on_begin = {};
  EXPECT_TRUE(run(algos, &store_).complete);

  // Measured rows are used without listing configs. An unmeasured algorithm is not chosen without
  // listing them.
  watch_.slow_listings = 0;
  options_.budget_s = 1e-9;
  table = run(algos, &store_);
  EXPECT_EQ(watch_.slow_listings, 0);
  for (const LayerResult& layer : table.layers) EXPECT_FALSE(row(layer, "chooser").predicted);

  // Everything is listed if there is no budget, or if no other algorithm accepts any row.
  EXPECT_EQ(chosen(run({"chooser"}).layers[0]), "chooser");
  EXPECT_EQ(watch_.slow_listings, 4);
  options_.budget_s.reset();
  options_.mode = TuneMode::heuristic;
  EXPECT_TRUE(has_chooser(run(algos).layers[1]));
}

}  // namespace
}  // namespace convlab
