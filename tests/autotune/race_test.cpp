#include "autotune/race/race.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace convlab {
namespace {

// Candidates with scripted times: milliseconds of the n-th sample. All processes share the script.
class Script {
 public:
  using Times = std::function<double(int sample)>;
  struct Part {
    Times ms;
    std::function<void(Candidate&)> prepare = [](Candidate&) {};
    int prepared = 0, samples = 0, released = 0;
    double pack_ms = 0;
  };

  std::map<std::string, Part> parts;
  Times machine = [](int) { return 1.0; };  // slows every candidate
  std::function<double(const std::string& algo, int sample)> lost = [](const std::string&, int) {
    return 0.0;
  };
  std::string order;  // samples in run order, one letter each; '|' begins a process
  double now_s = 0;
};

class ScriptedProcess : public CandidateRunner {
 public:
  explicit ScriptedProcess(Script& script) : script_(script) { script_.order += '|'; }
  void prepare(Candidate& c) override {
    Script::Part& part = script_.parts.at(c.algo);
    ++part.prepared;
    part.prepare(c);
  }
  Sample sample(const Candidate& c, Timed timed, int runs) override {
    Script::Part& part = script_.parts.at(c.algo);
    EXPECT_GE(runs, 1);
    script_.now_s += 1e-3;
    if (timed == Timed::pack) return {1e-3 * part.pack_ms, 0};
    if (timed == Timed::convert) return {0, 0};
    script_.order += c.algo;
    const double lost = script_.lost(c.algo, part.samples);
    return {1e-3 * script_.machine(int(script_.order.size())) * part.ms(part.samples++), lost};
  }
  void release(const Candidate& c) override { ++script_.parts.at(c.algo).released; }

 private:
  Script& script_;
};

Script::Times steady(double ms) {
  return [ms](int) { return ms; };
}
Script::Times noisy(double ms, double spread, std::uint64_t seed) {
  return [ms, spread, random = std::mt19937_64(seed)](int) mutable {
    return std::normal_distribution<double>(ms, spread * ms)(random);
  };
}

struct RaceTest : ::testing::Test {
  void add(const std::string& name, Script::Times ms, double predicted = 1) {
    Candidate c;
    c.algo = name;
    c.ms = predicted;
    c.predicted = true;
    c.deterministic = true;
    candidates.push_back(c);
    script.parts[name].ms = std::move(ms);
  }
  void run() {
    Sampler sampler(
        stop, {.now = [&] { return script.now_s; }, .sleep = [&](double s) { script.now_s += s; }});
    race(
        candidates, [&] { return std::make_unique<ScriptedProcess>(script); }, sampler, options,
        [&](const Candidate& c) { ended += c.algo; });
    decision = decide(candidates, options.count_packing);
  }
  Candidate& of(const std::string& name) {
    for (Candidate& c : candidates)
      if (c.algo == name) return c;
    throw std::out_of_range(name);
  }
  std::string chosen() const {
    return decision.chosen ? candidates[*decision.chosen].algo : "nothing";
  }
  int processes() const { return int(std::count(script.order.begin(), script.order.end(), '|')); }

