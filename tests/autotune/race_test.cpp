#include "autotune/race.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace convlab {
namespace {

// Candidates whose times are scripted: milliseconds of the n-th sample.
class ScriptedRunner : public CandidateRunner {
 public:
  using Script = std::function<double(int sample)>;
  struct Part {
    Script ms;
    std::function<void(Candidate&)> prepare = [](Candidate&) {};
    int prepared = 0, samples = 0, released = 0;
  };

  void prepare(Candidate& c) override {
    Part& part = parts.at(c.algo);
    ++part.prepared;
    part.prepare(c);
  }
  double sample(const Candidate& c, int runs) override {
    Part& part = parts.at(c.algo);
    order += c.algo;
    EXPECT_GE(runs, 1);
    return 1e-3 * machine(int(order.size())) * part.ms(part.samples++);
  }
  void release(const Candidate& c) override { ++parts.at(c.algo).released; }

  std::map<std::string, Part> parts;
  Script machine = [](int) { return 1.0; };  // slows everybody down
  std::string order;                         // of the samples, one letter each
};

ScriptedRunner::Script steady(double ms) {
  return [ms](int) { return ms; };
}
ScriptedRunner::Script noisy(double ms, double spread, std::uint64_t seed) {
  return [ms, spread, random = std::mt19937_64(seed)](int) mutable {
    return std::normal_distribution<double>(ms, spread * ms)(random);
  };
}

struct RaceTest : ::testing::Test {
  void add(const std::string& name, ScriptedRunner::Script ms, double predicted = 1) {
    Candidate c;
    c.algo = name;
    c.ms = predicted;
    c.predicted = true;
    c.deterministic = true;
    candidates.push_back(c);
    runner.parts[name].ms = std::move(ms);
  }
  void run() {
    race(
        candidates, runner, options, [&](const Candidate& c) { ended += c.algo; }, stop);
    decision = decide(candidates, options.count_packing, options.seed);
  }
  Candidate& of(const std::string& name) {
    for (Candidate& c : candidates)
      if (c.algo == name) return c;
    throw std::out_of_range(name);
  }
  std::string chosen() const {
    return decision.chosen ? candidates[*decision.chosen].algo : "nothing";
  }

  std::vector<Candidate> candidates;
  ScriptedRunner runner;
  RaceOptions options;
  std::function<bool()> stop;
  std::string ended;
  Decision decision;
};

TEST_F(RaceTest, TheFastestWinsAndTheRunnerUpGivesTheRatio) {
  add("a", noisy(1.30, 0.01, 1));
  add("b", noisy(1.00, 0.01, 2));
  add("c", noisy(1.15, 0.01, 3));
  run();
  EXPECT_EQ(chosen(), "b");
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_NEAR(decision.ratio[1], 1.15, 0.02);
  EXPECT_NEAR(of("b").ms, 1.0, 0.02);
  EXPECT_GT(of("b").mad_ms, 0);
  EXPECT_FALSE(of("b").predicted);
}

TEST_F(RaceTest, DropsAtTwiceTheBestOnFirstSamples) {
  add("a", steady(1), 1);
  add("b", steady(2.5), 2);
  add("c", steady(40), 3);
  run();
  EXPECT_EQ(of("b").status, Status::dropped);
  EXPECT_EQ(of("b").reason, "2.50 times the best on its first sample");
  EXPECT_LE(runner.parts["c"].samples, 2);
  EXPECT_EQ(runner.parts["c"].released, 1);
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_EQ(decision.ratio, (std::array{2.5, 2.5, 2.5}));
}

TEST_F(RaceTest, OneSlowSampleDropsNobody) {
  add("a", steady(1), 1);
  add(
      "b", [](int n) { return n == 0 ? 50 : 0.8; }, 2);
  run();
  EXPECT_EQ(chosen(), "b");
}

TEST_F(RaceTest, OneLuckySampleWinsNothing) {
  add("a", noisy(1, 0.01, 1));
  add("b", [slow = noisy(1.2, 0.01, 2)](int n) mutable { return n % 9 == 3 ? 0.2 : slow(n); });
  run();
  EXPECT_EQ(chosen(), "a");
  EXPECT_EQ(decision.verdict, Verdict::win);
}

TEST_F(RaceTest, ASlowSpellOfTheMachineFlipsNothing) {
  add("a", noisy(1.00, 0.005, 1));
  add("b", noisy(1.05, 0.005, 2));
  runner.machine = [](int n) { return n < 20 ? 1.0 : 1.8; };
  run();
  EXPECT_EQ(chosen(), "a");
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_NEAR(decision.ratio[1], 1.05, 0.01);
}

TEST_F(RaceTest, EverybodyRunsInEveryRoundInANewOrder) {
  for (const char* name : {"a", "b", "c"}) add(name, steady(3));  // one run is a sample
  run();
  const std::string rounds = runner.order.substr(3);
  ASSERT_EQ(rounds.size() % 3, 0u);
  std::map<std::string, int> orders;
  for (std::size_t i = 0; i < rounds.size(); i += 3) {
    std::string sorted = rounds.substr(i, 3);
    ++orders[sorted];
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, "abc");
  }
  EXPECT_GE(orders.size(), 3u);
  const std::string first = runner.order;
  runner.order.clear();
  for (Candidate& c : candidates) c.samples_ms.clear(), c.ms = 1, c.predicted = true;
  run();
  EXPECT_EQ(runner.order, first);  // seeded
}

