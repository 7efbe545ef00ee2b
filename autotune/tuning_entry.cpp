#include "autotune/tuning_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "autotune/race/decide.h"

namespace convlab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

void reopen(Candidate& c) {
  c.status = Status::ok;
  c.reason.clear();
  c.samples_ms.clear();
  c.process_ms.clear();
  c.process_pack_ms.clear();
  c.predicted = true;
}

const TuningEntry::Prediction& TuningEntry::prediction(const Candidate& c) const {
  return predictions.at(candidate_key(c));
}

double TuningEntry::cost(const Candidate& c) const { return cost_ms(c, count_packing); }

double TuningEntry::best_measured() const {
  double best = infinity;
  for (const Candidate& c : candidates)
    if (is_measured(c)) best = std::min(best, cost(c));
  return best;
}

std::size_t TuningEntry::measured() const {
  return std::size_t(std::count_if(candidates.begin(), candidates.end(), is_measured));
}

bool TuningEntry::any_open() const {
  return std::any_of(candidates.begin(), candidates.end(), is_open);
}

double TuningEntry::remaining_gain() const {
  double chosen = infinity, bound = infinity;
  for (const Candidate& c : candidates) {
    if (is_open(c)) bound = std::min(bound, prediction(c).bound_ms);
    if (measured() > 0 ? is_measured(c) : is_open(c)) chosen = std::min(chosen, c.ms);
  }
  return bound < chosen && chosen < infinity ? double(count) * (chosen - bound) : 0;
}

std::size_t TuningEntry::reopen_unsettled(double prune_factor, bool exhaustive) {
  // The earlier best may violate the current limits. The margin allows for noise, so that a rerun
  // of the same command does not run these again.
  constexpr double room = 0.9, predicted_room = 0.7;
  const double best = best_measured();
  // If a race's winner is out, its runner-up has no rivals but the dropped ones.
  const bool alone = measured() == 1;
  std::size_t reopened = 0;
  for (Candidate& c : candidates) {
    const double beaten_at = best * (c.predicted ? predicted_room * prune_factor : room);
    const bool dropped =
        c.status == Status::dropped && (exhaustive || alone || cost(c) < beaten_at);
    const bool too_few = exhaustive && is_measured(c) && c.process_ms.size() < least_processes;
    if (!dropped && !too_few) continue;
    reopen(c);
    ++reopened;
  }
  return reopened;
}

std::vector<Candidate*> TuningEntry::fastest_first() {
  std::vector<Candidate*> measured;
  for (Candidate& c : candidates)
    if (is_measured(c)) measured.push_back(&c);
  std::sort(measured.begin(), measured.end(),
            [&](const Candidate* a, const Candidate* b) { return cost(*a) < cost(*b); });
  return measured;
}

void TuningEntry::reopen_incumbents(std::size_t most) {
  const std::vector<Candidate*> incumbents = fastest_first();
  for (std::size_t i = 0; i < incumbents.size(); ++i) {
    if (i < most) {
      reopen(*incumbents[i]);
      continue;
    }
    incumbents[i]->status = Status::dropped;
    incumbents[i]->reason = fmt::format("not among the fastest {} of an earlier race", most);
  }
}

bool TuningEntry::restore_known() {
  if (known.empty() || measured() > 0) return false;
  std::map<std::string, const Candidate*> by_key;
  for (const Candidate& c : known)
    if (is_measured(c)) by_key.emplace(candidate_key(c), &c);
  for (Candidate& c : candidates) {
    const auto found = by_key.find(candidate_key(c));
    // A failure since then is newer knowledge.
    if (found != by_key.end() && (is_open(c) || c.status == Status::dropped)) c = *found->second;
  }
  return measured() > 0;
}

}  // namespace convlab