  std::vector<Candidate> candidates;
  Script script;
  RaceOptions options;
  std::function<bool()> stop;
  std::string ended;
  Decision decision;
};

TEST_F(RaceTest, TheFastestWinsAndTheRunnerUpGivesTheRatio) {
  add("a", noisy(1.30, 0.005, 1));
  add("b", noisy(1.00, 0.005, 2));
  add("c", noisy(1.15, 0.005, 3));
  run();
  EXPECT_EQ(chosen(), "b");
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_NEAR(decision.ratio[1], 1.15, 0.02);
  EXPECT_GT(decision.ratio[0], 1.1);
  EXPECT_NEAR(of("b").ms, 1.0, 0.02);
  EXPECT_NEAR(of("c").ms / of("b").ms, decision.ratio[1], 1e-9);
  EXPECT_GT(of("b").mad_ms, 0);
  EXPECT_FALSE(of("b").predicted);
  EXPECT_GE(of("b").process_ms.size(), least_processes);
  EXPECT_EQ(of("b").process_ms.size(), of("c").process_ms.size());
}

TEST_F(RaceTest, DropsAtTwiceTheBestSideBySide) {
  add("a", steady(1), 1);
  add("b", steady(1.1), 2);
  add("c", steady(40), 3);
  run();
  EXPECT_EQ(of("c").status, Status::dropped);
  EXPECT_EQ(of("c").reason, "40.00 times the best then, side by side");
  EXPECT_LE(script.parts["c"].samples, 3);
  EXPECT_EQ(script.parts["c"].released, 1);
  EXPECT_EQ(decision.verdict, Verdict::win);
}

// The machine slows down tenfold during the best candidate's first look, and the candidate before
// it was measured in a fast moment. Times from that moment must not drop anybody.
TEST_F(RaceTest, NobodyIsDroppedForAMomentsWeather) {
  add("a", steady(1.5), 1);
  add("b", steady(1.4), 2);
  add("c", steady(1), 3);
  script.machine = [](int n) { return n > 5 && n < 200 ? 10.0 : 1.0; };
  run();
  EXPECT_EQ(of("c").status, Status::ok) << of("c").reason;
  EXPECT_EQ(chosen(), "c");
}

TEST_F(RaceTest, NobodyRanksBelowOneThatTookLonger) {
  for (char name = 'a'; name <= 'h'; ++name)
    add({name}, noisy(1 + (name - 'a') / 20.0, 0.01, std::uint64_t(name)));
  script.machine = [](int n) { return n < 40 ? 0.5 : 1.0; };  // screening runs in a fast period
  run();
  const double best = of(chosen()).ms;
  for (const Candidate& c : candidates) EXPECT_GE(c.ms, 0.98 * best) << c.algo << c.reason;
}

TEST_F(RaceTest, OneLuckySampleWinsNothing) {
  add("a", noisy(1, 0.005, 1));
  add("b", [slow = noisy(1.2, 0.005, 2)](int n) mutable { return n % 9 == 3 ? 0.2 : slow(n); });
  run();
  EXPECT_EQ(chosen(), "a");
  EXPECT_NE(decision.verdict, Verdict::tie);
}

TEST_F(RaceTest, ASlowSpellOfTheMachineFlipsNothing) {
  add("a", noisy(1.00, 0.003, 1));
  add("b", noisy(1.05, 0.003, 2));
  script.machine = [](int n) { return n < 40 ? 1.0 : 1.8; };
  run();
  EXPECT_EQ(chosen(), "a");
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_NEAR(decision.ratio[1], 1.05, 0.01);
}

TEST_F(RaceTest, DisturbedSamplesAreTakenAgainAndStandNowhere) {
  add("a", noisy(1.00, 0.003, 1));
  add("b", noisy(1.20, 0.003, 2));
  // Every third sample of both takes ten times as long.
  script.lost = [&](const std::string&, int n) { return n % 3 == 1 ? 0.9 : 0.0; };
  const auto disturbed = [](Script::Times ms) {
    return [ms = std::move(ms)](int n) { return ms(n) * (n % 3 == 1 ? 10 : 1); };
  };
  for (auto& [name, part] : script.parts) part.ms = disturbed(part.ms);
  run();
  EXPECT_EQ(chosen(), "a");
  EXPECT_EQ(decision.verdict, Verdict::win);
  for (const Candidate& c : candidates)
    for (const double ms : c.samples_ms) EXPECT_LT(ms, 1.5);
}

TEST_F(RaceTest, WhatIsNeverUndisturbedStaysAPrediction) {
  add("a", steady(1), 0.7);
  add("b", steady(2), 0.8);
  script.lost = [](const std::string&, int) { return 0.5; };
  run();
  EXPECT_EQ(decision.verdict, Verdict::predicted);
  EXPECT_EQ(of("a").ms, 0.7);
  EXPECT_EQ(ended, "");
}

TEST_F(RaceTest, NoVerdictWithoutThreeProcesses) {
  add("a", noisy(1, 0.003, 1));
  add("b", noisy(3, 0.003, 2));
  stop = [&] { return processes() > 3; };
  run();
  EXPECT_EQ(decision.verdict, Verdict::unsure);
  EXPECT_EQ(chosen(), "a");
  EXPECT_EQ(decision.reason, "ran undisturbed in 2 of at least 3 processes");
}

TEST_F(RaceTest, ALaterRaceGoesOnFromTheProcessesOfAnEarlierOne) {
  add("a", noisy(1, 0.003, 1));
  add("b", noisy(1.1, 0.003, 2));
  stop = [&] { return processes() > 3; };
  run();
  const std::vector<double> before = of("a").process_ms;
  ASSERT_EQ(before.size(), 2u);
  of("b").process_ms.push_back(9), of("b").process_pack_ms.push_back(0);  // killed between records
  Sampler sampler({}, {.now = [&] { return script.now_s; }, .sleep = [](double) {}});
  Finals finals(candidates, options);
  while (finals.open()) finals.run_process(*std::make_unique<ScriptedProcess>(script), sampler);
  EXPECT_EQ(of("a").process_ms.size(), of("b").process_ms.size());
  EXPECT_EQ(of("a").process_ms[1], before[1]);
  EXPECT_LT(of("b").process_ms[2], 2);
  EXPECT_EQ(decide(candidates, false).verdict, Verdict::win);
}

TEST_F(RaceTest, EverybodyRunsInEveryRoundInANewOrder) {
  for (const char* name : {"a", "b", "c"}) add(name, noisy(3, 0.02, std::uint64_t(*name)));
  run();
  const std::size_t second = script.order.find('|', 1);
  const std::string first_final =
      script.order.substr(second + 1, script.order.find('|', second + 1) - second - 1);
  ASSERT_EQ(first_final.size() % 3, 0u) << script.order;
  for (std::size_t i = 0; i < first_final.size(); i += 3) {
    std::string sorted = first_final.substr(i, 3);
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, "abc");
  }
}

