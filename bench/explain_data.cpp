#include "bench/explain_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "autotune/candidates.h"
#include "autotune/measure.h"
#include "bench/report.h"
#include "bench/tune_report.h"

namespace convlab {
namespace {

bool is_measured(const Candidate& c) {
  return !c.predicted && c.ms > 0 && (c.status == Status::ok || c.status == Status::dropped);
}

std::array<double, 3> ratio_to(const Candidate& c, const Candidate& chosen) {
  if (c.ms <= 0 || chosen.ms <= 0) return {};
  if (c.samples_ms.size() == chosen.samples_ms.size() && c.samples_ms.size() > 2)
    return paired_ratio(c.samples_ms, chosen.samples_ms, 1);
  return {0, c.ms / chosen.ms, 0};
}

// A time is FLOPs over their rate: which of the two made the difference.
std::string why_lost(const ExplainedCandidate& c, const ExplainedCandidate& chosen) {
  const double flops = c.flops / chosen.flops;
  const double rate = flops / c.ratio[1];
  const std::string twice = fmt::format(
      "{:.3g}x the time: {:.3g}x the FLOPs at {:.2g}x the rate, {:.0f}% of its roof against "
      "{:.0f}%",
      c.ratio[1], flops, rate, c.percent_of_roof, chosen.percent_of_roof);
  return c.candidate->status == Status::dropped ? twice + "; dropped after its first samples"
                                                : twice;
}

std::string why_chosen(const LayerResult& layer, const ExplainedCandidate& c) {
  const auto interval = [&] {
    return layer.ratio[0] > 0 ? fmt::format(" [{:.2f} {:.2f}]", layer.ratio[0], layer.ratio[2])
                              : std::string();
  };
  switch (layer.verdict) {
    case Verdict::win:
      return fmt::format("won: the next takes {:.2f}x{} its time; {:.0f}% of its roof",
                         layer.ratio[1], interval(), c.percent_of_roof);
    case Verdict::tie:
      return fmt::format(
          "a tie, the next takes {:.2f}x{} its time: chosen as {}, with {} of workspace",
          layer.ratio[1], interval(), c.candidate->deterministic ? "deterministic" : "the smaller",
          show_bytes(c.candidate->workspace_bytes));
    default:
      return "the only one that works";
  }
}

std::string why(const ExplainedCandidate& c, const ExplainedCandidate* chosen,
                const LayerResult& layer) {
  if (chosen && c.candidate == chosen->candidate) return why_chosen(layer, c);
  if (is_measured(*c.candidate) && chosen) return why_lost(c, *chosen);
  if (c.candidate->status == Status::ok) return "predicted, and not run";
  return fmt::format("{}: {}", to_string(c.candidate->status), c.candidate->reason);
}

// The fastest of those that `admits` lets through; measured ones before predicted ones.
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

std::vector<RooflinePhase> beforehand(const PhaseWork& pack, const ConvProblem& problem,
                                      const Candidate& c) {
  std::vector<RooflinePhase> rows;
  if (c.pack_ms > 0)
    rows.push_back({"packing", c.pack_ms, pack.flops, pack.bytes_read + pack.bytes_written, 0});
  if (c.convert_ms > 0)  // each is read and written
    rows.push_back(
        {"conversion", c.convert_ms, 0, 2 * double(problem.x_bytes() + problem.y_bytes()), 0});
  return rows;
}

}  // namespace

Explanation explain(const LayerResult& layer, const AlgoRegistry& registry, Device& device,
                    const std::vector<Roof>& roofs) {
  Explanation e;
  e.layer = &layer;
  const Candidate* const chosen = layer.chosen ? &layer.candidates[*layer.chosen] : nullptr;
  for (const Candidate& c : layer.candidates) {
    ExplainedCandidate& row = e.candidates.emplace_back();
    row.candidate = &c;
    if (c.ms <= 0 || c.status == Status::refused) continue;
    const ConvProblem problem = with_layouts(layer.layer.problem, {c.x_layout, c.y_layout});
    const ConvAlgo& algo = registry.get(device.info().kind, c.algo);
    const RooflinePoint point =
        roofline_point(algo.work(problem, c.config, device), problem, c, device.info(), roofs);
    row.flops = point.flops;
    row.percent_of_roof = c.predicted ? 0 : point.percent_of_roof;
    if (chosen) row.ratio = ratio_to(c, *chosen);
    if (&c == chosen && !c.predicted) {
      e.phases = roofline_phases(algo, problem, c,
                                 ReferenceCase(problem, 1, DataKind::normal, ReferenceCase::Evaluate::nothing), device, roofs);
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
  const double max_error = options.max_error.value_or(default_max_error(layer.layer.problem.dtype));
  const Candidate* const chosen = layer.chosen ? &layer.candidates[*layer.chosen] : nullptr;
  const auto would_win = [&](const Candidate& c) { return !chosen || c.ms < chosen->ms; };

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
        layer, [&](const Candidate& c) { return is_measured(c) && &c != chosen && admits(c); });
    sentences.push_back(
        next ? fmt::format("With {} below {} it would be {}.", flag, value, with_time(*next))
             : fmt::format("With {} below {} nothing measured would be left.", flag, value));
  };
  if (chosen->workspace_bytes > 0)
    tighter("--workspace-max", show_bytes(chosen->workspace_bytes),
            [&](const Candidate& c) { return c.workspace_bytes < chosen->workspace_bytes; });
  if (chosen->rel_error > 0)
    tighter("--max-error", fmt::format("{:.1e}", chosen->rel_error),
            [&](const Candidate& c) { return c.rel_error < chosen->rel_error; });
  return sentences;
}

std::string winners_by_batch(const std::vector<BatchWinner>& winners, std::int64_t batch,
                             const std::string& how) {
  std::vector<std::string> parts;
  std::string last;
  for (const BatchWinner& w : winners) {
    if (w.algo == last) continue;
    parts.push_back(fmt::format("{} from {} on", w.algo, w.batch));
    last = w.algo;
  }
  if (winners.empty()) return fmt::format("Nothing is known of other batches than {}.", batch);
  if (parts.size() == 1)
    return fmt::format("The winner stays {} for batches {} to {} ({}).", last,
                       winners.front().batch, winners.back().batch, how);
  return fmt::format("Over the batch the winner is {} ({}).", fmt::join(parts, ", "), how);
}

}  // namespace convlab
