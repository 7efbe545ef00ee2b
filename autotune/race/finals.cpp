#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "autotune/measure/measure.h"
#include "autotune/race/race.h"

namespace convlab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Each look adds a chance of error, so there are few. They become rarer as each process adds less.
constexpr std::array<std::size_t, 6> looks{3, 5, 8, 12, 16, 20};
bool is_look(std::size_t processes) {
  return processes > looks.back() ? processes % 8 == 0
                                  : std::find(looks.begin(), looks.end(), processes) != looks.end();
}

// Rounds in one process. Slow candidates run fewer, and so do the first few processes.
int rounds_of(double round_s, std::size_t processes, const RaceOptions& options) {
  const int most =
      processes < least_processes ? options.first_process_rounds : options.process_rounds;
  constexpr double enough_s = 0.08;
  const int least = round_s > 0.5 ? 1 : 2;
  return std::clamp(int(enough_s / round_s), least, std::max(least, most));
}

// A candidate slower than the best by this factor in every process is dropped. With fewer processes
// more of the difference is chance, and the fastest of several owes some of its lead to chance too.
double slower_everywhere(std::size_t processes) {
  return processes < 5 ? 1.15 : processes < 8 ? 1.10 : processes < 12 ? 1.06 : 1.03;
}

// Each candidate's time from rounds in which all ran side by side: ms[candidate][round]. Each time
// is divided by its round's level, the geometric mean. The median of these is multiplied by the
// median level, so that a slow round affects all alike.
std::vector<double> times_by_rounds(const std::vector<std::vector<double>>& ms) {
  const std::size_t rounds = ms.front().size();
  std::vector<double> levels(rounds, 1);
  for (std::size_t round = 0; round < rounds; ++round)
    for (const std::vector<double>& of_one : ms)
      levels[round] *= std::pow(of_one[round], 1 / double(ms.size()));
  std::vector<double> times;
  for (std::vector<double> of_one : ms) {
    for (std::size_t round = 0; round < rounds; ++round) of_one[round] /= levels[round];
    times.push_back(median(of_one) * median(levels));
  }
  return times;
}

}  // namespace

RaceOptions exhaustive_race() {
  RaceOptions race;
  race.prune_factor = race.drop_factor = infinity;
  race.finalists = std::numeric_limits<std::size_t>::max();
  race.max_s = infinity;
  return race;
}

Finals::Finals(std::vector<Candidate>& candidates, const RaceOptions& options)
    : candidates_(candidates), options_(options), random_(options.seed) {
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (const Candidate* c : finalists()) fewest = std::min(fewest, c->process_ms.size());
  if (finalists().empty()) {
    over_ = true;
    return;
  }
  // Processes that not all candidates ran in cannot be paired.
  for (Candidate* c : finalists()) {
    c->process_ms.resize(fewest);
    c->process_pack_ms.resize(fewest);
  }
  processes_ = before_ = fewest;
  random_.discard(fewest);
}

std::vector<Candidate*> Finals::finalists() const {
  std::vector<Candidate*> finalists;
  for (Candidate& c : candidates_)
    if (c.status == Status::ok && !c.predicted) finalists.push_back(&c);
  return finalists;
}

void Finals::lose(Candidate& c, const CandidateLost& lost, const Sampler& sampler,
                  const CandidateEnded& ended) {
  if (sampler.stopped()) return;  // not its fault
  c.status = lost.status;
  c.reason = lost.what();
  c.ms = c.mad_ms = 0;
  c.samples_ms.clear();
  c.process_ms.clear();
  c.process_pack_ms.clear();
  if (ended) ended(c);
}

// The first process's findings stay.
bool Finals::prepare(Candidate& c, CandidateRunner& runner, Sampler& sampler,
                     const CandidateEnded& ended) {
  try {
    Candidate again = c;
    runner.prepare(again);
    if (again.status == Status::ok) return true;
    c.rel_error = again.rel_error;
    throw CandidateLost(again.status, again.reason);
  } catch (const CandidateLost& lost) {
    lose(c, lost, sampler, ended);
    return false;
  }
}