TEST_F(RaceTest, ATieIsBrokenByDeterminismThenWorkspaceThenName) {
  for (const char* name : {"d", "c", "b", "a"}) add(name, noisy(1, 0.003, std::uint64_t(*name)));
  of("a").deterministic = false;
  of("b").workspace_bytes = of("a").workspace_bytes = 10;
  of("c").workspace_bytes = of("d").workspace_bytes = 5;
  run();
  EXPECT_EQ(decision.verdict, Verdict::tie);
  EXPECT_EQ(chosen(), "c");
}

TEST_F(RaceTest, OnlyTheFewFastestReachTheFinals) {
  for (char name = 'a'; name <= 'h'; ++name) add({name}, noisy(1, 0.02, std::uint64_t(name)));
  run();
  std::size_t finished = 0;
  for (const Candidate& c : candidates) finished += c.status == Status::ok;
  EXPECT_LE(finished, options.finalists);
  EXPECT_GE(finished, 2u);
}

TEST_F(RaceTest, TheBestTwoFinishHoweverFarApart) {
  for (char name = 'a'; name <= 'f'; ++name) add({name}, noisy(1 + (name - 'a') / 2.0, 0.001, 1));
  run();
  EXPECT_EQ(of("a").status, Status::ok);
  EXPECT_EQ(of("b").status, Status::ok);
  EXPECT_EQ(of("c").status, Status::dropped);
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_NEAR(decision.ratio[1], 1.5, 0.01);
  EXPECT_GT(decision.ratio[0], 1.4);
}

// All predictions are far too slow. They must rule out no candidate, even if the first one measured
// is best.
TEST_F(RaceTest, ThePredictionOfTheBestIsHeldAgainstOthers) {
  add("a", noisy(1, 0.003, 1), 8);
  add("b", noisy(1.3, 0.003, 2), 9);
  add("c", noisy(1.2, 0.003, 3), 10);
  run();
  EXPECT_GT(script.parts["c"].samples, 0);
  EXPECT_FALSE(of("c").predicted);
}

