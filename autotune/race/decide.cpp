#include "autotune/race/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "autotune/measure/measure.h"

namespace convlab {
namespace {

// A table of Student's quantiles, since a race looks them up thousands of times.
double quantile(Confidence confidence, std::size_t freedom) {
  const auto table = [](double tail) {
    std::array<double, most_student_freedom> quantiles;
    for (int f = 1; f <= most_student_freedom; ++f)
      quantiles[std::size_t(f) - 1] = student_quantile(tail, f);
    return quantiles;
  };
  static const auto reported = table(0.025), winning = table(0.00075);
  return (confidence == Confidence::winning ? winning : reported)
      .at(std::min(freedom, std::size_t(most_student_freedom)) - 1);
}

constexpr double least_of_three = 0.10;  // required margin of a win by three processes

using Interval = std::array<double, 3>;
bool beyond(const Interval& r, double margin) { return r[0] > 1 + margin; }
bool within(const Interval& r, double margin) { return r[0] >= 1 - margin && r[2] <= 1 + margin; }

class Decider {
 public:
  Decider(std::span<const Candidate> candidates, bool count_packing)
      : candidates_(candidates), count_packing_(count_packing) {
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (is_measured(candidates[i])) order_.push_back(i);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
  }

  Decision decide() const {
    if (order_.empty()) return predicted_or_none();
    if (order_.size() == 1) return alone();
    if (wins()) return {order_[0], Verdict::win, ratio(order_[1], order_[0]), {}};
    if (const std::optional<Decision> tie = tied()) return *tie;
    return {order_[0], Verdict::unsure, ratio(order_[1], order_[0]), why_unsure()};
  }

 private:
  double cost(std::size_t i) const { return cost_ms(candidates_[i], count_packing_); }
  Interval ratio(std::size_t i, std::size_t base,
                 Confidence confidence = Confidence::reported) const {
    const std::vector<double> a = process_costs(candidates_[i], count_packing_);
    const std::vector<double> b = process_costs(candidates_[base], count_packing_);
    if (a.empty() || b.empty()) return {0, cost(i) / cost(base), 0};
    return process_ratio(a, b, confidence);
  }
  std::size_t processes() const { return candidates_[order_[0]].process_ms.size(); }

  Decision predicted_or_none() const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      if (candidates_[i].status == Status::ok) order.push_back(i);
    if (order.empty()) return {};
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
    const double ratio = order.size() > 1 ? cost(order[1]) / cost(order[0]) : 0;
    return {order[0], Verdict::predicted, {0, ratio, 0}, {}};
  }

  Decision alone() const {
    const bool rivals = std::any_of(candidates_.begin(), candidates_.end(), [](const Candidate& c) {
      return c.status == Status::dropped || (c.status == Status::ok && c.predicted);
    });
    if (!rivals && processes() >= least_processes) return {order_[0], Verdict::only, {}, {}};
    return {order_[0], Verdict::unsure, {}, rivals ? "no rival was measured beside it" : why_few()};
  }

  bool wins() const {
    if (processes() < least_processes) return false;
    const double margin = processes() > least_processes ? win_margin : least_of_three;
    return std::all_of(order_.begin() + 1, order_.end(), [&](std::size_t i) {
      return beyond(ratio(i, order_[0]), margin) &&
             beyond(ratio(i, order_[0], Confidence::winning), margin);
    });
  }

  std::optional<Decision> tied() const {
    const auto rank = [&](std::size_t i) {
      const Candidate& c = candidates_[i];
      return std::tuple(!c.deterministic, c.workspace_bytes, c.algo, c.config.text(), c.x_layout,
                        c.y_layout);
    };
    const std::size_t fastest = order_[0];
    std::size_t chosen = fastest;
    for (const std::size_t i : order_)
      if (i != fastest && within(ratio(i, fastest), tie_margin) && rank(i) < rank(chosen))
        chosen = i;
    const std::size_t runner_up = chosen == fastest ? order_[1] : fastest;
    const Interval next = ratio(runner_up, chosen);
    if (!within(next, tie_margin)) return {};
    for (const std::size_t i : order_)
      if (i != chosen && ratio(i, chosen)[0] < 1 - tie_margin) return {};
    return Decision{chosen, Verdict::tie, next, {}};
  }

