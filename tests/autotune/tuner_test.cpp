#include "autotune/tuner.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>

#include "autotune/decide.h"
#include "conv/error.h"
#include "conv/forwarding_algo.h"
#include "conv/slow_listing.h"
#include "kernels_cpu/cpu.h"
#include "tests/autotune/test_algos.h"

namespace convlab {
namespace {

struct Log : TuneProgress {
  void resumed(std::size_t rows, std::size_t failed) override {
    resumed_rows = rows;
    resumed_failed = failed;
  }
  void store_lost(const std::string&) override { ++stores_lost; }
  void begin(const TuneItem&, std::size_t index, std::size_t total) override {
    ++begun, of = total;
    if (on_begin) on_begin(index);
  }
  void process(std::size_t number, std::size_t) override {
    if (on_process) on_process(number);
  }
  void ended(const ConvProblem&, const Candidate& c) override {
    ++ended_candidates;
    if (on_ended) on_ended(c);
  }
  void again(const TuneItem&, const std::string&) override { ++raced_again; }
  void end(const LayerResult&, std::size_t, std::size_t) override { ++finished; }

  std::size_t resumed_rows = 0, resumed_failed = 0, stores_lost = 0, begun = 0, of = 0,
              ended_candidates = 0, finished = 0, raced_again = 0;
  std::function<void(const Candidate&)> on_ended;
  std::function<void(std::size_t)> on_begin, on_process;
};

// What the tuner asks of the test algorithms.
struct Watch {
  std::vector<std::string> planned;
  int slow_listings = 0;  // questions to the one that is slow to list
  std::function<void()> on_plan = [] {};
};

class WatchedAlgo : public ForwardingAlgo {
 public:
  WatchedAlgo(const ConvAlgo& algo, Watch& watch) : ForwardingAlgo(algo), watch_(watch) {}
  std::unique_ptr<ConvPlan> plan(const ConvProblem& problem, const Config& config,
                                 Device& device) const override {
    watch_.planned.push_back(info().id);
    watch_.on_plan();
    return ForwardingAlgo::plan(problem, config, device);
  }

 protected:
  Watch& watch_;
};

class SlowlyListedAlgo : public WatchedAlgo, public SlowListing {
 public:
  using WatchedAlgo::WatchedAlgo;
  std::optional<Refusal> refuse(const ConvProblem& problem, Device& device) const override {
    ++watch_.slow_listings;
    return WatchedAlgo::refuse(problem, device);
  }
  std::vector<Config> configs(const ConvProblem& problem, Device& device) const override {
    ++watch_.slow_listings;
    return WatchedAlgo::configs(problem, device);
  }
};

class TunerTest : public ::testing::Test {
 protected:
  TunerTest() { options_.in_process = true; }
  ~TunerTest() override { std::filesystem::remove_all(directory_); }

  void add(std::string_view text, Pass pass = Pass::forward, bool first_layer = false) {
    TuneItem item{parse_problem(text), first_layer};
    item.layer.problem.pass = pass;
    items_.push_back(item);
  }
  TuneTable run(std::vector<std::string> algos, Store* store = nullptr) {
    options_.algos = std::move(algos);
    log_.resumed_rows = log_.begun = log_.of = log_.ended_candidates = log_.finished = 0;
    return tune(items_, options_, make_registry_, *device_, store, &log_, &stop_);
  }
  void watch(const std::string& slow_to_list = "") {
    append_test_algos(watched_);
    make_registry_ = [this, slow_to_list](AlgoRegistry& registry) {
      for (const ConvAlgo* algo : watched_.all())
        if (algo->info().id == slow_to_list)
          registry.append(std::make_unique<SlowlyListedAlgo>(*algo, watch_));
        else
          registry.append(std::make_unique<WatchedAlgo>(*algo, watch_));
    };
  }
  static const Candidate& row(const LayerResult& layer, const std::string& algo) {
    for (const Candidate& c : layer.candidates)
      if (c.algo == algo) return c;
    throw std::out_of_range(algo);
  }
  static std::string chosen(const LayerResult& layer) {
    return layer.chosen ? layer.candidates[*layer.chosen].algo : "nothing";
  }

  std::unique_ptr<Device> device_ = make_cpu_device();
  std::vector<TuneItem> items_;
  TuneOptions options_;
  Log log_;
  std::atomic<bool> stop_ = false;
  RegistryMaker make_registry_ = append_test_algos;
  AlgoRegistry watched_;
  Watch watch_;

 private:
  static std::filesystem::path make_directory() {
    std::string name = std::filesystem::temp_directory_path() / "convlab_tuner_XXXXXX";
    return mkdtemp(name.data());
  }
  std::filesystem::path directory_ = make_directory();

