// The race between the candidates of one problem, in which noise must not choose the winner.
//
// Screening, in one worker process. Each candidate, most promising first, is prepared: planned, run
// once and checked; only a right result is timed. One that is far slower than the best, both
// sampled afresh side by side, is dropped; one that is predicted to be far beyond the best is not
// even prepared. Those left run in interleaved rounds, in a new order each round, until few are
// close to the best: the finalists.
//
// Finals, in fresh processes, a few rounds in each. After 3, 5, 8, ... of them the finalists that
// are surely slower are dropped, and the race is over once decide() finds a verdict. Processes are
// visited across problems: one process goes through all problems that are open still, so that each
// problem's processes are seconds or minutes apart and a slow spell of the machine, which nothing
// shows, meets one process and not the whole race.
//
// Nothing disturbed decides anything (autotune/measure/sampler.h). F-race: Birattari et al. 2002.
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
  // Of the best, for a finalist. One process may make a candidate 10% slower than it is, or faster;
  // and who wins must have met all that may be as fast.
  double reach = 1.25;
  int screening_rounds = 8;   // at most
  std::size_t finalists = 6;  // at most, and at least the best two

  // Finals.
  std::size_t processes = 20;    // at most
  int first_process_rounds = 5;  // in each of the first three, fewer of what takes long
  int process_rounds = 8;        // in later ones
  double max_s = 3;              // of finals; then they end at the next look
};
RaceOptions exhaustive_race();  // nobody is pruned or dropped

// The reason of a candidate that is not run, for its predicted time over the best.
std::string why_pruned(double ratio);

// Told of each candidate in which nothing more will change.
using CandidateEnded = std::function<void(const Candidate&)>;

// Candidates arrive with ms predicted (and `predicted` set). Finalists leave measured, with status
// ok; who could not be measured undisturbed, or was not reached before `sampler` stopped, as it
// came.
void screen(std::vector<Candidate>&, CandidateRunner&, Sampler&, const RaceOptions&,
            const CandidateEnded& = {});

// The finals of one problem: between the candidates that are measured. They may have run in
// processes before, of which the finals go on.
class Finals {
 public:
  Finals(std::vector<Candidate>&, const RaceOptions&);

  bool open() const { return !over_; }
  void give_up() { over_ = true; }  // what the processes before found stands
  // One process. False when nothing undisturbed came of it, or the sampler stopped. The runner is
  // of a fresh process, or of one in which only other problems ran.
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
  std::size_t failures_ = 0;                // processes of which nothing came
  double spent_s_ = 0;
  bool over_ = false;
};

// Both, of one problem alone; `process` gives the runner of a fresh process.
void race(std::vector<Candidate>&, const std::function<std::unique_ptr<CandidateRunner>()>& process,
          Sampler&, const RaceOptions&, const CandidateEnded& = {});

}  // namespace convlab