  std::string why_few() const {
    return fmt::format("ran undisturbed in {} of at least {} processes", processes(),
                       least_processes);
  }

  std::string why_unsure() const {
    if (processes() < least_processes) return why_few();
    return fmt::format(
        "{} processes do not tell it from its rivals: neither all over {:.0f}% "
        "slower nor all within {:.0f}%",
        processes(), 100 * win_margin, 100 * tie_margin);
  }

  std::span<const Candidate> candidates_;
  bool count_packing_;
  std::vector<std::size_t> order_;  // measured candidates, fastest first
};

}  // namespace

std::array<double, 3> process_ratio(std::span<const double> a, std::span<const double> b,
                                    Confidence confidence) {
  const std::size_t n = std::min(a.size(), b.size());
  std::vector<double> d(n);
  for (std::size_t i = 0; i < n; ++i) d[i] = std::log(a[i] / b[i]);
  std::sort(d.begin(), d.end());
  const std::size_t trim = n < 8 ? 0 : n / 5;  // from each end
  double mean = 0;
  for (std::size_t i = trim; i < n - trim; ++i) mean += d[i] / double(n - 2 * trim);
  if (n < least_processes) return {0, std::exp(mean), 0};

  // The variance is Winsorized: a trimmed value counts as the nearest untrimmed one.
  double winsorized_mean = 0, squares = 0;
  const auto winsorized = [&](std::size_t i) { return d[std::clamp(i, trim, n - trim - 1)]; };
  for (std::size_t i = 0; i < n; ++i) winsorized_mean += winsorized(i) / double(n);
  for (std::size_t i = 0; i < n; ++i) squares += std::pow(winsorized(i) - winsorized_mean, 2);
  const double kept = 1 - 2 * double(trim) / double(n);
  const double error = std::sqrt(squares / double(n - 1) / double(n)) / kept;
  const double half = quantile(confidence, n - 2 * trim - 1) * error;
  return {std::exp(mean - half), std::exp(mean), std::exp(mean + half)};
}

double cost_ms(const Candidate& c, bool count_packing) {
  return c.ms + (count_packing ? c.pack_ms : 0);
}

std::vector<double> process_costs(const Candidate& c, bool count_packing) {
  std::vector<double> costs = c.process_ms;
  if (count_packing)
    for (std::size_t i = 0; i < costs.size(); ++i) costs[i] += c.process_pack_ms[i];
  return costs;
}

void settle_times(std::span<Candidate* const> candidates, bool count_packing) {
  Candidate* fastest = nullptr;
  std::vector<double> best;
  for (Candidate* c : candidates) {
    c->ms = median(c->process_ms);
    c->mad_ms = median_abs_deviation(c->samples_ms);
    c->pack_ms = median(c->process_pack_ms);
    std::vector<double> costs = process_costs(*c, count_packing);
    if (fastest && process_ratio(costs, best)[1] >= 1) continue;
    fastest = c;
    best = std::move(costs);
  }
  for (Candidate* c : candidates) {
    if (c == fastest) continue;
    const double ratio = process_ratio(process_costs(*c, count_packing), best)[1];
    const double cost = ratio * cost_ms(*fastest, count_packing);
    c->ms = std::max(cost - (count_packing ? c->pack_ms : 0), 0.5 * c->ms);
  }
}

Decision decide_among_measured(std::span<const Candidate> candidates, bool count_packing) {
  return Decider(candidates, count_packing).decide();
}

Decision decide(std::span<const Candidate> candidates, bool count_packing) {
  Decision decision = decide_among_measured(candidates, count_packing);
  if (decision.verdict == Verdict::predicted || decision.verdict == Verdict::unsure)
    return decision;
  const auto open = std::find_if(candidates.begin(), candidates.end(), is_open);
  if (open == candidates.end()) return decision;
  decision.verdict = Verdict::unsure;
  decision.reason = fmt::format("{} was not measured and may be as fast", candidate_key(*open));
  return decision;
}

}  // namespace convlab