TEST_F(RaceTest, ATieIsBrokenByDeterminismThenWorkspaceThenName) {
  for (const char* name : {"d", "c", "b", "a"}) add(name, noisy(1, 0.01, std::uint64_t(*name)));
  options.finalists = 4;
  of("a").deterministic = false;
  of("b").workspace_bytes = of("a").workspace_bytes = 10;
  of("c").workspace_bytes = of("d").workspace_bytes = 5;
  run();
  EXPECT_EQ(decision.verdict, Verdict::tie);
  EXPECT_EQ(chosen(), "c");
}

TEST_F(RaceTest, ATieDoesNotGiveAwayMoreThanTwoPercent) {
  add("a", [](int n) { return n % 3 == 0 ? 0.9 : 1.1; });  // so noisy that anything is a tie
  add("b", steady(1));
  run();
  EXPECT_EQ(decision.verdict, Verdict::tie);
  EXPECT_EQ(chosen(), "b");
}

TEST_F(RaceTest, OnlyTheFewFastestFinish) {
  for (char name = 'a'; name <= 'h'; ++name) add({name}, noisy(1, 0.02, std::uint64_t(name)));
  run();
  std::size_t finished = 0;
  for (const Candidate& c : candidates) finished += c.status == Status::ok;
  EXPECT_EQ(finished, options.finalists);
  EXPECT_EQ(ended.size(), 8u);
}

TEST_F(RaceTest, TheBestTwoFinishHoweverFarApart) {
  for (char name = 'a'; name <= 'f'; ++name) add({name}, noisy(1 + (name - 'a') / 7.0, 0.001, 1));
  run();
  EXPECT_EQ(of("a").status, Status::ok);
  EXPECT_EQ(of("b").status, Status::ok);
  EXPECT_EQ(of("c").status, Status::dropped);
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_NEAR(decision.ratio[1], 8 / 7.0, 0.01);
}

TEST_F(RaceTest, WrongResultsAreNeverTimed) {
  add("a", steady(1));
  add("b", steady(0.01));
  runner.parts["b"].prepare = [](Candidate& c) {
    c.status = Status::inaccurate;
    c.reason = "off";
    c.rel_error = 0.1;
  };
  run();
  EXPECT_EQ(runner.parts["b"].samples, 0);
  EXPECT_EQ(of("b").status, Status::inaccurate);
  EXPECT_EQ(of("b").reason, "off");
  EXPECT_EQ(of("b").ms, 0);
  EXPECT_EQ(chosen(), "a");
}

