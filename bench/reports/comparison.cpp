#include "bench/reports/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>

#include "autotune/measure/measure.h"
#include "bench/options/choice.h"
#include "conv/error.h"

namespace convlab {
namespace {

// The clock and the sampling alone make a process's median uncertain by about this much, even if a
// few values agree by chance.
constexpr double least_spread = 0.002;

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

std::vector<double> logs(std::span<const double> values) {
  std::vector<double> result;
  for (const double value : values) result.push_back(std::log(value));
  return result;
}

std::vector<double> process_logs(const RowTimes& run) {
  return logs(run.process_ms.empty() ? std::vector{run.ms} : run.process_ms);
}

double log_ms(const RowTimes& run) { return mean(process_logs(run)); }

// Uses runs if there are enough of them, else the processes of all runs.
std::vector<double> values_of(std::span<const RowTimes> side) {
  std::vector<double> runs, processes;
  for (const RowTimes& run : side) {
    runs.push_back(log_ms(run));
    for (const double value : process_logs(run)) processes.push_back(value);
  }
  return runs.size() >= least_values ? runs : processes;
}

struct Estimate {
  double middle = 0, variance = 0, freedom = 0;  // of the mean
};

Estimate estimate_by_values(std::span<const RowTimes> side) {
  const std::vector<double> values = values_of(side);
  const auto n = double(values.size());
  const double middle = mean(values);
  if (values.size() < least_values) {
    // The median of a process's samples is uncertain too: its variance is pi/2 times that of their
    // mean.
    double within = 0;
    for (const RowTimes& run : side)
      if (run.process_ms.empty() && !run.samples_ms.empty()) {
        const double deviation = 1.4826 * median_abs_deviation(logs(run.samples_ms));
        within += std::numbers::pi / 2 * deviation * deviation / double(run.samples_ms.size());
      }
    return {middle, assumed_spread * assumed_spread / n + within / (n * n), most_student_freedom};
  }
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return {middle, std::max(squares / (n - 1), least_spread * least_spread) / n, n - 1};
}

// Processes of one run share the machine's state at the time. `run_variance` is the variance
// between runs beyond their processes; fewer than least_values runs do not show it.
Estimate estimate(std::span<const RowTimes> side, double run_variance) {
  Estimate e = estimate_by_values(side);
  if (side.size() >= least_values) return e;
  const double known = run_variance / double(side.size());
  // Satterthwaite's formula. A known variance has infinitely many degrees of freedom.
  e.freedom = std::min<double>(most_student_freedom,
                               e.freedom * std::pow((e.variance + known) / e.variance, 2));
  e.variance += known;
  return e;
}

// ---- Rows that belong together ----

// A row in each run of a side; null where a run lacks it.
using Runs = std::vector<const ResultRow*>;

struct Matched {
  std::string key;
  Runs a, b;
};

bool is_missing(const Runs& runs) {
  return std::all_of(runs.begin(), runs.end(), [](const ResultRow* row) { return !row; });
}

// Whether the rows of any file differ in this.
bool is_mixed(const std::vector<ResultFile>& files, std::string ResultRow::*field) {
  return std::any_of(files.begin(), files.end(), [&](const ResultFile& file) {
    return std::any_of(file.rows.begin(), file.rows.end(), [&](const ResultRow& row) {
      return row.*field != file.rows.front().*field;
    });
  });
}

// A row's key or name, with the setting and machine by which rows match.
std::string told_apart(const std::string& what, const ResultRow& row, const Comparison& all) {
  std::vector<std::string> by;
  if (all.by_setting) by.push_back(row.setting);
  if (all.by_machine) by.push_back(row.machine);
  return by.empty() ? what : fmt::format("{} ({})", what, fmt::join(by, ", "));
}

// A layer shared by two nets appears in a file twice; the first counts.
std::vector<Matched> match(const std::vector<ResultFile>& a, const std::vector<ResultFile>& b,
                           const Comparison& all) {
  std::vector<Matched> matched;
  std::map<std::string, std::size_t> places;
  const auto add = [&](const std::vector<ResultFile>& side, Runs Matched::*runs) {
    for (std::size_t i = 0; i < side.size(); ++i)
      for (const ResultRow& row : side[i].rows) {
        const std::string key = told_apart(row.key, row, all);
        const auto [place, fresh] = places.try_emplace(key, matched.size());
        if (fresh) matched.push_back({key, Runs(a.size()), Runs(b.size())});
        const ResultRow*& slot = (matched[place->second].*runs)[i];
        if (!slot) slot = &row;
      }
  };
  add(a, &Matched::a);
  add(b, &Matched::b);
  return matched;
}

bool is_measured(const ResultRow* row) { return row && row->times && !row->predicted; }

std::vector<RowTimes> measured_times(const Runs& runs) {
  std::vector<RowTimes> times;
  for (const ResultRow* row : runs)
    if (is_measured(row)) times.push_back(*row->times);
  return times;
}

ComparedSide summary(const Runs& runs) {
  ComparedSide side;
  std::map<std::string, int> votes;
  std::vector<double> ms;
  side.measured = std::any_of(runs.begin(), runs.end(), is_measured);
  for (const ResultRow* row : runs) {
    // A prediction counts only where no run measured the row.
    if (!row || (side.measured && !is_measured(row))) continue;
    ++votes[row->choice];
    if (!side.row || votes[row->choice] > votes[side.row->choice]) side.row = row;
    side.unsure |= row->unsure;
    if (row->times) ms.push_back(row->times->ms);
  }
  if (!ms.empty()) side.ms = std::exp(mean(logs(ms)));
  return side;
}

void append_gaps(std::vector<Gap>& gaps, char side, const Runs& runs) {
  const auto works = [](const ResultRow* row) { return row && row->times; };
  const auto whole = std::find_if(runs.begin(), runs.end(), works);
  if (whole == runs.end()) return;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (!works(runs[i])) gaps.push_back({*whole, side, i, runs[i] == nullptr});
}

// ---- Drift ----

// One row's times in every run, A's first.
using Reference = std::vector<const RowTimes*>;

std::vector<Reference> references(const std::vector<Matched>& matched, const std::string& control) {
  std::vector<Reference> found;
  for (const Matched& m : matched) {
    Runs runs = m.a;
    runs.insert(runs.end(), m.b.begin(), m.b.end());
    if (!std::all_of(runs.begin(), runs.end(), is_measured)) continue;
    if (control.empty()) {
      Reference times;
      for (const ResultRow* row : runs)
        if (row->choice == runs.front()->choice) times.push_back(&*row->times);
      if (times.size() == runs.size()) found.push_back(std::move(times));
      continue;
    }
    std::map<std::string, Reference> rivals;
    for (const ResultRow* row : runs)
      for (const ResultRival& rival : row->rivals)
        if (stands_for(control, rival.algo)) rivals[rival.choice].push_back(&rival.times);
    for (auto& [choice, times] : rivals)
      if (times.size() == runs.size()) found.push_back(std::move(times));
  }
  return found;
}

// The logarithm of each run's slowdown against the average run: the median over the references.
// Rows that really changed are a minority and do not move the median.
std::vector<double> run_drifts(const std::vector<Reference>& references, std::size_t runs) {
  std::vector<std::vector<double>> offsets(runs);
  for (const Reference& times : references) {
    std::vector<double> values;
    for (const RowTimes* run : times) values.push_back(log_ms(*run));
    for (std::size_t run = 0; run < runs; ++run) offsets[run].push_back(values[run] - mean(values));
  }
  std::vector<double> drifts;
  for (const std::vector<double>& of_run : offsets) drifts.push_back(median(of_run));
  return drifts;
}

void divide(RowTimes& times, double by) {
  times.ms /= by;
  for (double& ms : times.process_ms) ms /= by;
}

// The variance of a row between runs, beyond their processes and the drift of all rows. It is
// estimated from the scatter of B over A in the references, most of which did not change. nullopt
// if there are too few references.
std::optional<double> run_variance_of(const std::vector<Reference>& references,
                                      const std::vector<double>& drifts, std::size_t runs_of_a) {
  const std::size_t runs_of_b = drifts.size() - runs_of_a;
  std::vector<double> offsets, variances;
  for (const Reference& times : references) {
    if (!std::all_of(times.begin(), times.end(),
                     [](const RowTimes* run) { return run->process_ms.size() >= least_values; }))
      continue;
    double offset = 0, variance = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const bool is_a = i < runs_of_a;
      const double share = 1 / double(is_a ? runs_of_a : runs_of_b);
      offset += (is_a ? -share : share) * (log_ms(*times[i]) - drifts[i]);
      variance += share * share * estimate_by_values({times[i], 1}).variance;
    }
    offsets.push_back(offset);
    variances.push_back(variance);
  }
  if (offsets.size() < least_drift_rows) return {};
  const double deviation = 1.4826 * median_abs_deviation(offsets);
  return std::max(0.0, deviation * deviation - median(variances)) /
         (1 / double(runs_of_a) + 1 / double(runs_of_b));
}

// ---- Verdicts ----

Change change_of(const ComparedRow& row, const CompareOptions& o) {
  if (!row.a.ms && !row.b.ms) return Change::same;
  if ((row.a.ms && !row.a.measured) || (row.b.ms && !row.b.measured)) return Change::not_measured;
  if (!row.b.ms) return Change::slower;
  if (!row.a.ms) return Change::faster;
  if (row.ratio[0] > 1 + o.threshold) return Change::slower;
  if (row.ratio[2] < 1 / (1 + o.threshold)) return Change::faster;
  return Change::same;
}

void require_comparable(const std::vector<ResultFile>& a, const std::vector<ResultFile>& b) {
  const ResultFile& first = a.front();
  for (const std::vector<ResultFile>* side : {&a, &b})
    for (const ResultFile& file : *side) {
      if (file.family != first.family)
        throw InputError(fmt::format("{} holds {}, {} holds {}: expected files of one kind",
                                     first.path, first.family, file.path, file.family));
      if (file.subject != first.subject)
        throw InputError(
            fmt::format("{} is about {}, {} about {}: expected the same net, batch, mode and type",
                        first.path, first.subject, file.path, file.subject));
    }
}

}  // namespace

