// The verdict from the times of a race.
//
// The samples are worker processes, not runs. Addresses and pages differ between processes and make
// the same code 1% faster or slower, occasionally 10%. Repetition within one process cannot show
// this (Kalibera and Jones 2013). Let d be the logarithm of the ratio of two candidates' costs in
// one process that ran both. The interval is Student's about the mean of all d. With eight or more,
// it is about their trimmed mean, which an outlier process cannot move (Tukey and McLaughlin 1963).
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "autotune/result.h"

namespace convlab {

// A rival within win_margin counts as equally fast. A rival that may be faster by more than
// tie_margin prevents a tie.
inline constexpr double win_margin = 0.01, tie_margin = 0.02;
// Fewer processes give no interval.
inline constexpr std::size_t least_processes = 3;

// reported: 95%, for one look at one rival. winning: 99.85%, since the verdict is tested several
// times as processes are added, and the first test that finds one ends the race.
enum class Confidence : std::uint8_t { reported, winning };

// Low, middle and high of the ratio a over b, paired by index, with at least one pair. Low and high
// are 0 for fewer than least_processes.
std::array<double, 3> process_ratio(std::span<const double> a, std::span<const double> b,
                                    Confidence = Confidence::reported);

// ms, plus pack_ms if packing counts.
double cost_ms(const Candidate&, bool count_packing);
std::vector<double> process_costs(const Candidate&, bool count_packing);

// Sets ms, mad_ms and pack_ms of candidates that ran in processes. The fastest gets the median of
// its processes; the others get that times their ratio to it, so that no time contradicts a ratio.
void settle_times(std::span<Candidate* const>, bool count_packing);

struct Decision {
  std::optional<std::size_t> chosen;
  Verdict verdict = Verdict::none;
  std::array<double, 3> ratio{};  // cost of the runner-up over the chosen's, 95%
  std::string reason;             // for none and unsure
};
// Chooses among the `ok` ones. A pure function: stored times decide as fresh ones do.
//   - win: every rival's interval lies beyond win_margin, also at the winning confidence. With
//     three processes it must lie beyond 10%, since all three may be outliers.
//   - tie: the runner-up's interval lies within tie_margin, and no rival's reaches below
//     1 - tie_margin. Those tied with the fastest are ordered by: deterministic, less workspace,
//     name, config, layouts.
//   - only: nothing else could be run.
//   - unsure: none of these, or a rival's time is still a prediction.
//   - predicted: nothing was measured.
Decision decide(std::span<const Candidate>, bool count_packing);
// Among the measured candidates only: whether they need more processes.
Decision decide_among_measured(std::span<const Candidate>, bool count_packing);

}  // namespace convlab
