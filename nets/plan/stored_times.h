// What the tuning store knows of one problem, under the limits of a plan.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "autotune/algos.h"
#include "nets/plan/choose.h"

namespace convlab::nets {

class StoredTimes {
 public:
  // The rows of these algorithms on the problem, which is as `tune` records it. count_packing: as
  // in decide().
  StoredTimes(const Store&, const Problem&, const std::vector<AlgoRef>&, const ChooseOptions&,
              bool count_packing, const DeviceInfo&);

  // False while the race between the measured ones is open: their times are treated as predictions.
  bool decided() const { return decided_; }
  // Gives a predicted candidate its measured time, where there is one; it then is no longer
  // `predicted`. Returns false for one that failed or is too inaccurate.
  bool recall(Candidate&) const;

 private:
  std::map<std::string, Candidate> rows_;  // by candidate_key
  double best_ms_ = std::numeric_limits<double>::infinity();
  bool decided_ = true;
};

}  // namespace convlab::nets
