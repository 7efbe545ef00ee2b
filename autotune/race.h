// The race between the candidates of one problem, in which noise must not choose the winner.
//
// 1. Each candidate, most promising first, is prepared: planned, run once and checked. Only a right
//    result is timed. Its first sample decides whether it stays: beyond drop_factor times the
//    best it goes. Who is predicted to be far beyond the best is not even prepared.
// 2. Those left run in interleaved rounds, in a new order each round; the number of rounds doubles,
//    and after each doubling go those whose paired ratio to the best excludes a tie.
// 3. The finalists go on in the same rounds until the two fastest are told apart, or are a tie.
//
// Interleaving puts a slow spell of the machine on everybody; the ratio of two candidates is taken
// within rounds. First samples are forgotten: they were not interleaved, and they chose.
// Hoeffding races: Maron & Moore 1994; F-race: Birattari et al. 2002.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "autotune/result.h"

namespace convlab {

// A candidate that ended while it ran: crashed, hung, out of memory. Thrown by runners.
class CandidateLost : public std::runtime_error {
 public:
  CandidateLost(Status status, const std::string& reason)
      : std::runtime_error(reason), status(status) {}
  Status status;
};

// Runs the candidates of one problem: in this process, in a worker, or in a test by script.
// Candidates are known by algo, config and layouts.
class CandidateRunner {
 public:
  virtual ~CandidateRunner() = default;
  // Plans, packs, runs once and checks; fills in status and reason, workspace and packed filter,
  // deterministic, rel_error, pack_ms, convert_ms. Throws CandidateLost.
  virtual void prepare(Candidate&) = 0;
  // Seconds of one run: the mean over `runs`, after one that is not timed where that matters to a
  // run of about c.ms. For a candidate that prepare left `ok`. Throws CandidateLost.
  virtual double sample(const Candidate&, int runs) = 0;
  virtual void release(const Candidate&) = 0;  // it will not be sampled again
};

struct RaceOptions {
  std::uint64_t seed = 1;
  double min_sample_s = 2e-3;
  double prune_factor = 4;  // predicted over the best measured
  double drop_factor = 2;
  int rounds = 8;  // at most, until the finalists are known
  std::size_t finalists = 3;
  int final_rounds = 24;  // at most, more
  double max_s = 4;       // of wall clock for the rounds; then it is decided with what there is
  bool count_packing = false;  // cost = ms + pack_ms
};
RaceOptions exhaustive_race();  // nobody is pruned or dropped; more rounds

// ms, plus pack_ms where it counts.
double cost_ms(const Candidate&, bool count_packing);

struct Decision {
  std::optional<std::size_t> chosen;
  Verdict verdict = Verdict::none;
  std::array<double, 3> ratio{};  // cost of the runner-up over the chosen's
};
// Chooses among the `ok` ones by their samples, which are paired by index where two candidates
// have equally many. A pure function: stored samples decide as fresh ones do. The fastest wins if
// its ratio to every other excludes a tie; else, among those tied with it and within 2% of it, the
// first by: deterministic, less workspace, name, config, layouts. Where all rivals were dropped on
// their first samples, the ratio is to the best of those and has no width.
Decision decide(std::span<const Candidate>, bool count_packing, std::uint64_t seed);

// Races the candidates, which arrive with ms predicted (and `predicted` set) and leave with their
// outcome. `ended` is called for each as soon as nothing more will change in it. Stops early when
// `stop` says so: those not yet measured stay `predicted`; those in the running keep the samples
// they have, but have not ended.
void race(std::vector<Candidate>&, CandidateRunner&, const RaceOptions&,
          const std::function<void(const Candidate&)>& ended = {},
          const std::function<bool()>& stop = {});

}  // namespace convlab