TEST_F(RaceTest, ABestThatIsLostIsLostOnce) {
  for (char name = 'b'; name <= 'g'; ++name) add({name}, steady(10 + name - 'b'), name - 'b' + 1.);
  add(
      "a",
      [](int n) -> double {
        if (n > 0) throw CandidateLost(Status::timeout, "hung");
        return 3;
      },
      7);
  run();
  EXPECT_EQ(std::count(ended.begin(), ended.end(), 'a'), 1) << ended;
  EXPECT_EQ(chosen(), "b");
}

// Two candidates with equal predictions swap places after the last look.
TEST_F(RaceTest, ARaceThatStopsBetweenTwoLooksHasTimesOfAllProcesses) {
  add("a", noisy(1, 0.003, 1));
  add("b", noisy(1.05, 0.003, 2));
  stop = [&] { return processes() > 5; };
  script.machine = [&](int) { return processes() < 3 ? 1.0 : 3.0; };
  run();
  ASSERT_EQ(of("a").process_ms.size(), 4u);
  std::vector<double> ms = of("a").process_ms;
  std::sort(ms.begin(), ms.end());
  EXPECT_DOUBLE_EQ(of("a").ms, (ms[1] + ms[2]) / 2);
}

TEST_F(RaceTest, NobodyLeftEndsTheFinals) {
  add("a", noisy(1, 0.003, 1));
  script.parts["a"].prepare = [&](Candidate& c) {
    if (script.parts["a"].prepared == 2) c.status = Status::inaccurate, c.rel_error = 0.5;
  };
  run();
  EXPECT_EQ(decision.verdict, Verdict::none);
  EXPECT_EQ(of("a").rel_error, 0.5);
  EXPECT_EQ(processes(), 2);
}

TEST_F(RaceTest, WrongResultsAreNeverTimed) {
  add("a", steady(1));
  add("b", steady(0.01));
  script.parts["b"].prepare = [](Candidate& c) {
    c.status = Status::inaccurate;
    c.reason = "off";
    c.rel_error = 0.1;
  };
  run();
  EXPECT_EQ(script.parts["b"].samples, 0);
  EXPECT_EQ(of("b").status, Status::inaccurate);
  EXPECT_EQ(of("b").reason, "off");
  EXPECT_EQ(of("b").ms, 0);
  EXPECT_EQ(chosen(), "a");
  EXPECT_EQ(decision.verdict, Verdict::only);
}

TEST_F(RaceTest, AWrongResultInAnyProcessEndsACandidate) {
  add("a", noisy(1, 0.003, 1));
  add("b", noisy(1.2, 0.003, 2));
  script.parts["a"].prepare = [&](Candidate& c) {
    if (script.parts["a"].prepared == 3) c.status = Status::failed, c.reason = "off at last";
  };
  run();
  EXPECT_EQ(of("a").status, Status::failed);
  EXPECT_EQ(of("a").reason, "off at last");
  EXPECT_TRUE(of("a").process_ms.empty());
  EXPECT_EQ(chosen(), "b");
}

TEST_F(RaceTest, SurvivesCandidatesThatAreLost) {
  add("a", steady(1));
  add("b", steady(1));
  script.parts["b"].prepare = [](Candidate&) { throw CandidateLost(Status::timeout, "hung"); };
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
}

TEST_F(RaceTest, WhoIsPredictedFarBehindDoesNotRunOnceTwoAreMeasured) {
  add("a", steady(1), 0.5);
  add("b", steady(1.2), 30);
  add("c", steady(0.1), 31);
  run();
  EXPECT_EQ(script.parts["c"].prepared, 0);
  EXPECT_EQ(of("c").status, Status::dropped);
  EXPECT_TRUE(of("c").predicted);
  EXPECT_EQ(of("c").reason, "predicted 31.0 times the best, not run");
  EXPECT_EQ(of("b").status, Status::ok);
}