bool shows_spread(std::span<const RowTimes> side) { return values_of(side).size() >= least_values; }

std::array<double, 3> unpaired_ratio(std::span<const RowTimes> a, std::span<const RowTimes> b,
                                     double error, double run_variance) {
  const Estimate of_a = estimate(a, run_variance), of_b = estimate(b, run_variance);
  const double va = of_a.variance, vb = of_b.variance;
  const double freedom = (va + vb) * (va + vb) / (va * va / of_a.freedom + vb * vb / of_b.freedom);
  // Degrees of freedom are rounded down, which makes the interval slightly wide.
  const double half = student_quantile(error / 2, int(freedom)) * std::sqrt(va + vb);
  const double middle = of_b.middle - of_a.middle;
  return {std::exp(middle - half), std::exp(middle), std::exp(middle + half)};
}

std::string Comparison::name_of(const ResultRow& row) const {
  return told_apart(row.name, row, *this);
}

bool Comparison::nothing_measured() const {
  return std::all_of(rows.begin(), rows.end(),
                     [](const ComparedRow& row) { return row.change == Change::not_measured; });
}

bool Comparison::fails() const {
  return nothing_measured() || !only_a.empty() ||
         std::any_of(gaps.begin(), gaps.end(), [](const Gap& gap) { return gap.side == 'B'; }) ||
         std::any_of(rows.begin(), rows.end(),
                     [](const ComparedRow& row) { return row.change == Change::slower; });
}

