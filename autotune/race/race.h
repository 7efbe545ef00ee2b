// The race between the candidates of one problem, designed so that noise does not choose the
// winner.
//
// Screening, in one worker process. Each candidate, most promising first, is prepared: planned, run
// once and checked. Only a correct result is timed. A candidate far slower than the best is
// dropped, after both are sampled again side by side. One that is predicted to be far slower than
// the best is not even prepared. The others run in interleaved rounds, in a new order each round,
// until few are close to the best: the finalists.
//
// Finals, in fresh processes, a few rounds in each. After 3, 5, 8, ... of them the finalists that
// are certainly slower are dropped, and the race ends once decide() finds a verdict. One process
// goes through all problems that are still open. So each problem's processes are seconds or minutes
// apart, and an undetected slow period of the machine affects one process, not the whole race.
//
// Only undisturbed samples count (autotune/measure/sampler.h). F-race: Birattari et al. 2002.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "autotune/measure/sampler.h"
#include "autotune/race/candidate_runner.h"
#include "autotune/race/decide.h"

namespace convlab {

struct RaceOptions {
  std::uint64_t seed = 1;
  bool count_packing = false;  // cost = ms + pack_ms
  double min_sample_s = 2e-3;

  // Screening.
  double prune_factor = 4;  // predicted over the best measured
  double drop_factor = 2;   // side by side
  // Times the best, to be a finalist. One process may make a candidate 10% slower or faster than it
  // is, and the winner must have run against every candidate that may be as fast.
  double reach = 1.25;
  int screening_rounds = 8;   // at most
  std::size_t finalists = 6;  // at most, and at least the best two

  // Finals.
  std::size_t processes = 20;    // at most
  int first_process_rounds = 5;  // in each of the first three, fewer for slow candidates
  int process_rounds = 8;        // in later ones
  double max_s = 3;              // of finals; after that they end at the next look
};
RaceOptions exhaustive_race();  // nothing is pruned or dropped

// The reason for a candidate that is not run, given its predicted time over the best.
std::string why_pruned(double ratio);

// Called for each candidate once it is final.
using CandidateEnded = std::function<void(const Candidate&)>;

// Candidates arrive with ms predicted (and `predicted` set). Finalists leave measured, with status
// ok. A candidate is left unchanged if it could not be measured undisturbed or was not reached
// before `sampler` stopped.
void screen(std::vector<Candidate>&, CandidateRunner&, Sampler&, const RaceOptions&,
            const CandidateEnded& = {});

// The finals of one problem, between its measured candidates. They may have run in processes
// before; the finals continue from those.
class Finals {
 public:
  Finals(std::vector<Candidate>&, const RaceOptions&);

  bool open() const { return !over_; }
  void give_up() { over_ = true; }  // the result of the processes so far stands
  // One process. False when it gave nothing undisturbed, or the sampler stopped. The runner belongs
  // to a fresh process, or to one in which only other problems ran.
  bool run_process(CandidateRunner&, Sampler&, const CandidateEnded& = {});

 private:
  std::vector<Candidate*> finalists() const;
  void lose(Candidate&, const CandidateLost&, const Sampler&, const CandidateEnded&);
  bool prepare(Candidate&, CandidateRunner&, Sampler&, const CandidateEnded&);
  void settle();
  void look(const CandidateEnded&);
  void drop_the_slower(const CandidateEnded&);

  std::vector<Candidate>& candidates_;
  RaceOptions options_;
  std::mt19937_64 random_;
  std::size_t processes_ = 0, before_ = 0;  // so far; before these finals
  std::size_t failures_ = 0;                // processes without a result
  double spent_s_ = 0;
  bool over_ = false;
};

// Screening and finals of one problem alone; `process` returns the runner of a fresh process.
void race(std::vector<Candidate>&, const std::function<std::unique_ptr<CandidateRunner>()>& process,
          Sampler&, const RaceOptions&, const CandidateEnded& = {});

}  // namespace convlab
