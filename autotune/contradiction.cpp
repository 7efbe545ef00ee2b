#include "autotune/contradiction.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "autotune/candidates.h"
#include "autotune/measure/measure.h"
#include "autotune/race/decide.h"
#include "conv/types/math_type.h"

namespace convlab {

std::optional<std::string> contradiction(const TuningEntry& entry, std::span<const TuningEntry> all,
                                         const Algos& algos, Device& device,
                                         const Ceilings& ceilings) {
  const Decision decision = decide(entry.candidates, entry.count_packing);
  if (!decision.chosen || decision.verdict == Verdict::predicted) return {};
  const Candidate& chosen = entry.candidates[*decision.chosen];

  const auto over_prediction = [&](const Candidate& c) { return c.ms / entry.prediction(c).ms; };
  std::vector<double> others;
  for (const Candidate& c : entry.candidates)
    if (&c != &chosen && was_timed(c)) others.push_back(over_prediction(c));
  constexpr double far = 3;
  if (others.size() > 2 && over_prediction(chosen) > far * median(others))
    return fmt::format("it takes {:.1f} times its prediction, its rivals {:.1f} times theirs",
                       over_prediction(chosen), median(others));

  if (device.info().kind == DeviceKind::cpu) {
    constexpr double above = 1.05;
    const AlgoRef algo = algos.get(entry.problem, device.info().kind, chosen.algo);
    const double gflops =
        algo.work(as_run(entry.problem, chosen), chosen.config, device).flops() / chosen.ms / 1e6;
    const double peak = ceilings.flops(entry.problem.dtype(), math_type(chosen.config)) / 1e9;
    if (gflops > above * peak)
      return fmt::format("{:.0f} GFLOP/s are above the machine's peak of {:.0f}", gflops, peak);
  }

  constexpr double changed = 1.15;
  if (entry.earlier_ms &&
      std::max(chosen.ms / *entry.earlier_ms, *entry.earlier_ms / chosen.ms) > changed)
    return fmt::format("{:.3g} ms now, {:.3g} ms in an earlier run", chosen.ms, *entry.earlier_ms);

  // A recurrent layer's passes differ: only backward_filter is one product over all steps.
  if (!entry.problem.conv()) return {};
  constexpr double slow_pass = 2.5;
  for (const TuningEntry& other : all) {
    Problem same_pass = other.problem;
    same_pass.set_pass(entry.problem.pass());
    if (&other == &entry || !(same_pass == entry.problem)) continue;
    const double best = other.best_measured();
    if (chosen.ms > slow_pass * best)
      return fmt::format("{:.3g} ms, where {} takes {:.3g} ms", chosen.ms,
                         to_string(other.problem.pass()), best);
  }
  return {};
}

}  // namespace convlab