 protected:
  Store store_{directory_ / "tune.db"};
};

constexpr const char* small = R"(mb1ic4ih6oc8oh6kh3ph1n"conv*3")";

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

TEST_F(TunerTest, AWorkerSurvivesCrashesHangsAndLies) {
  options_.in_process = false;
  options_.timeout_s = 5;
  options_.layout = Layout::nchw;
  add(small);
  const LayerResult layer = run({}, &store_).layers[0];
  EXPECT_EQ(row(layer, "segfault").status, Status::failed);
  EXPECT_EQ(row(layer, "abort").status, Status::failed);
  EXPECT_EQ(row(layer, "exit").status, Status::refused);
  EXPECT_EQ(row(layer, "killed").status, Status::refused);
  EXPECT_EQ(row(layer, "liar").status, Status::failed);
  EXPECT_EQ(row(layer, "thrower").status, Status::failed);
  EXPECT_EQ(row(layer, "late_segfault").status, Status::failed);
  EXPECT_EQ(row(layer, "hang").status, Status::timeout);
  EXPECT_EQ(row(layer, "sloppy").status, Status::inaccurate);
  EXPECT_EQ(row(layer, "greedy").status, Status::refused);
  EXPECT_EQ(row(layer, "picky").status, Status::refused);
  const std::string best = chosen(layer);
  // These three do the same.
  EXPECT_TRUE(best == "plain" || best == "nchw_only" || best == "chooser") << best;
  // Refusals are found again; all else is remembered.
  const auto refused =
      std::count_if(layer.candidates.begin(), layer.candidates.end(),
                    [](const Candidate& c) { return c.status == Status::refused; });
  EXPECT_EQ(refused, 7);
  EXPECT_EQ(store_.size(), std::int64_t(layer.candidates.size()) - refused);
}

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
  options_.budget_s = 0;  // is enough for nothing
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
  for (StoreRow row : store_.rows())
    if (row.candidate.algo == "slow") {  // a busy machine may have kept it to the end
      row.candidate.status = Status::dropped;
      store_.put(row);
    }
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
  EXPECT_EQ(partial.layers[0].verdict, Verdict::unsure);  // screened, and in no process yet
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

// Without the one that won, its runner-up has only rivals that were dropped.
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

// "slow" ran in other processes beside "nchw_only" than beside "plain".
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

// A backward pass may take long: what was raced again then is believed later.
TEST_F(TunerTest, WhatIsKnownIsNotRacedAgain) {
  add(small);
  add(small, Pass::backward_data);
  options_.layout = Layout::nchw;
  run({"plain"}, &store_);
  for (StoreRow row : store_.rows())
    if (row.problem.pass == Pass::backward_data) {
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

// A time that contradicts what an earlier run found is measured once more before it is believed.
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

// The error of "sloppy" is 1e-3 in the problem that was run, so it is not chosen unseen in another.
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

TEST_F(TunerTest, ASpentBudgetLeavesPredictions) {
  add(small);
  options_.budget_s = 0;
  const TuneTable table = run({"plain", "slow"});
  EXPECT_FALSE(table.complete);
  EXPECT_GT(table.remaining_gain, 0);
  EXPECT_NE(chosen(table.layers[0]), "nothing");
  EXPECT_EQ(log_.ended_candidates, 0u);
}

// What came before the tuner counts: the device, the ceilings, the list.
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

// What a stopped run measured stands in the store beside what it did not reach: nothing is written
// over, nothing dropped by times of another moment.
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
  EXPECT_EQ(watch_.slow_listings, 2);  // refuse() and configs() of one row
  EXPECT_FALSE(table.complete);
  EXPECT_NE(has_chooser(table.layers[0]), has_chooser(table.layers[1]));

  stop_ = false;
  log_.on_begin = {};
  EXPECT_TRUE(run(algos, &store_).complete);

  // What was measured is known without being listed, and what was not is not chosen unseen.
  watch_.slow_listings = 0;
  options_.budget_s = 1e-9;
  table = run(algos, &store_);
  EXPECT_EQ(watch_.slow_listings, 0);
  for (const LayerResult& layer : table.layers) EXPECT_FALSE(row(layer, "chooser").predicted);

  // Without a budget, and where nothing else takes any row, everything is listed.
  EXPECT_EQ(chosen(run({"chooser"}).layers[0]), "chooser");
  EXPECT_EQ(watch_.slow_listings, 4);
  options_.budget_s.reset();
  options_.mode = TuneMode::heuristic;
  EXPECT_TRUE(has_chooser(run(algos).layers[1]));
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
