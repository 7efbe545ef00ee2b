#include "bench/reports/explain_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "autotune/candidates.h"
#include "autotune/race/decide.h"
#include "bench/options/choice.h"
#include "bench/reports/report.h"
#include "bench/reports/tune_cells.h"

namespace convlab {
namespace {

// The runner-up's ratio is the verdict's own. Others are paired if they ran in the same processes.
std::array<double, 3> ratio_to_chosen(const Candidate& c, const LayerResult& layer) {
  const Candidate& chosen = layer.candidates[*layer.chosen];
  if (c.ms <= 0 || chosen.ms <= 0) return {};
  if (&c == &chosen) return {1, 1, 1};
  if (&c == runner_up(layer) && layer.ratio[1] > 0) return layer.ratio;
  if (c.process_ms.size() == chosen.process_ms.size() && c.process_ms.size() >= least_processes)
    return process_ratio(c.process_ms, chosen.process_ms);
  return {0, c.ms / chosen.ms, 0};
}

// A difference within the noise needs no explanation.
bool is_noise(const ExplainedCandidate& c, const LayerResult& layer) {
  const bool next = c.candidate == runner_up(layer);
  const bool interval = c.ratio[0] > 0;
  if (layer.verdict == Verdict::tie && (next || c.ratio[1] <= 1 + tie_margin)) return true;
  if (layer.verdict == Verdict::unsure && c.candidate->status == Status::ok && (next || !interval))
    return true;
  return c.ratio[interval ? 0 : 1] <= 1 + win_margin;
}

std::string show_ratio(const std::array<double, 3>& ratio) {
  return fmt::format("{:.2f}x", ratio[1]) +
         (ratio[0] > 0 ? fmt::format(" [{:.2f} {:.2f}]", ratio[0], ratio[2]) : std::string());
}

// Time is FLOPs over their rate. Says which of the two made the difference.
std::string why_lost(const ExplainedCandidate& c, const ExplainedCandidate& chosen,
                     const LayerResult& layer) {
  const bool dropped = c.candidate->status == Status::dropped;
  if (is_noise(c, layer))
    return dropped ? fmt::format("within noise when it was dropped: {}", c.candidate->reason)
                   : "within noise of the chosen";
  const double flops = c.flops / chosen.flops;
  const double rate = flops / c.ratio[1];
  const std::string twice = fmt::format(
      "{:.2f}x the time: {:.3g}x the FLOPs at {:.2g}x the rate, {:.0f}% of its roof against "
      "{:.0f}%",
      c.ratio[1], flops, rate, c.percent_of_roof, chosen.percent_of_roof);
  return dropped ? twice + "; dropped before the end" : twice;
}

std::string why_chosen(const LayerResult& layer, const ExplainedCandidate& c) {
  const std::string next = fmt::format("the next takes {} its time", show_ratio(layer.ratio));
  switch (layer.verdict) {
    case Verdict::win:
      return fmt::format("won: {}; {:.0f}% of its roof", next, c.percent_of_roof);
    case Verdict::tie:
      return fmt::format("a tie, {}: chosen as {}, with {} of workspace", next,
                         c.candidate->deterministic ? "deterministic" : "the smaller",
                         show_bytes(c.candidate->workspace_bytes));
    case Verdict::unsure:
      return fmt::format("undecided{}{}", layer.ratio[1] > 0 ? ", " + next : "",
                         layer.reason.empty() ? "" : ": " + layer.reason);
    case Verdict::predicted:
      return "predicted to be the fastest, and not run";
    default:
      return "the only one that works";
  }
}

std::string why(const ExplainedCandidate& c, const ExplainedCandidate* chosen,
                const LayerResult& layer) {
  if (chosen && c.candidate == chosen->candidate) return why_chosen(layer, c);
  if (was_timed(*c.candidate) && chosen)
    return chosen->candidate->predicted ? "measured; the chosen is only predicted"
                                        : why_lost(c, *chosen, layer);
  if (c.candidate->status == Status::ok) return "predicted, and not run";
  return fmt::format("{}: {}", to_string(c.candidate->status), c.candidate->reason);
}

// The fastest candidate that `admits` accepts; measured ones come before predicted ones.
template <class Admits>
const Candidate* fastest(const LayerResult& layer, const Admits& admits) {
  const Candidate* best = nullptr;
  for (const Candidate& c : layer.candidates)
    if (c.ms > 0 && admits(c) &&
        (!best || std::pair(c.predicted, c.ms) < std::pair(best->predicted, best->ms)))
      best = &c;
  return best;
}

std::string with_time(const Candidate& c) {
  return fmt::format("{} at {}{} ms", show_choice(c), c.predicted ? "a predicted " : "",
                     show_ms(c.ms));
}

std::vector<RooflinePhase> beforehand(const PhaseWork& pack, const Problem& problem,
                                      const Candidate& c) {
  std::vector<RooflinePhase> rows;
  if (c.pack_ms > 0)
    rows.push_back({"packing", c.pack_ms, pack.flops, pack.bytes_read + pack.bytes_written, 0});
  if (const ConvProblem* const p = problem.conv();
      p && c.convert_ms > 0)  // each is read and written
    rows.push_back({"conversion", c.convert_ms, 0, 2 * double(p->x_bytes() + p->y_bytes()), 0});
  return rows;
}

}  // namespace

Explanation explain(const LayerResult& layer, const Algos& algos, Device& device,
                    const std::vector<Roof>& roofs) {
  Explanation e;
  e.layer = &layer;
  const Candidate* const chosen = layer.chosen ? &layer.candidates[*layer.chosen] : nullptr;
  for (const Candidate& c : layer.candidates) {
    ExplainedCandidate& row = e.candidates.emplace_back();
    row.candidate = &c;
    if (c.ms <= 0 || c.status == Status::refused) continue;
    const Problem problem = as_run(layer.layer.problem, c);
    const AlgoRef algo = algos.get(problem, device.info().kind, c.algo);
    const RooflinePoint point =
        roofline_point(algo.work(problem, c.config, device), problem, c, device.info(), roofs);
    row.flops = point.flops;
    row.percent_of_roof = c.predicted ? 0 : point.percent_of_roof;
    if (chosen) row.ratio = ratio_to_chosen(c, layer);
    if (&c == chosen && !c.predicted) {
      const std::unique_ptr<Stream> stream = device.make_stream();
      const auto testbed =
          make_testbed(problem, 1, ReferenceCase::Evaluate::nothing, device, *stream);
      e.phases = roofline_phases(algo, problem, c, *testbed, device, *stream, roofs);
      e.beforehand = beforehand(algo.work(problem, c.config, device).pack, problem, c);
    }
  }
  const auto winner =
      std::find_if(e.candidates.begin(), e.candidates.end(),
                   [&](const ExplainedCandidate& c) { return c.candidate == chosen; });
  for (ExplainedCandidate& c : e.candidates)
    c.why = why(c, winner == e.candidates.end() ? nullptr : &*winner, layer);
  return e;
}

std::vector<std::string> limits_that_decide(const LayerResult& layer, const TuneOptions& options) {
  std::vector<std::string> sentences;
  const double max_error =
      options.max_error.value_or(default_max_error(layer.layer.problem.dtype()));
  const Candidate* const chosen = layer.chosen ? &layer.candidates[*layer.chosen] : nullptr;
  const auto would_win = [&](const Candidate& c) {
    return !chosen || (1 + win_margin) * c.ms < chosen->ms;
  };

  const Candidate* const inaccurate = fastest(
      layer, [&](const Candidate& c) { return c.status == Status::inaccurate && would_win(c); });
  if (inaccurate)
    sentences.push_back(fmt::format("--max-error {:.1e} instead of {:.1e} would admit {}.",
                                    inaccurate->rel_error, max_error, with_time(*inaccurate)));
  const Candidate* const greedy = fastest(layer, [&](const Candidate& c) {
    return options.workspace_max && c.status == Status::refused &&
           c.workspace_bytes > *options.workspace_max && would_win(c);
  });
  if (greedy)
    sentences.push_back(fmt::format("--workspace-max {} instead of {} would admit {}.",
                                    greedy->workspace_bytes, *options.workspace_max,
                                    with_time(*greedy)));
  if (sentences.empty()) sentences.emplace_back("No limit keeps a faster one out.");
  if (!chosen || chosen->predicted) return sentences;

  const auto tighter = [&](const std::string& flag, const std::string& value, auto&& admits) {
    const Candidate* next = fastest(
        layer, [&](const Candidate& c) { return was_timed(c) && &c != chosen && admits(c); });
    sentences.push_back(
        next ? fmt::format("With {} below {} it would be {}.", flag, value, with_time(*next))
             : fmt::format("With {} below {} nothing measured would be left.", flag, value));
  };
  if (chosen->workspace_bytes > 0)
    tighter("--workspace-max", show_bytes(chosen->workspace_bytes),
            [&](const Candidate& c) { return c.workspace_bytes < chosen->workspace_bytes; });
  const auto as_shown = [](double error) { return std::stod(fmt::format("{:.1e}", error)); };
  if (chosen->rel_error > 0)
    tighter("--max-error", fmt::format("{:.1e}", chosen->rel_error), [&](const Candidate& c) {
      return as_shown(c.rel_error) < as_shown(chosen->rel_error);
    });
  return sentences;
}

std::string recurrent_roofs(const RecurrentProblem& p, const DeviceInfo& device,
                            const std::vector<Roof>& roofs) {
  if (p.pass == Pass::backward_filter) return "";
  const std::int64_t reads = p.t * p.layers * p.directions();
  std::vector<std::string> times;
  for (const char* level : {"L2", "L3", "memory"})
    if (const double bandwidth = bandwidth_of(roofs, device.threads, level); bandwidth > 0)
      times.push_back(fmt::format(
          "{} ms from {}", show_ms(1e3 * double(reads * p.step_bytes()) / bandwidth), level));
  const std::int64_t held =
      device.l2_bytes * (device.kind == DeviceKind::cuda ? 1 : device.threads);
  return fmt::format("Recurrent weights: {} a step, {} steps; L2 holds {}{}{}.",
                     show_bytes(p.step_bytes()), reads, show_bytes(held),
                     times.empty() ? "" : "; reading them takes at least ", fmt::join(times, ", "));
}

std::string winners_by_batch(const std::vector<BatchWinner>& winners, std::int64_t batch) {
  if (winners.size() < 2) return fmt::format("Nothing is known of other batches than {}.", batch);
  std::vector<std::string> parts;
  for (auto first = winners.begin(); first != winners.end();) {
    const auto end = std::find_if(first, winners.end(), [&](const BatchWinner& w) {
      return w.algo != first->algo || w.how != first->how;
    });
    const std::int64_t last = std::prev(end)->batch;
    parts.push_back(fmt::format("{} at {}{} ({})", first->algo, first->batch,
                                last == first->batch ? "" : fmt::format(" to {}", last),
                                first->how));
    first = end;
  }
  return fmt::format("By batch: {}.", fmt::join(parts, ", "));
}

}  // namespace convlab