TEST_F(RaceTest, ExhaustiveRunsEverybodyToTheEnd) {
  options = exhaustive_race();
  add("a", noisy(1, 0.003, 1), 1);
  add("b", noisy(9, 0.003, 1), 1000);
  add("c", noisy(5, 0.003, 1), 1000);
  run();
  EXPECT_EQ(of("b").status, Status::ok);
  EXPECT_EQ(of("c").status, Status::ok);
  EXPECT_EQ(of("a").process_ms.size(), of("b").process_ms.size());
}

TEST_F(RaceTest, PackingCountsWhereItIsPaidForEachTime) {
  add("a", noisy(1.0, 0.003, 1));
  add("b", noisy(1.2, 0.003, 2));
  of("a").packed_filter_bytes = 1;
  script.parts["a"].pack_ms = 0.5;
  const std::vector<Candidate> before = candidates;
  run();
  EXPECT_EQ(chosen(), "a");
  candidates = before;
  options.count_packing = true;
  run();
  EXPECT_EQ(chosen(), "b");
  EXPECT_NEAR(decision.ratio[1], 1.5 / 1.2, 0.02);
}

TEST_F(RaceTest, StopsWhenTold) {
  for (char name = 'a'; name <= 'e'; ++name) add({name}, steady(3), 1 + (name - 'a') / 10.0);
  stop = [&] { return script.order.size() >= 3; };
  run();
  EXPECT_EQ(script.order, "|ab");
  EXPECT_EQ(ended, "");  // none has ended: a later run resumes them
  EXPECT_TRUE(of("e").predicted);
  EXPECT_EQ(of("e").status, Status::ok);
}

// A process interrupted in the middle leaves no times.
TEST_F(RaceTest, StopsInTheMiddleOfAProcess) {
  for (char name = 'a'; name <= 'c'; ++name) add({name}, steady(3 + (name - 'a') / 100.0));
  stop = [&] { return processes() == 3 && script.order.size() % 7 == 0; };
  run();
  EXPECT_EQ(ended, "");
  EXPECT_EQ(chosen(), "a");
  for (const Candidate& c : candidates) EXPECT_EQ(c.process_ms.size(), 1u);
}

Candidate ran(const std::string& algo, std::vector<double> process_ms) {
  Candidate c;
  c.algo = algo;
  c.deterministic = true;
  c.process_ms = process_ms;
  c.process_pack_ms.assign(process_ms.size(), 0);
  return c;
}

Decision decided(std::vector<Candidate> candidates) {
  std::vector<Candidate*> all;
  for (Candidate& c : candidates) all.push_back(&c);
  settle_times(all, false);
  return decide(candidates, false);
}

TEST(Decide, NothingOrOne) {
  EXPECT_EQ(decide({}, false).verdict, Verdict::none);
  const Candidate one = ran("a", {1, 1, 1});
  EXPECT_EQ(decided({one}).verdict, Verdict::only);
  EXPECT_EQ(decided({ran("a", {1, 1})}).verdict, Verdict::unsure);
  Candidate other = ran("b", {});
  other.status = Status::failed;
  EXPECT_EQ(decide(std::vector{one, other}, false).verdict, Verdict::only);
  other.status = Status::dropped;
  EXPECT_EQ(decide(std::vector{one, other}, false).verdict, Verdict::unsure);
  other.status = Status::ok;
  other.predicted = true;
  EXPECT_EQ(decide(std::vector{one, other}, false).verdict, Verdict::unsure);
  other.ms = 2;
  EXPECT_EQ(decide(std::vector{other}, false).verdict, Verdict::predicted);
  EXPECT_EQ(decide(std::vector{other}, false).ratio, (std::array{0.0, 0.0, 0.0}));
  Candidate slower = other;
  slower.ms = 3;
  EXPECT_EQ(decide(std::vector{slower, other}, false).chosen, 1u);
  EXPECT_EQ(decide(std::vector{slower, other}, false).ratio, (std::array{0.0, 1.5, 0.0}));
}

