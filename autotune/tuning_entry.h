// One problem during a tuning run, and facts derived from its candidates together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autotune/problem.h"
#include "autotune/race/race.h"
#include "autotune/result.h"

namespace convlab {

// To be run again. Its time so far, if any, becomes its prediction.
void reopen(Candidate&);

struct TuningEntry {
  Problem problem;                 // in NCHW
  std::vector<std::size_t> items;  // of the caller's list: a problem may be several layers
  std::int64_t count = 0;          // weight in the totals
  bool count_packing = false;      // cost = ms + pack_ms
  std::vector<Candidate> candidates;
  std::vector<Candidate> known;  // the store's rows of candidates that a new race measures again
  struct Prediction {
    double ms = 0, bound_ms = 0;  // no run can be faster than the bound
  };
  std::map<std::string, Prediction> predictions;  // by candidate_key
  std::optional<double> earlier_ms;               // of the chosen, if known from an earlier run
  std::optional<Finals> finals;
  bool unlisted = false;  // a slow-to-list algorithm was not asked yet
  bool visited = false;
  bool interrupted = false;  // stopped before all candidates had their turn
  bool disturbed = false;    // other programs prevented every measurement
  bool finished = false;

  const Prediction& prediction(const Candidate&) const;
  double cost(const Candidate&) const;  // ms
  double best_measured() const;         // the least cost; infinite when nothing is measured
  std::size_t measured() const;         // how many are
  bool any_open() const;
  // An upper bound in ms on the total gain from candidates not yet run, if they ran at the
  // machine's ceilings.
  double remaining_gain() const;

  // For an earlier run's rows: a row stays dropped while a completed one beats it. Returns how many
  // run again.
  std::size_t reopen_unsettled(double prune_factor, bool exhaustive);
  // Ratios are paired within a race: the fastest `most` of an earlier one run again beside
  // newcomers, and the others are dropped.
  void reopen_incumbents(std::size_t most);
  // Restores the previous results if a race ended before it measured anything. Returns whether it
  // did.
  bool restore_known();

 private:
  std::vector<Candidate*> fastest_first();  // of the measured
};

}  // namespace convlab
