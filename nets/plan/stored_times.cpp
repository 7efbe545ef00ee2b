#include "nets/plan/stored_times.h"

#include <algorithm>

#include "autotune/candidates.h"
#include "autotune/race/decide.h"
#include "autotune/tuner.h"

namespace convlab::nets {

StoredTimes::StoredTimes(const Store& store, const Problem& problem,
                         const std::vector<AlgoRef>& algos, const ChooseOptions& options,
                         bool count_packing, const DeviceInfo& device) {
  const double max_error = options.max_error.value_or(default_max_error(problem.dtype()));
  for (const AlgoRef& algo : algos)
    for (Candidate& row : store.lookup(problem, options.cache, device, algo.info()).candidates)
      if (apply_limits(row, max_error, {}))
        rows_.insert_or_assign(candidate_key(row), std::move(row));
  std::vector<Candidate> finalists;
  for (const auto& [key, row] : rows_)
    if (is_measured(row)) {
      finalists.push_back(row);
      best_ms_ = std::min(best_ms_, row.ms);
    }
  decided_ = decide(finalists, count_packing).verdict != Verdict::unsure;
}

bool StoredTimes::recall(Candidate& candidate) const {
  const auto row = rows_.find(candidate_key(candidate));
  if (row == rows_.end()) return true;
  const Candidate& c = row->second;
  if (c.status != Status::ok && c.status != Status::dropped) return false;
  if (c.predicted) return true;
  candidate = c;
  // Its few samples may come from a fast period: it lost side by side with the best.
  if (c.status == Status::dropped && best_ms_ < std::numeric_limits<double>::infinity())
    candidate.ms = std::max(c.ms, (1 + win_margin) * best_ms_);
  return true;
}

}  // namespace convlab::nets