TEST_F(RaceTest, SurvivesCandidatesThatAreLost) {
  add("a", steady(1));
  add("b", steady(1));
  runner.parts["b"].prepare = [](Candidate&) { throw CandidateLost(Status::timeout, "hung"); };
  add("c", [](int n) -> double {
    if (n == 4) throw CandidateLost(Status::failed, "crashed");
    return 0.5;
  });
  run();
  EXPECT_EQ(of("b").status, Status::timeout);
  EXPECT_EQ(of("c").status, Status::failed);
  EXPECT_EQ(of("c").reason, "crashed");
  EXPECT_TRUE(of("c").samples_ms.empty());
  EXPECT_EQ(chosen(), "a");
  EXPECT_EQ(decision.verdict, Verdict::only);
  EXPECT_EQ(ended.size(), 3u);
}

TEST_F(RaceTest, WhoIsPredictedFarBehindDoesNotRun) {
  add("a", steady(1), 0.5);
  add("b", steady(0.1), 4.5);
  run();
  EXPECT_EQ(runner.parts["b"].prepared, 0);
  EXPECT_EQ(of("b").status, Status::dropped);
  EXPECT_TRUE(of("b").predicted);
  EXPECT_EQ(of("b").reason, "predicted 4.5 times the best, not run");
}

TEST_F(RaceTest, ExhaustiveRunsEverybodyToTheEnd) {
  options = exhaustive_race();
  add("a", noisy(1, 0.01, 1), 1);
  add("b", noisy(9, 0.01, 1), 1000);
  run();
  EXPECT_EQ(of("b").status, Status::ok);
  EXPECT_EQ(of("a").samples_ms.size(), of("b").samples_ms.size());
  EXPECT_GE(of("b").samples_ms.size(), 24u);
}

TEST_F(RaceTest, PackingCountsWhereItIsPaidForEachTime) {
  add("a", noisy(1.0, 0.01, 1));
  add("b", noisy(1.2, 0.01, 2));
  runner.parts["a"].prepare = [](Candidate& c) { c.pack_ms = 0.5; };
  run();
  EXPECT_EQ(chosen(), "a");
  for (Candidate& c : candidates) c.samples_ms.clear(), c.ms = 1, c.status = Status::ok;
  options.count_packing = true;
  run();
  EXPECT_EQ(chosen(), "b");
  EXPECT_NEAR(decision.ratio[1], 1.5 / 1.2, 0.02);
}

TEST_F(RaceTest, StopsWhenTold) {
  for (char name = 'a'; name <= 'e'; ++name) add({name}, steady(1), 1 + (name - 'a') / 10.0);
  stop = [&] { return runner.order.size() >= 2; };
  run();
  EXPECT_EQ(runner.order.size(), 2u);
  EXPECT_EQ(ended, "");  // none has ended: a later run takes them up again
  EXPECT_TRUE(of("e").predicted);
  EXPECT_EQ(of("e").status, Status::ok);
  EXPECT_FALSE(of("a").predicted);
}

TEST_F(RaceTest, StopsInTheMiddleOfARound) {
  for (char name = 'a'; name <= 'e'; ++name) add({name}, steady(3 + (name - 'a') / 10.0));
  stop = [&] { return runner.order.size() >= 5 + 3 * 5 + 2; };
  run();
  EXPECT_EQ(runner.order.size(), 5 + 3 * 5 + 2u);
  EXPECT_EQ(ended, "");
  EXPECT_EQ(chosen(), "a");
}

TEST(Decide, NothingOrOne) {
  EXPECT_EQ(decide({}, false, 1).verdict, Verdict::none);
  Candidate c;
  c.ms = 1;
  c.samples_ms = {1};
  EXPECT_EQ(decide(std::vector{c}, false, 1).verdict, Verdict::only);
  c.status = Status::failed;
  EXPECT_EQ(decide(std::vector{c}, false, 1).chosen, std::nullopt);
}

}  // namespace
}  // namespace convlab
