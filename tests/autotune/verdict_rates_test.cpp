// How often verdicts are wrong, over thousands of races on simulated machines. Limits are well
// above the observed rates, since other seeds change those.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/autotune/simulated_machine.h"

namespace convlab {
namespace {

using Setup = std::function<void(SimulatedMachine&)>;

struct Rates {
  double win = 0, tie = 0, unsure = 0, wrong_win = 0, slow_choice = 0, off_time = 0;
  double processes = 0;
};

// Races of candidates a, b, ... with these times. A win is wrong if the best is not the chosen or
// is faster by less than 1%; a choice is slow if it is over 2% slower than the best.
Rates rates(const std::vector<double>& times, const Setup& setup, int races = 1000) {
  Rates r;
  const double best = *std::min_element(times.begin(), times.end());
  for (int seed = 0; seed < races; ++seed) {
    SimulatedMachine machine{std::uint64_t(seed)};
    for (std::size_t i = 0; i < times.size(); ++i)
      machine.ms[std::string(1, char('a' + i))] = times[i];
    setup(machine);
    std::vector<Candidate> all = machine.candidates();
    RaceOptions options;
    options.seed = std::uint64_t(seed);
    const Decision d = machine.race(all, options);
    const double each = 1.0 / races;
    r.processes += each * machine.processes;
    r.unsure += each * (d.verdict == Verdict::unsure || d.verdict == Verdict::predicted);
    if (d.verdict != Verdict::win && d.verdict != Verdict::tie) continue;
    const double chosen = machine.ms.at(all[*d.chosen].algo);
    r.win += each * (d.verdict == Verdict::win);
    r.tie += each * (d.verdict == Verdict::tie);
    double next = HUGE_VAL;
    for (const auto& [name, ms] : machine.ms)
      if (name != all[*d.chosen].algo) next = std::min(next, ms);
    r.wrong_win += each * (d.verdict == Verdict::win && next < 1.01 * chosen);
    r.slow_choice += each * (chosen > 1.02 * best);
    r.off_time += each * (std::abs(std::log(all[*d.chosen].ms / chosen)) > 0.05);
  }
  return r;
}

Setup offset(double deviation) {
  return [=](SimulatedMachine& m) { m.process_offset = deviation; };
}

TEST(VerdictRates, EqualCandidatesHardlyEverWin) {
  for (const double deviation : {0.003, 0.01, 0.03, 0.05, 0.10}) {
    EXPECT_LE(rates({1, 1}, offset(deviation), 4000).win, 0.01) << deviation;
    EXPECT_LE(rates({1, 1, 1, 1}, offset(deviation)).win, 0.01) << deviation;
  }
  EXPECT_GE(rates({1, 1}, offset(0.005)).tie, 0.99);
}

// Each algorithm twice, in slightly different layouts and configs. A dropped candidate must not
// leave its twin a win over the rest.
TEST(VerdictRates, NobodyWinsOverTheRestForATwinThatWasDropped) {
  for (const double deviation : {0.03, 0.05, 0.10})
    EXPECT_LE(rates({1, 1, 1.05, 1.05, 1.08, 1.08, 1.2, 1.2}, offset(deviation)).wrong_win, 0.01)
        << deviation;
}

TEST(VerdictRates, FivePercentIsFound) {
  for (const double deviation : {0.003, 0.007, 0.01}) {
    const Rates r = rates({1, 1.05}, offset(deviation));
    EXPECT_GE(r.win, 0.97) << deviation;
    EXPECT_EQ(r.slow_choice, 0) << deviation;
  }
  EXPECT_GE(rates({1, 1.05, 1.08, 1.3, 1.9, 4}, offset(0.007)).win, 0.97);
}

TEST(VerdictRates, WhatIsCloseIsATieOrUnsureAndNeverASlowChoice) {
  for (const double apart : {1.005, 1.01, 1.015, 1.02, 1.03}) {
    const Rates r = rates({1, apart}, offset(0.007));
    EXPECT_LE(r.wrong_win, 0.02) << apart;
    EXPECT_LE(r.slow_choice, 0.01) << apart;
  }
}

TEST(VerdictRates, ManyProcessesOnlyWhereTheDecisionIsOpen) {
  EXPECT_LE(rates({1, 1.3}, offset(0.007)).processes, 6.5);
  EXPECT_LE(rates({1, 1.001}, offset(0.004)).processes, 8);
  EXPECT_GE(rates({1, 1.016}, offset(0.007)).processes, 12);
}

// Cores under one L3 or two, a busy host or an idle one: these slow all candidates of a process.
TEST(VerdictRates, AProcessThatIsSlowForAllFlipsNothing) {
  const auto bimodal = [](SimulatedMachine& m) {
    m.process_offset = 0.005;
    m.process_level = [](std::mt19937_64& random) { return random() % 2 ? 1.0 : 1.3; };
  };
  EXPECT_GE(rates({1, 1.05}, bimodal).win, 0.97);
  EXPECT_LE(rates({1, 1}, bimodal).win, 0.002);
}

// A mode that affects one candidate alone, half of the time, cannot be told from a real difference
// by a small number of processes.
TEST(VerdictRates, AModeOfOneCandidateIsNoDifference) {
  const auto bimodal = [](SimulatedMachine& m) {
    m.process_offset = 0.003;
    m.mode = [](std::mt19937_64& random) { return random() % 2 ? 1.0 : 1.1; };
  };
  EXPECT_LE(rates({1, 1}, bimodal, 2000).win, 0.01);
}

TEST(VerdictRates, OneOddProcessOfTwelveFlipsNothing) {
  const auto odd = [](SimulatedMachine& m) {
    m.process_offset = 0.006;
    m.mode = [](std::mt19937_64& random) { return random() % 12 ? 1.0 : 1.15; };
  };
  EXPECT_LE(rates({1, 1}, odd, 2000).win, 0.005);
  const Rates r = rates({1, 1.05}, odd);
  EXPECT_GE(r.win, 0.9);
  EXPECT_LE(r.wrong_win + r.slow_choice, 0.005);
}

TEST(VerdictRates, DriftAndUnseenSpellsFlipNothing) {
  const auto drift = [](SimulatedMachine& m) {
    m.process_offset = 0.005;
    m.level = [](double s) { return (1 + 0.05 * s) * (std::fmod(s, 1.7) < 0.4 ? 1.8 : 1.0); };
  };
  EXPECT_GE(rates({1, 1.05}, drift).win, 0.95);
  EXPECT_LE(rates({1, 1}, drift).win, 0.005);
}

// Other programs run in bursts of 0.05 to 1.5 s. Samples they disturb are taken again, and nothing
// else changes.
TEST(VerdictRates, SpellsThatAreSeenCostTimeAndNothingElse) {
  const auto bursts = [](SimulatedMachine& m) {
    m.process_offset = 0.007;
    m.lost = [](double s) { return std::fmod(s, 2.1) < 0.9 ? 0.5 : 0.0; };
  };
  const Rates busy = rates({1, 1.05}, bursts), quiet = rates({1, 1.05}, offset(0.007));
  EXPECT_GE(busy.win, quiet.win - 0.01);
  EXPECT_LE(busy.off_time, 0.01);
  EXPECT_LE(rates({1, 1}, bursts).win, 0.005);
}

TEST(VerdictRates, AMachineThatIsNeverQuietGivesNoVerdictAndEnds) {
  const auto steady = [](SimulatedMachine& m) { m.lost = [](double) { return 0.3; }; };
  const Rates r = rates({1, 1.5, 3}, steady, 50);
  EXPECT_NEAR(r.unsure, 1, 1e-9);
  SimulatedMachine machine;
  machine.ms = {{"a", 1}, {"b", 1.5}};
  steady(machine);
  std::vector<Candidate> all = machine.candidates();
  machine.race(all);
  EXPECT_LE(machine.now_s, 60);
  for (const Candidate& c : all) EXPECT_TRUE(c.predicted && c.samples_ms.empty());
}

// On a machine with one undisturbed sample in eight, verdicts still come from the undisturbed ones.
TEST(VerdictRates, UndisturbedSamplesDecideHoweverRareTheyAre) {
  const auto rare = [](SimulatedMachine& m) {
    m.process_offset = 0.007;
    m.lost = [&m](double) { return m.random() % 8 ? 0.4 : 0.0; };
  };
  const Rates r = rates({1, 1.2}, rare, 100);
  EXPECT_LE(r.wrong_win + r.slow_choice, 0);
  EXPECT_LE(r.off_time, 0.01);
}

TEST(VerdictRates, PackingIsASampleOfEachProcessToo) {
  for (int seed = 0; seed < 300; ++seed) {
    SimulatedMachine machine{std::uint64_t(seed)};
    machine.ms = {{"a", 1}, {"b", 1}};
    machine.pack_ms = {{"a", 0.8}, {"b", 0.8}};
    machine.process_offset = 0.03;
    std::vector<Candidate> all = machine.candidates();
    RaceOptions options;
    options.count_packing = true;
    EXPECT_NE(machine.race(all, options).verdict, Verdict::win) << seed;
  }
}

}  // namespace
}  // namespace convlab