bool Finals::run_process(CandidateRunner& runner, Sampler& sampler, const CandidateEnded& ended) {
  const double start_s = sampler.now();
  struct Runner {
    Candidate* candidate;
    int runs;
    std::vector<double> ms, pack_ms;
  };
  std::vector<Runner> running;
  double round_s = 0;
  // In a new order each time, so that no candidate always allocates first.
  std::vector<Candidate*> all = finalists();
  std::shuffle(all.begin(), all.end(), random_);
  for (Candidate* c : all) {
    if (sampler.stopped()) return false;
    if (!prepare(*c, runner, sampler, ended)) continue;
    running.push_back({c, runs_per_sample(c->ms * 1e-3, options_.min_sample_s), {}, {}});
    round_s += 1e-3 * c->ms * (running.back().runs + 1);
  }
  if (sampler.stopped()) return false;
  if (running.empty()) {
    over_ = true;
    return false;
  }
  // False when no undisturbed sample could be taken.
  const auto take = [&](Runner& r, Timed timed, std::vector<double>& times) {
    std::optional<double> ms;
    try {
      ms = sampler.take(runner, *r.candidate, timed, timed == Timed::run ? r.runs : 1);
    } catch (const CandidateLost& lost) {
      lose(*r.candidate, lost, sampler, ended);
      return !sampler.stopped();
    }
    if (ms) times.push_back(*ms);
    return ms.has_value() && !sampler.stopped();
  };
  constexpr int packing_rounds = 3;
  bool complete = true;
  const int rounds = rounds_of(round_s, processes_, options_);
  for (int round = 0; round < rounds && complete; ++round) {
    std::shuffle(running.begin(), running.end(), random_);
    for (Runner& r : running) {
      complete = take(r, Timed::run, r.ms);
      const Candidate& c = *r.candidate;
      if (complete && round < packing_rounds && c.status == Status::ok && c.packed_filter_bytes > 0)
        complete = take(r, Timed::pack, r.pack_ms);
      if (!complete) break;
    }
    std::erase_if(running, [](const Runner& r) { return r.candidate->status != Status::ok; });
  }
  for (const Runner& r : running) runner.release(*r.candidate);
  spent_s_ += sampler.now() - start_s;
  if (!complete || running.empty()) {
    // The machine is never quiet for long enough: the problem stays open for a later run.
    constexpr std::size_t most_failures = 4;
    over_ = running.empty() || ++failures_ == most_failures;
    return false;
  }
  std::vector<std::vector<double>> ms;
  for (const Runner& r : running) ms.push_back(r.ms);
  const std::vector<double> times = times_by_rounds(ms);
  for (std::size_t i = 0; i < running.size(); ++i) {
    Candidate& c = *running[i].candidate;
    if (processes_ == 0) c.samples_ms.clear();
    c.samples_ms.insert(c.samples_ms.end(), ms[i].begin(), ms[i].end());
    c.process_ms.push_back(times[i]);
    c.process_pack_ms.push_back(median(running[i].pack_ms));
  }
  ++processes_;
  settle();
  if (is_look(processes_)) look(ended);
  return true;
}

// After every process, so that a stop between two looks still has times from all processes.
void Finals::settle() {
  std::vector<Candidate*> all = finalists();
  double level = infinity, level_before = infinity;
  for (const Candidate* c : all)
    level_before = std::min(level_before, cost_ms(*c, options_.count_packing));
  settle_times(all, options_.count_packing);
  for (const Candidate* c : all) level = std::min(level, cost_ms(*c, options_.count_packing));
  // A dropped candidate's ratio to the best is known, and stays.
  for (Candidate& c : candidates_)
    if (c.status == Status::dropped && !c.predicted) c.ms *= level / level_before;
}

void Finals::look(const CandidateEnded& ended) {
  over_ = decide_among_measured(candidates_, options_.count_packing).verdict != Verdict::unsure ||
          processes_ >= before_ + options_.processes || spent_s_ > options_.max_s;
  over_ |= finalists().size() < 2;  // more processes would decide nothing
  if (!over_ && options_.drop_factor < infinity) drop_the_slower(ended);
}

// Drops those slower at high confidence or in every process; the best two always stay.
void Finals::drop_the_slower(const CandidateEnded& ended) {
  std::vector<Candidate*> all = finalists();
  std::stable_sort(all.begin(), all.end(), [&](const Candidate* a, const Candidate* b) {
    return cost_ms(*a, options_.count_packing) < cost_ms(*b, options_.count_packing);
  });
  const std::vector<double> best = process_costs(*all.front(), options_.count_packing);
  for (std::size_t i = 2; i < all.size(); ++i) {
    Candidate& c = *all[i];
    const std::vector<double> costs = process_costs(c, options_.count_packing);
    const std::array<double, 3> ratio = process_ratio(costs, best);
    bool slower = process_ratio(costs, best, Confidence::winning)[0] > 1 + win_margin;
    if (!slower) {
      slower = true;
      for (std::size_t p = 0; p < costs.size(); ++p)
        slower &= costs[p] > slower_everywhere(costs.size()) * best[p];
    }
    if (!slower) continue;
    c.status = Status::dropped;
    c.reason = fmt::format("{:.2f} times the best then ({:.2f} to {:.2f}) over {} processes",
                           ratio[1], ratio[0], ratio[2], processes_);
    if (ended) ended(c);
  }
}

void race(std::vector<Candidate>& candidates,
          const std::function<std::unique_ptr<CandidateRunner>()>& process, Sampler& sampler,
          const RaceOptions& options, const CandidateEnded& ended) {
  screen(candidates, *process(), sampler, options, ended);
  if (sampler.stopped()) return;
  Finals finals(candidates, options);
  while (finals.open() && !sampler.stopped()) finals.run_process(*process(), sampler, ended);
}

}  // namespace convlab
