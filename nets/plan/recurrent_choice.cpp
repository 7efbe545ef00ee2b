#include "nets/plan/recurrent_choice.h"

#include <algorithm>

#include "autotune/candidates.h"
#include "autotune/race/decide.h"
#include "nets/plan/stored_times.h"
#include "nets/run/arena.h"

namespace convlab::nets {
namespace {

using Algos = std::vector<const RecurrentAlgo*>;

struct Found {
  RecurrentChoice choice;
  bool known = true;  // no pass goes by a prediction that measuring could replace
};

class Chooser {
 public:
  Chooser(const RecurrentProblem& forward, const Algos& algos, const ChooseOptions& options,
          std::int64_t limit, double net_bytes, Device& device, const Ceilings& ceilings,
          const Store* store)
      : forward_(forward),
        options_(options),
        limit_(limit),
        net_bytes_(net_bytes),
        device_(device),
        ceilings_(ceilings) {
    if (store == nullptr) return;
    std::vector<AlgoRef> all;
    for (const RecurrentAlgo* algo : algos) all.emplace_back(*algo);
    for (const Pass pass : passes()) {
      RecurrentProblem tuned = in_pass(pass);
      tuned.input_gradient = true;
      stored_[std::size_t(pass)].emplace(*store, tuned, all, options, must_pack(pass),
                                         device.info());
    }
  }

  // Each pass by one of these algorithms; nullopt if they leave one out.
  std::optional<Found> choose(const Algos& algos) const {
    Found all;
    for (const Pass pass : passes()) {
      std::vector<Way> found = ways(algos, pass);
      if (found.empty()) return {};
      Way& best = preferred(found);
      const bool open = stored(pass) && !stored(pass)->decided();
      if (!best.known || (best.plan.measured && open)) all.choice.untuned.push_back(pass);
      all.known = all.known && best.known;
      all.choice.ms += best.plan.ms;
      all.choice.workspace = std::max(all.choice.workspace, best.workspace);
      all.choice.passes[std::size_t(pass)] = std::move(best.plan);
    }
    return all;
  }

  bool has_own_format(const RecurrentAlgo& algo) const {
    return !algo.refuse(forward_, device_) && algo.own_format(forward_, device_).has_value();
  }

 private:
  // To run a pass.
  struct Way {
    PassPlan plan;
    Origin origin = Origin::own;
    bool known = false;  // measured, or never measured because another pass does its products
    std::int64_t workspace = 0;
  };

  bool training() const { return options_.mode == Mode::training; }
  std::vector<Pass> passes() const {
    if (!training()) return {Pass::forward};
    return {all_passes.begin(), all_passes.end()};
  }
  RecurrentProblem in_pass(Pass pass) const {
    RecurrentProblem p = forward_;
    p.pass = pass;
    p.training = pass == Pass::forward && training();
    return p;
  }
  // In training weights change, so each step packs them again.
  bool must_pack(Pass pass) const { return training() && pass != Pass::backward_filter; }
  const StoredTimes* stored(Pass pass) const {
    const std::optional<StoredTimes>& times = stored_[std::size_t(pass)];
    return times ? &*times : nullptr;
  }

  // Of each algorithm those that are measured, and of the others the untuned default.
  std::vector<Way> ways(const Algos& algos, Pass pass) const {
    const RecurrentProblem p = in_pass(pass);
    std::vector<Way> found;
    for (const RecurrentAlgo* algo : algos) {
      if (algo->refuse(p, device_)) continue;
      bool guessed = false;
      for (const Config& config : algo->configs(p, device_)) {
        Candidate row = new_candidate(*algo, p, options_.cache, device_.info());
        row.config = config;
        row.predicted = true;
        if (stored(pass) && !stored(pass)->recall(row)) continue;
        if (row.predicted && guessed) continue;
        if (std::optional<Way> way = way_of(*algo, p, row)) {
          guessed = guessed || row.predicted;
          found.push_back(*std::move(way));
        }
      }
    }
    return found;
  }

  std::optional<Way> way_of(const RecurrentAlgo& algo, const RecurrentProblem& p,
                            const Candidate& row) const {
    if (options_.deterministic && !algo.deterministic(p, row.config)) return {};
    const auto plan = algo.plan(p, row.config, device_);
    Way way{{.algo = row.algo, .config = row.config}, algo.info().origin, false, 0};
    way.workspace =
        std::int64_t(packed_and_workspace(plan->packed_weights_bytes(), plan->workspace_bytes()));
    if (way.workspace > limit_) return {};
    way.plan.measured = !row.predicted;
    way.known = way.plan.measured || AlgoRef(algo).refuse(p, device_).has_value();
    if (way.plan.measured) {
      way.plan.ms = cost_ms(row, must_pack(p.pass));
      return way;
    }
    WorkEstimate work = algo.work(p, row.config, device_);
    if (must_pack(p.pass) && plan->packed_weights_bytes() > 0) work.phases.push_back(work.pack);
    way.plan.ms = predict_ms(work, p.dtype, net_bytes_, options_.cache, device_.info(), ceilings_);
    return way;
  }

  // The fastest measured one, if any is; else the fastest own one, if any is.
  static Way& preferred(std::vector<Way>& found) {
    const auto keep = [&](auto is_better) {
      if (std::any_of(found.begin(), found.end(), is_better))
        std::erase_if(found, [&](const Way& way) { return !is_better(way); });
    };
    keep([](const Way& way) { return way.plan.measured; });
    if (!found.front().plan.measured)
      keep([](const Way& way) { return way.origin == Origin::own; });
    return *std::min_element(found.begin(), found.end(),
                             [](const Way& a, const Way& b) { return a.plan.ms < b.plan.ms; });
  }

  const RecurrentProblem& forward_;
  const ChooseOptions& options_;
  std::int64_t limit_;
  double net_bytes_;
  Device& device_;
  const Ceilings& ceilings_;
  std::array<std::optional<StoredTimes>, 3> stored_;  // by Pass; none without a store
};

}  // namespace

std::optional<RecurrentChoice> choose_recurrent(const RecurrentProblem& forward,
                                                const std::vector<const RecurrentAlgo*>& algos,
                                                const ChooseOptions& options,
                                                std::int64_t workspace_max, double net_bytes,
                                                Device& device, const Ceilings& ceilings,
                                                const Store* store) {
  const Chooser chooser(forward, algos, options, workspace_max, net_bytes, device, ceilings, store);
  std::vector<Algos> teams(1);  // the first mix freely
  for (const RecurrentAlgo* algo : algos) {
    if (options.mode == Mode::training && chooser.has_own_format(*algo))
      teams.push_back({algo});
    else
      teams.front().push_back(algo);
  }
  std::optional<Found> best;
  for (const Algos& team : teams) {
    std::optional<Found> found = chooser.choose(team);
    if (!found) continue;
    const bool better =
        !best || (found->known && (!best->known || found->choice.ms < best->choice.ms));
    if (better) best = std::move(found);
  }
  if (!best) return {};
  return std::move(best->choice);
}

}  // namespace convlab::nets
