#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "autotune/measure/measure.h"
#include "autotune/race/race.h"

namespace convlab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

class Screening {
 public:
  Screening(std::vector<Candidate>& candidates, CandidateRunner& runner, Sampler& sampler,
            const RaceOptions& options, const CandidateEnded& ended)
      : candidates_(candidates),
        runner_(runner),
        sampler_(sampler),
        options_(options),
        ended_(ended),
        random_(options.seed),
        as_they_came_(candidates),
        runs_(candidates.size(), 1),
        rounds_ms_(candidates.size()),
        packs_ms_(candidates.size()) {}

  void run() {
    first_samples();
    drop_if([&](std::size_t i) { return side_by_side(i); });
    const bool complete = !sampler_.stopped() && narrow();
    for (const std::size_t i : alive_) {
      runner_.release(candidates_[i]);
      // Too many for finalists, and no undisturbed samples to choose by.
      if (!complete && !sampler_.stopped() && alive_.size() > options_.finalists)
        candidates_[i] = as_they_came_[i];
    }
  }

 private:
  double cost(std::size_t i) const { return cost_ms(candidates_[i], options_.count_packing); }
  std::size_t best() const { return alive_.front(); }
  void sort_alive() {
    std::stable_sort(alive_.begin(), alive_.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
  }

  void end(std::size_t i, Status status, std::string reason) {
    candidates_[i].status = status;
    candidates_[i].reason = std::move(reason);
    if (ended_) ended_(candidates_[i]);
  }

  // Its time is its ratio times the best's time, since both were sampled within moments.
  void drop(std::size_t i, double ratio, std::string reason) {
    Candidate& c = candidates_[i];
    runner_.release(c);
    const double cost = ratio * this->cost(best());
    c.ms = std::max(cost - (options_.count_packing ? c.pack_ms : 0), 0.5 * c.ms);
    end(i, Status::dropped, std::move(reason));
  }

  // The numbers of an unfinished candidate are useless.
  void lose(std::size_t i, const CandidateLost& lost) {
    if (sampler_.stopped()) return;  // not its fault: it has not ended
    Candidate& c = candidates_[i];
    c.ms = c.mad_ms = 0;
    c.predicted = false;
    end(i, lost.status, lost.what());
  }

  // nullopt when it was lost, or disturbed for too long.
  std::optional<double> sample(std::size_t i, Timed timed = Timed::run) {
    try {
      return sampler_.take(runner_, candidates_[i], timed, timed == Timed::run ? runs_[i] : 1);
    } catch (const CandidateLost& lost) {
      lose(i, lost);
      return {};
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

  // Prepares, and takes the first samples. A candidate that cannot be measured undisturbed is left
  // unchanged.
  bool measure_first(std::size_t i) {
    Candidate& c = candidates_[i];
    if (!prepare(i)) return false;
    std::optional<double> ms = sample(i);
    // A single slow run may be an undetected disturbance.
    if (ms && !alive_.empty() && *ms > options_.drop_factor * candidates_[best()].ms)
      if (const std::optional<double> again = sample(i)) ms = std::min(*ms, *again);
    if (ms) {
      runs_[i] = runs_per_sample(*ms * 1e-3, options_.min_sample_s);
      if (runs_[i] > 1) ms = sample(i);
    }
    const std::optional<double> pack =
        ms && c.packed_filter_bytes > 0 ? sample(i, Timed::pack) : std::optional(0.0);
    const std::optional<double> convert = ms && pack ? sample(i, Timed::convert) : std::nullopt;
    if (!convert) {
      runner_.release(c);
      if (c.status == Status::ok) c = as_they_came_[i];
      return false;
    }
    c.ms = *ms;
    c.pack_ms = *pack;
    c.convert_ms = *convert;
    c.predicted = false;
    return true;
  }

  void first_samples() {
    std::vector<std::size_t> order(candidates_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
    // Predictions are also compared with a prediction: ceilings that were measured at a bad moment
    // must not prune every candidate but the first. A candidate must not win because no rival was
    // measured.
    for (const std::size_t i : order) {
      if (sampler_.stopped()) return;
      const double predicted = candidates_[i].ms;
      const double reach =
          alive_.empty() ? infinity : std::max(cost(best()), as_they_came_[best()].ms);
      if (alive_.size() > 1 && predicted > options_.prune_factor * reach) {
        end(i, Status::dropped, why_pruned(predicted / reach));
        continue;
      }
      if (!measure_first(i)) continue;
      alive_.push_back(i);
      sort_alive();
      if (alive_.size() > 2 && alive_.back() == i)
        if (const std::optional<double> ratio = far_behind(i)) {
          alive_.pop_back();
          drop(i, *ratio, side_by_side_reason(*ratio));
        }
      erase_lost();
    }
  }

  void erase_lost() {
    std::erase_if(alive_, [&](std::size_t i) { return candidates_[i].status != Status::ok; });
  }

  // Its ratio to the best if that is beyond drop_factor, both sampled again.
  std::optional<double> far_behind(std::size_t i) {
    if (candidates_[best()].status != Status::ok) return {};  // lost beside another
    if (cost(i) <= options_.drop_factor * cost(best())) return {};
    const std::optional<double> fresh_best = sample(best());
    const std::optional<double> fresh = fresh_best ? sample(i) : std::nullopt;
    if (!fresh) return {};
    const auto with_packing = [&](std::size_t j, double ms) {
      return ms + (options_.count_packing ? candidates_[j].pack_ms : 0);
    };
    const double ratio = with_packing(i, *fresh) / with_packing(best(), *fresh_best);
    if (ratio > options_.drop_factor) return ratio;
    return {};
  }
  static std::string side_by_side_reason(double ratio) {
    return fmt::format("{:.2f} times the best then, side by side", ratio);
  }
  std::optional<std::pair<double, std::string>> side_by_side(std::size_t i) {
    const std::optional<double> ratio = far_behind(i);
    if (!ratio) return {};
    return std::pair(*ratio, side_by_side_reason(*ratio));
  }

  // Drops candidates for which `judge` returns a ratio and a reason. The best two always stay,
  // since the verdict compares them.
  template <class Judge>
  void drop_if(const Judge& judge) {
    std::size_t place = 0;
    std::erase_if(alive_, [&](std::size_t i) {
      if (place++ < 2 || candidates_[i].status != Status::ok) return false;
      const std::optional<std::pair<double, std::string>> verdict = judge(i);
      if (verdict) drop(i, verdict->first, verdict->second);
      return verdict.has_value();
    });
    erase_lost();
  }

  // False when a sample could not be taken: the round is then discarded.
  bool one_round() {
    std::vector<std::size_t> order = alive_;
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::vector<double>*> whose;
    std::vector<double> taken;
    const auto take = [&](std::size_t i, Timed timed, std::vector<double>& samples) {
      const std::optional<double> ms = sample(i, timed);
      if (!ms) return candidates_[i].status != Status::ok;  // lost: the round goes on without it
      whose.push_back(&samples);
      taken.push_back(*ms);
      return true;
    };
    for (const std::size_t i : order) {
      if (sampler_.stopped() || !take(i, Timed::run, rounds_ms_[i])) return false;
      const bool packs = options_.count_packing && candidates_[i].packed_filter_bytes > 0;
      if (packs && candidates_[i].status == Status::ok && !take(i, Timed::pack, packs_ms_[i]))
        return false;
    }
    for (std::size_t t = 0; t < taken.size(); ++t) whose[t]->push_back(taken[t]);
    for (const std::size_t i : order) {
      Candidate& c = candidates_[i];
      if (c.status != Status::ok) continue;
      c.ms = median(rounds_ms_[i]);
      c.mad_ms = median_abs_deviation(rounds_ms_[i]);
      if (!packs_ms_[i].empty()) c.pack_ms = median(packs_ms_[i]);
    }
    erase_lost();
    sort_alive();
    ++rounds_;
    return true;
  }

  std::array<double, 3> ratio_to_best(std::size_t i) const {
    const auto costs = [&](std::size_t j) {
      std::vector<double> ms = rounds_ms_[j];
      for (double& m : ms) m += options_.count_packing ? candidates_[j].pack_ms : 0;
      return ms;
    };
    return paired_ratio(costs(i), costs(best()), options_.seed);
  }

  // Runs rounds until only finalists remain. False when a round could not be taken.
  bool narrow() {
    for (int target = 2; target <= options_.screening_rounds && alive_.size() > 2; target *= 2) {
      while (rounds_ < target)
        if (!one_round()) return false;
      // Two rounds give no interval, but show who is far slower.
      const double bound = rounds_ < 4
                               ? 1 + (options_.drop_factor - 1) / 2
                               : (options_.drop_factor < infinity ? options_.reach : infinity);
      drop_if([&](std::size_t i) -> std::optional<std::pair<double, std::string>> {
        const std::array<double, 3> ratio = ratio_to_best(i);
        if (ratio[0] <= bound) return {};
        return std::pair(ratio[1],
                         fmt::format("{:.2f} times the best then ({:.2f} to {:.2f}) after {} "
                                     "rounds",
                                     ratio[1], ratio[0], ratio[2], rounds_));
      });
      if (rounds_ >= 4 && alive_.size() <= options_.finalists) break;
    }
    std::size_t place = 0;
    drop_if([&](std::size_t i) -> std::optional<std::pair<double, std::string>> {
      if (++place + 2 <= options_.finalists) return {};
      const double ratio = ratio_to_best(i)[1];
      return std::pair(ratio, fmt::format("not among the fastest {}: {:.2f} times the best then",
                                          options_.finalists, ratio));
    });
    return true;
  }

  std::vector<Candidate>& candidates_;
  CandidateRunner& runner_;
  Sampler& sampler_;
  const RaceOptions& options_;
  const CandidateEnded& ended_;
  std::mt19937_64 random_;
  const std::vector<Candidate> as_they_came_;
  std::vector<int> runs_;                                  // per sample, by candidate
  std::vector<std::vector<double>> rounds_ms_, packs_ms_;  // by candidate
  std::vector<std::size_t> alive_;                         // best first
  int rounds_ = 0;
};

}  // namespace

std::string why_pruned(double ratio) {
  return fmt::format("predicted {:.1f} times the best, not run", ratio);
}

void screen(std::vector<Candidate>& candidates, CandidateRunner& runner, Sampler& sampler,
            const RaceOptions& options, const CandidateEnded& ended) {
  Screening(candidates, runner, sampler, options, ended).run();
}

}  // namespace convlab
