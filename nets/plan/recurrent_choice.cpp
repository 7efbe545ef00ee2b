#include "nets/plan/recurrent_choice.h"

#include <algorithm>

namespace convlab::nets {
namespace {

class Chooser {
 public:
  Chooser(const RecurrentProblem& forward, const ChooseOptions& options, std::int64_t limit,
          double net_bytes, Device& device, const Ceilings& ceilings)
      : forward_(forward),
        options_(options),
        limit_(limit),
        net_bytes_(net_bytes),
        device_(device),
        ceilings_(ceilings) {}

  // Each pass by one of these algorithms; nullopt if they leave one out.
  std::optional<RecurrentChoice> choose(const std::vector<const RecurrentAlgo*>& algos) const {
    RecurrentChoice choice;
    for (const Pass pass : all_passes) {
      if (pass != Pass::forward && options_.mode != Mode::training) continue;
      RecurrentProblem p = forward_;
      p.pass = pass;
      p.training = pass == Pass::forward && options_.mode == Mode::training;
      std::vector<Found> found = candidates(algos, p, Origin::own);
      if (found.empty()) found = candidates(algos, p, Origin::vendor);
      if (found.empty()) return {};
      Found& best =
          *std::min_element(found.begin(), found.end(),
                            [](const Found& a, const Found& b) { return a.plan.ms < b.plan.ms; });
      choice.ms += best.plan.ms;
      choice.workspace = std::max(choice.workspace, best.workspace);
      choice.passes[std::size_t(pass)] = std::move(best.plan);
    }
    return choice;
  }

  bool has_own_format(const RecurrentAlgo& algo) const {
    return !algo.refuse(forward_, device_) && algo.own_format(forward_, device_).has_value();
  }

 private:
  struct Found {
    PassPlan plan;
    std::int64_t workspace = 0;
  };

  std::vector<Found> candidates(const std::vector<const RecurrentAlgo*>& algos,
                                const RecurrentProblem& p, Origin origin) const {
    std::vector<Found> found;
    for (const RecurrentAlgo* algo : algos) {
      if (algo->info().origin != origin || algo->refuse(p, device_)) continue;
      for (const Config& config : algo->configs(p, device_))
        if (std::optional<Found> candidate = found_with(*algo, p, config)) {
          found.push_back(*std::move(candidate));
          break;  // the untuned default
        }
    }
    return found;
  }

  std::optional<Found> found_with(const RecurrentAlgo& algo, const RecurrentProblem& p,
                                  const Config& config) const {
    if (options_.deterministic && !algo.deterministic(p, config)) return {};
    const auto plan = algo.plan(p, config, device_);
    Found found{{.algo = algo.info().id, .config = config}, 0};
    found.workspace = std::int64_t(plan->workspace_bytes() + plan->packed_weights_bytes());
    if (found.workspace > limit_) return {};
    WorkEstimate work = algo.work(p, config, device_);
    // In training weights change, so each step packs them again.
    if (options_.mode == Mode::training && plan->packed_weights_bytes() > 0)
      work.phases.push_back(work.pack);
    found.plan.ms =
        predict_ms(work, p.dtype, net_bytes_, options_.cache, device_.info(), ceilings_);
    return found;
  }

  const RecurrentProblem& forward_;
  const ChooseOptions& options_;
  std::int64_t limit_;
  double net_bytes_;
  Device& device_;
  const Ceilings& ceilings_;
};

}  // namespace

std::optional<RecurrentChoice> choose_recurrent(const RecurrentProblem& forward,
                                                const std::vector<const RecurrentAlgo*>& algos,
                                                const ChooseOptions& options,
                                                std::int64_t workspace_max, double net_bytes,
                                                Device& device, const Ceilings& ceilings) {
  const Chooser chooser(forward, options, workspace_max, net_bytes, device, ceilings);
  if (options.mode == Mode::inference) return chooser.choose(algos);
  std::vector<std::vector<const RecurrentAlgo*>> teams(1);  // the first mix freely
  for (const RecurrentAlgo* algo : algos) {
    if (chooser.has_own_format(*algo))
      teams.push_back({algo});
    else
      teams.front().push_back(algo);
  }
  for (const auto& team : teams)
    if (std::optional<RecurrentChoice> found = chooser.choose(team)) return found;
  return {};
}

}  // namespace convlab::nets