Comparison compare(const std::vector<ResultFile>& a, const std::vector<ResultFile>& b,
                   const CompareOptions& o) {
  require_comparable(a, b);
  Comparison all;
  all.by_setting = is_mixed(a, &ResultRow::setting) || is_mixed(b, &ResultRow::setting);
  all.by_machine = is_mixed(a, &ResultRow::machine) || is_mixed(b, &ResultRow::machine);
  std::vector<Matched> matched;
  for (Matched& m : match(a, b, all)) {
    if (is_missing(m.b))
      all.only_a.push_back(summary(m.a).row);
    else if (is_missing(m.a))
      all.only_b.push_back(summary(m.b).row);
    else
      matched.push_back(std::move(m));
  }
  for (const Matched& m : matched) {
    append_gaps(all.gaps, 'A', m.a);
    append_gaps(all.gaps, 'B', m.b);
  }
  if (matched.empty())
    throw InputError(fmt::format(
        "{} and {} have no row in common: one begins with {}, the other with {}", a.front().path,
        b.front().path, told_apart(a.front().rows.front().key, a.front().rows.front(), all),
        told_apart(b.front().rows.front().key, b.front().rows.front(), all)));

  const std::vector<Reference> found = references(matched, o.control);
  if (found.empty() && !o.control.empty())
    throw InputError(
        fmt::format("--control {}: no candidate of that name was measured in every file: expected "
                    "the name of one that the tables show, or no --control",
                    o.control));
  std::vector<double> drifts(a.size() + b.size());
  all.drift.rows = found.size();
  all.drift.removed = found.size() >= least_drift_rows;
  if (all.drift.removed) {
    drifts = run_drifts(found, drifts.size());
    const std::span<const double> each = drifts;
    all.drift.ratio = std::exp(mean(each.subspan(a.size())) - mean(each.first(a.size())));
  }

  double run_variance = 0;
  if (std::min(a.size(), b.size()) >= least_values) {
    all.run_spread = 0;
  } else if (const std::optional<double> known = run_variance_of(found, drifts, a.size())) {
    run_variance = *known;
    all.run_spread = std::sqrt(run_variance);
  }
  std::size_t intervals = 0;
  for (const Matched& m : matched)
    intervals += !measured_times(m.a).empty() && !measured_times(m.b).empty();
  all.error = comparison_error / double(std::max<std::size_t>(intervals, 1));
  const auto without_drift = [&](const Runs& runs, std::size_t first) {
    std::vector<RowTimes> times;
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (is_measured(runs[i]))
        divide(times.emplace_back(*runs[i]->times), std::exp(drifts[first + i]));
    return times;
  };
  for (const Matched& m : matched) {
    ComparedRow& row = all.rows.emplace_back();
    row.a = summary(m.a);
    row.b = summary(m.b);
    row.flipped = row.a.row->algo != row.b.row->algo;
    const std::vector<RowTimes> times_a = without_drift(m.a, 0),
                                times_b = without_drift(m.b, a.size());
    if (!times_a.empty() && !times_b.empty()) {
      row.ratio = unpaired_ratio(times_a, times_b, all.error, run_variance);
      row.assumed = !shows_spread(times_a) || !shows_spread(times_b);
    }
    row.change = change_of(row, o);
    row.open = row.change == Change::same && row.ratio[1] > 0 &&
               (row.ratio[2] > 1 + o.threshold || row.ratio[0] < 1 / (1 + o.threshold));
  }
  return all;
}

}  // namespace convlab
