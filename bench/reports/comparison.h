// Compares two sides of result files row by row: which rows differ by more than chance and by more
// than a threshold.
//
// A process's times cluster, because each process has its own addresses and pages. Samples within
// one process do not show the spread between processes, so the samples here are runs (files), and
// within a run its worker processes. A and B never share a process, so they are not paired: the
// interval of the ratio is Welch's t interval of the log times. A bootstrap over three to ten
// values would be too narrow; Student's t accounts for the small number.
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
  std::string control;  // "onednn": only its candidates estimate drift; empty: all rows
};

// The probability that a whole comparison of equal code calls any row different, at a threshold of
// 0. Bonferroni: each of n rows gets an interval that fails with probability comparison_error / n.
inline constexpr double comparison_error = 0.01;
// A side with fewer values does not show how processes differ...
inline constexpr std::size_t least_values = 3;
// ...and gets this standard deviation between processes, the upper end of observed values.
inline constexpr double assumed_spread = 0.05;
// With fewer rows, drift shared by all cannot be told from a change in a few.
inline constexpr std::size_t least_drift_rows = 5;

// {low, middle, high} of b's time over a's. The interval fails with probability `error`, half of it
// on either side. A side has one RowTimes per run and may not be empty. Sides of fewer than
// least_values runs do not show how runs differ, so `run_variance`, of the logarithm of a run's
// time, is added.
std::array<double, 3> unpaired_ratio(std::span<const RowTimes> a, std::span<const RowTimes> b,
                                     double error, double run_variance = 0);
// True if the side's runs, or the processes in them, are enough to show how they differ.
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
  bool flipped = false;           // the sides chose different algorithms
  Change change = Change::same;
  bool open = false;  // `same`, but the interval reaches beyond the threshold
};

// A row that is missing, or has no working algorithm, in one of a side's several runs, while other
// runs have a time.
struct Gap {
  const ResultRow* row = nullptr;  // of another run
  char side = 'A';
  std::size_t run = 0;  // from 0
  bool missing = false;
};

struct Drift {
  double ratio = 1;      // B's times have been divided by this, relative to A's
  std::size_t rows = 0;  // estimated from this many rows, or candidates of the control
  bool removed = false;  // false: there were fewer than least_drift_rows
};

struct Comparison {
  // If any file holds several settings, or machines, rows match only where these are equal.
  bool by_setting = false, by_machine = false;
  std::vector<ComparedRow> rows;                 // in A's order
  std::vector<const ResultRow*> only_a, only_b;  // missing on the other side
  std::vector<Gap> gaps;                         // in rows that both sides have
  Drift drift;
  // Standard deviation between runs of a row, beyond processes and drift, estimated from all rows.
  // 0 if runs show it row by row; nullopt if there are too few rows.
  std::optional<double> run_spread;
  double error = 0;  // of one row's interval
  // "layer1.0.conv1 n=1 fwd (2 threads, hot)": with the setting and machine by which rows match.
  std::string name_of(const ResultRow&) const;
  bool nothing_measured() const;  // every row has a side with only a prediction
  // nothing_measured(), or a row is slower, no longer works, or is missing in B or in one of B's
  // runs.
  bool fails() const;
};

// Refers to the files, which must outlive the result. Throws InputError if they are of different
// kinds or about different subjects, share no row, or lack the control's candidates.
Comparison compare(const std::vector<ResultFile>& a, const std::vector<ResultFile>& b,
                   const CompareOptions&);

}  // namespace convlab
