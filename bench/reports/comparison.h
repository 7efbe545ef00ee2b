// Two sides of result files, row by row: which rows differ by more than chance and by more than a
// threshold.
//
// A process's times lie together and apart from another's: it has its own addresses and pages.
// Samples within one process do not show that, so the samples here are runs (files), and within a
// run its worker processes. A and B never share a process, so they are not paired: the interval of
// the ratio is Welch's t interval of the log times. A bootstrap over the three to ten values that
// there are would be too narrow; Student's t pays for how few they are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/reports/result_file.h"

namespace convlab {

struct CompareOptions {
  double threshold = 0.02;
  std::string control;  // "onednn": its candidates alone tell the machine's drift; empty: all rows
};

// How often a whole comparison of equal code may call any row different, at a threshold of 0.
// Bonferroni: each of n rows gets an interval that fails with an n-th of it.
inline constexpr double comparison_error = 0.01;
// A side with fewer values does not show how processes differ...
inline constexpr std::size_t least_values = 3;
// ...and gets this standard deviation between processes: the upper end of what is seen.
inline constexpr double assumed_spread = 0.05;
// Drift that all rows share cannot be told from a change of a few.
inline constexpr std::size_t least_drift_rows = 5;

// {low, middle, high} of b's time over a's. The interval fails with probability `error`, half of
// it on either side. A side is one RowTimes a run; neither may be empty.
// Sides of fewer than least_values runs do not show how runs differ: `run_variance` is added, of
// the logarithm of a run's time.
std::array<double, 3> unpaired_ratio(std::span<const RowTimes> a, std::span<const RowTimes> b,
                                     double error, double run_variance = 0);
// The side's runs, or the processes in them, are enough to show how they differ.
bool shows_spread(std::span<const RowTimes>);

enum class Change : std::uint8_t { same, faster, slower, not_measured };

// One row, on one side.
struct ComparedSide {
  const ResultRow* row = nullptr;  // of the first run with the most frequent choice
  std::optional<double> ms;        // geometric mean over the runs; nullopt: nothing works
  bool measured = false;           // in any run; else ms is a prediction
  bool unsure = false;             // in any run
};

struct ComparedRow {
  ComparedSide a, b;
  std::array<double, 3> ratio{};  // b over a without drift; 0 when a side has no measured time
  bool assumed = false;           // a side has too few values: its spread is assumed
  bool flipped = false;           // another algorithm
  Change change = Change::same;
  bool open = false;  // `same`, but the interval reaches beyond the threshold
};

// A row that one of a side's several runs lacks, or in which nothing works there, while others have
// a time.
struct Gap {
  const ResultRow* row = nullptr;  // of another run
  char side = 'A';
  std::size_t run = 0;  // from 0
  bool missing = false;
};

struct Drift {
  double ratio = 1;      // what B's times have been divided by, against A's
  std::size_t rows = 0;  // or candidates of the control that it was estimated from
  bool removed = false;  // false: there were fewer than least_drift_rows
};

struct Comparison {
  std::vector<ComparedRow> rows;                 // in A's order
  std::vector<const ResultRow*> only_a, only_b;  // missing on the other side
  std::vector<Gap> gaps;                         // of what both sides have
  Drift drift;
  // Between runs of a row, beyond processes and drift, estimated from all rows; 0 where runs show
  // it row by row; nullopt where too few rows tell.
  std::optional<double> run_spread;
  double error = 0;               // of one row's interval
  bool nothing_measured() const;  // every row has a side with only a prediction
  // That, or a row is slower, works no longer, or is missing in B or in one of B's runs.
  bool fails() const;
};

// Refers to the files, which must stay. Throws InputError where they are not of a kind, are about
// something else, have no row in common, or have no candidate of the control.
Comparison compare(const std::vector<ResultFile>& a, const std::vector<ResultFile>& b,
                   const CompareOptions&);

}  // namespace convlab
