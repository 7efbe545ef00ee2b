#include "autotune/limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "conv/error.h"
#include "conv/types/expected_error.h"
#include "conv/types/math_type.h"

namespace convlab {
namespace {

// The part of a candidate that decides its error: the algorithm, the size of its transform's tile
// and the math type.
std::string arithmetic(const Candidate& c) {
  std::string text = c.algo;
  for (const auto& [name, value] : c.config.values())
    if (name == "tile" || name == "math") text += fmt::format(" {}", Config{{name, value}}.text());
  return text;
}

}  // namespace

void validate_limits(std::optional<double> max_error, std::optional<std::int64_t> workspace_max) {
  if (max_error && !(*max_error >= 0))
    throw InputError(fmt::format("a max_error of {}: expected 0 or more, or inf", *max_error));
  if (workspace_max && *workspace_max < 0)
    throw InputError(
        fmt::format("a workspace_max of {} bytes: expected 0 or more", *workspace_max));
}

void KnownErrors::note(const Candidate& c) {
  if (c.predicted ||
      (c.status != Status::ok && c.status != Status::dropped && c.status != Status::inaccurate))
    return;
  double& worst = worst_[arithmetic(c)];
  worst = std::max(worst, c.rel_error);
}

void KnownErrors::apply(std::vector<Candidate>& candidates, double max_error) const {
  for (Candidate& c : candidates) {
    const auto known = worst_.find(arithmetic(c));
    const bool is_known = known != worst_.end();
    const double error = is_known ? known->second : expected_error(c.config);
    if (c.status != Status::ok || !c.predicted || error <= max_error) continue;
    c.status = Status::inaccurate;
    c.rel_error = error;
    c.reason = fmt::format("not run: its rel_error {}, {:.2e}, is above the limit {:.2e}",
                           is_known ? "elsewhere" : "as expected of its math", error, max_error);
  }
}

std::string why_none(const std::vector<Candidate>& candidates, double max_error,
                     std::optional<std::int64_t> workspace_max) {
  const Candidate *accurate = nullptr, *frugal = nullptr, *ended = nullptr;
  for (const Candidate& c : candidates) {
    if (c.status == Status::inaccurate && c.rel_error > 0 &&
        (!accurate || c.rel_error < accurate->rel_error))
      accurate = &c;
    if (workspace_max && c.status == Status::refused && c.workspace_bytes > *workspace_max &&
        (!frugal || c.workspace_bytes < frugal->workspace_bytes))
      frugal = &c;
    if (!ended || (ended->status == Status::refused && c.status != Status::refused)) ended = &c;
  }
  std::vector<std::string> reasons;
  if (accurate)
    reasons.push_back(fmt::format("--max-error {:.2e} would admit {}, {:.2e} admits none",
                                  accurate->rel_error, accurate->algo, max_error));
  if (frugal)
    reasons.push_back(fmt::format("--workspace-max {} would admit {}, {} admits none",
                                  frugal->workspace_bytes, frugal->algo, *workspace_max));
  if (!reasons.empty()) return fmt::format("{}", fmt::join(reasons, "; "));
  if (!ended) return "no algorithm is admitted";
  return fmt::format("{} is {} ({})", ended->algo, to_string(ended->status), ended->reason);
}

}  // namespace convlab