// A candidate that could not be measured may be faster than both.
TEST(Decide, NobodyWinsOrTiesWhileARivalIsOnlyPredicted) {
  const Candidate a = ran("a", {1, 1, 1, 1, 1});
  Candidate open = ran("open", {});
  open.predicted = true;
  open.ms = 0.5;
  for (const double of_b : {1.0, 1.3}) {
    const Candidate b = ran("b", std::vector(5, of_b));
    EXPECT_NE(decided({a, b}).verdict, Verdict::unsure);
    std::vector<Candidate> three{a, b, open};
    std::vector<Candidate*> measured{&three[0], &three[1]};
    settle_times(measured, false);
    const Decision decision = decide(three, false);
    EXPECT_EQ(decision.verdict, Verdict::unsure);
    EXPECT_NE(decision.reason.find("open"), std::string::npos) << decision.reason;
    EXPECT_EQ(decide_among_measured(three, false).verdict, decided({a, b}).verdict);
  }
}

TEST(Decide, ByTheWholeInterval) {
  const Candidate a = ran("a", {1, 1.01, 0.99, 1, 1.005, 0.995});
  EXPECT_EQ(decided({a, ran("b", {1.1, 1.1, 1.1, 1.11, 1.1, 1.09})}).verdict, Verdict::win);
  EXPECT_EQ(decided({a, ran("b", {1, 1, 1, 1.01, 1, 0.99})}).verdict, Verdict::tie);
  const Decision open = decided({a, ran("b", {1.1, 1, 1.05, 0.99, 1.02, 1})});
  EXPECT_EQ(open.verdict, Verdict::unsure);
  EXPECT_LT(open.ratio[0], 1.01);
  EXPECT_GT(open.ratio[2], 1.02);
  EXPECT_NE(open.reason.find("6 processes"), std::string::npos);
}

// All three processes may be outliers.
TEST(Decide, ThreeProcessesShowOnlyWhatIsLarge) {
  const Candidate a = ran("a", {1, 1.001, 0.999});
  EXPECT_EQ(decided({a, ran("b", {1.07, 1.071, 1.069})}).verdict, Verdict::unsure);
  EXPECT_EQ(decided({a, ran("b", {1.5, 1.501, 1.499})}).verdict, Verdict::win);
}

TEST(Decide, AnOddProcessOfTwelveIsTrimmed) {
  std::vector<double> a(12, 1.0), b(12, 1.05);
  for (std::size_t i = 0; i < 12; ++i) b[i] += 0.002 * double(i % 3);
  b[5] = 0.8;
  const std::array<double, 3> ratio = process_ratio(b, a);
  EXPECT_NEAR(ratio[1], 1.052, 0.003);
  EXPECT_GT(ratio[0], 1.04);
}

TEST(Decide, IntervalsAreStudents) {
  // Mean 0.02, standard deviation 0.01 of 4: 3.182 * 0.01 / 2.
  const double s = 0.01 * std::sqrt(0.75);
  const std::vector<double> b(4, 1.0),
      a{std::exp(0.02 - s), std::exp(0.02 - s), std::exp(0.02 + s), std::exp(0.02 + s)};
  const std::array<double, 3> ratio = process_ratio(a, b);
  EXPECT_NEAR(std::log(ratio[1]), 0.02, 1e-12);
  EXPECT_NEAR(std::log(ratio[2] / ratio[1]), 3.18245 * 0.01 / 2, 1e-7);
  EXPECT_NEAR(std::log(process_ratio(a, b, Confidence::winning)[2] / ratio[1]),
              11.2650066 * 0.01 / 2, 1e-7);
  EXPECT_EQ(process_ratio(std::vector{2.0, 2.0}, b), (std::array{0.0, 2.0, 0.0}));
}

}  // namespace
}  // namespace convlab
