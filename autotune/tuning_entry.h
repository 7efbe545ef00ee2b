// One problem on its way through a tuning run, and what its candidates say about each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autotune/race/race.h"
#include "autotune/result.h"

namespace convlab {

// Runs again. Its time so far, if it has one, is its prediction.
void reopen(Candidate&);

struct TuningEntry {
  ConvProblem problem;             // in NCHW
  std::vector<std::size_t> items;  // of the caller's list: a problem may be several layers
  std::int64_t count = 0;          // how often it counts in the totals
  bool count_packing = false;      // cost = ms + pack_ms
  std::vector<Candidate> candidates;
  std::vector<Candidate> known;  // as the store has those that a new race measures again
  struct Prediction {
    double ms = 0, bound_ms = 0;  // no run can be faster than the bound
  };
  std::map<std::string, Prediction> predictions;  // by candidate_key
  std::optional<double> earlier_ms;               // of the chosen, when an earlier run knew one
  std::optional<Finals> finals;
  bool unlisted = false;  // an algorithm that is slow to list was not asked yet
  bool visited = false;
  bool interrupted = false;  // stopped before all candidates had their turn
  bool disturbed = false;    // nothing could be measured, for other programs
  bool finished = false;

  const Prediction& prediction(const Candidate&) const;
  double cost(const Candidate&) const;  // ms
  double best_measured() const;         // the least cost; infinite when nothing is measured
  std::size_t measured() const;         // how many are
  bool any_open() const;
  // What the candidates not yet run might save in all, in ms, if they ran at the machine's
  // ceilings.
  double remaining_gain() const;

  // Of what an earlier run left: a row stays dropped while one that ran to the end beats it.
  // Returns how many run again.
  std::size_t reopen_unsettled(double prune_factor, bool exhaustive);
  // Ratios are paired within a race: the fastest `most` of an earlier one run again beside
  // newcomers, and the others are dropped.
  void reopen_incumbents(std::size_t most);
  // A race that ended before it measured anything leaves what was known. Returns whether it did.
  bool restore_known();

 private:
  std::vector<Candidate*> fastest_first();  // of the measured
};

}  // namespace convlab
