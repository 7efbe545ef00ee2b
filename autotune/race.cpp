#include "autotune/race.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include "autotune/measure.h"

namespace convlab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<double> costs(const Candidate& c, bool count_packing) {
  std::vector<double> result = c.samples_ms;
  for (double& ms : result) ms += count_packing ? c.pack_ms : 0;
  return result;
}

// Unpaired samples (taken in different races) are compared in the order they were taken, as far as
// they go: wider than a paired comparison, and still honest about the spread.
std::array<double, 3> cost_ratio(const Candidate& a, const Candidate& b, bool count_packing,
                                 std::uint64_t seed) {
  return paired_ratio(costs(a, count_packing), costs(b, count_packing), seed);
}

void set_times(Candidate& c) {
  c.predicted = false;
  c.ms = median(c.samples_ms);
  c.mad_ms = median_abs_deviation(c.samples_ms);
}

class Race {
 public:
  Race(std::vector<Candidate>& candidates, CandidateRunner& runner, const RaceOptions& options,
       const std::function<void(const Candidate&)>& ended, const std::function<bool()>& stop)
      : candidates_(candidates),
        runner_(runner),
        options_(options),
        ended_(ended),
        stop_(stop),
        random_(options.seed),
        runs_(candidates.size()) {}

  void run() {
    first_samples();
    if (!stopped() && narrow()) finals();
    // Who was stopped in the middle has not ended: a later run takes it up again.
    for (std::size_t i : alive_) {
      runner_.release(candidates_[i]);
      if (ended_ && !stopped()) ended_(candidates_[i]);
    }
  }

 private:
  double cost(std::size_t i) const { return cost_ms(candidates_[i], options_.count_packing); }

  bool stopped() const { return stop_ && stop_(); }
  bool out_of_time() const {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    return stopped() || elapsed.count() > options_.max_s;
  }

  void end(std::size_t i, Status status, std::string reason) {
    candidates_[i].status = status;
    candidates_[i].reason = std::move(reason);
    if (ended_) ended_(candidates_[i]);
  }

  void drop(std::size_t i, std::string reason) {
    runner_.release(candidates_[i]);
    end(i, Status::dropped, std::move(reason));
  }

  // The numbers of a candidate that never ran to the end are of no use to anybody.
  void lose(std::size_t i, const CandidateLost& lost) {
    Candidate& c = candidates_[i];
    c.samples_ms.clear();
    if (stopped()) return;  // not its fault: it has not ended
    c.ms = c.mad_ms = 0;
    c.predicted = false;
    end(i, lost.status, lost.what());
  }

  // False when the candidate was lost on the way.
  bool sample(std::size_t i) {
    Candidate& c = candidates_[i];
    try {
      c.samples_ms.push_back(1e3 * runner_.sample(c, runs_[i]));
      return true;
    } catch (const CandidateLost& lost) {
      lose(i, lost);
      return false;
    }
  }

  bool prepare(std::size_t i) {
    Candidate& c = candidates_[i];
    try {
      runner_.prepare(c);
    } catch (const CandidateLost& lost) {
      lose(i, lost);
      return false;
    }
    if (c.status == Status::ok) return true;
    lose(i, CandidateLost(c.status, c.reason));
    return false;
  }

  void first_samples() {
    std::vector<std::size_t> order(candidates_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
    double best = infinity;
    // Predictions are held against a prediction too: ceilings that were measured in a bad moment
    // must not rule out everybody but the first.
    double best_predicted = 0;
    for (std::size_t i : order) {
      Candidate& c = candidates_[i];
      if (stopped()) return;
      const double predicted = c.ms, reach = std::max(best, best_predicted);
      if (predicted > options_.prune_factor * reach) {
        end(i, Status::dropped,
            fmt::format("predicted {:.1f} times the best, not run", predicted / reach));
        continue;
      }
      if (!prepare(i)) continue;
      runs_[i] = 1;
      if (!sample(i)) continue;
      runs_[i] = runs_per_sample(c.samples_ms[0] * 1e-3, options_.min_sample_s);
      // A single slow sample may be the machine's; the second must agree before it is held
      // against the candidate.
      if (runs_[i] > 1 || c.samples_ms[0] > options_.drop_factor * best) {
        if (!sample(i)) continue;
        c.samples_ms = {runs_[i] > 1 ? c.samples_ms[1]
                                     : std::min(c.samples_ms[0], c.samples_ms[1])};
      }
      set_times(c);
      if (cost(i) > options_.drop_factor * best) {
        drop(i, fmt::format("{:.2f} times the best on its first sample", cost(i) / best));
        continue;
      }
      if (cost(i) < best) {
        best = cost(i);
        best_predicted = predicted;
      }
      alive_.push_back(i);
    }
    drop_if([&](std::size_t i) -> std::optional<std::string> {
      if (cost(i) <= options_.drop_factor * best) return {};
      return fmt::format("{:.2f} times the best on its first sample", cost(i) / best);
    });
  }

  template <class Reason>
  void drop_if(const Reason& reason_for) {
    std::erase_if(alive_, [&](std::size_t i) {
      const std::optional<std::string> reason = reason_for(i);
      if (reason) drop(i, *reason);
      return reason.has_value();
    });
  }

  // False when stopped on the way: the round is not complete.
  bool one_round() {
    std::vector<std::size_t> order = alive_;
    std::shuffle(order.begin(), order.end(), random_);
    for (std::size_t i : order) {
      if (stopped()) return false;
      if (!sample(i)) std::erase(alive_, i);
    }
    ++rounds_;
    for (std::size_t i : alive_) set_times(candidates_[i]);
    std::stable_sort(alive_.begin(), alive_.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
    return true;
  }

  std::array<double, 3> ratio_to_best(std::size_t i) const {
    return cost_ratio(candidates_[i], candidates_[alive_.front()], options_.count_packing,
                      options_.seed);
  }

  // Rounds until no more than the finalists are left. False when there is nobody, or stopped.
  bool narrow() {
    start_ = std::chrono::steady_clock::now();
    for (std::size_t i : alive_) candidates_[i].samples_ms.clear();
    for (int target = 2; target <= options_.rounds; target *= 2) {
      while (rounds_ < target && (rounds_ == 0 || !out_of_time()))
        if (!one_round()) return false;
      if (alive_.size() <= options_.finalists) break;
      // Two rounds give no interval; they show who is far off. The best two stay whatever their
      // distance: it is what the verdict is about.
      std::size_t place = 0;
      drop_if([&](std::size_t i) -> std::optional<std::string> {
        if (place++ < 2) return {};
        const std::array<double, 3> ratio = ratio_to_best(i);
        const double bound = rounds_ < 4 ? 1 + (options_.drop_factor - 1) / 2 : 1 + tie_margin;
        if (ratio[0] <= bound) return {};
        return fmt::format("{:.2f} times the best ({:.2f} to {:.2f}) after {} rounds", ratio[1],
                           ratio[0], ratio[2], rounds_);
      });
    }
    std::size_t place = 0;
    drop_if([&](std::size_t i) -> std::optional<std::string> {
      if (place++ < options_.finalists) return {};
      const std::array<double, 3> ratio = ratio_to_best(i);
      return fmt::format("not among the fastest {}: {:.2f} times the best", options_.finalists,
                         ratio[1]);
    });
    return !alive_.empty();
  }

  void finals() {
    constexpr int batch = 6;  // rounds between two looks
    const int last = rounds_ + options_.final_rounds;
    while (rounds_ < last && !alive_.empty() && !out_of_time()) {
      for (int i = 0; i < batch; ++i)
        if (!one_round()) return;
      const bool told_apart = std::all_of(alive_.begin() + !alive_.empty(), alive_.end(),
                                          [&](std::size_t i) { return !is_tie(ratio_to_best(i)); });
      if (told_apart && options_.drop_factor < infinity) break;
    }
  }

  std::vector<Candidate>& candidates_;
  CandidateRunner& runner_;
  const RaceOptions& options_;
  const std::function<void(const Candidate&)>& ended_;
  const std::function<bool()>& stop_;
  std::mt19937_64 random_;
  std::vector<int> runs_;           // per sample, by candidate
  std::vector<std::size_t> alive_;  // best first once rounds are run
  int rounds_ = 0;
  std::chrono::steady_clock::time_point start_;  // of the rounds
};

}  // namespace

RaceOptions exhaustive_race() {
  return {.prune_factor = infinity,
          .drop_factor = infinity,
          .finalists = std::numeric_limits<std::size_t>::max(),
          .max_s = infinity};
}

double cost_ms(const Candidate& c, bool count_packing) {
  return c.ms + (count_packing ? c.pack_ms : 0);
}

Decision decide(std::span<const Candidate> candidates, bool count_packing, std::uint64_t seed) {
  constexpr double tie_break_margin = 0.02;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].status == Status::ok) order.push_back(i);
  if (order.empty()) return {};
  const auto cost = [&](std::size_t i) { return cost_ms(candidates[i], count_packing); };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
  const std::size_t fastest = order.front();
  if (order.size() == 1) {
    // Its rivals fell behind on their first samples, which gives a ratio but no interval.
    double rival = infinity;
    for (const Candidate& c : candidates)
      if (c.status == Status::dropped && !c.predicted)
        rival = std::min(rival, cost_ms(c, count_packing));
    if (rival == infinity) return {fastest, Verdict::only, {}};
    const double ratio = rival / cost(fastest);
    return {fastest, Verdict::win, {ratio, ratio, ratio}};
  }

  const auto ratio_to = [&](std::size_t i, std::size_t base) -> std::array<double, 3> {
    if (candidates[i].samples_ms.empty() || candidates[base].samples_ms.empty()) {  // predicted
      const double r = cost(i) / cost(base);
      return {r, r, r};
    }
    return cost_ratio(candidates[i], candidates[base], count_packing, seed);
  };
  const auto rank = [&](std::size_t i) {
    const Candidate& c = candidates[i];
    return std::tuple(!c.deterministic, c.workspace_bytes, c.algo, c.config.text(), c.x_layout,
                      c.y_layout);
  };
  Decision decision{fastest, Verdict::win, {}};
  for (std::size_t i : order) {
    if (i == fastest || !is_tie(ratio_to(i, fastest))) continue;
    decision.verdict = Verdict::tie;
    if (cost(i) <= (1 + tie_break_margin) * cost(fastest) && rank(i) < rank(*decision.chosen))
      decision.chosen = i;
  }
  const std::size_t runner_up = decision.chosen == fastest ? order[1] : fastest;
  decision.ratio = ratio_to(runner_up, *decision.chosen);
  return decision;
}

void race(std::vector<Candidate>& candidates, CandidateRunner& runner, const RaceOptions& options,
          const std::function<void(const Candidate&)>& ended, const std::function<bool()>& stop) {
  Race(candidates, runner, options, ended, stop).run();
}

}  // namespace convlab
