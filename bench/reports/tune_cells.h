// Parts of a tuning run's tables: a row's choice, its runner-up, its numbers.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "autotune/tuner.h"
#include "bench/reports/report.h"

namespace convlab {

// Its name, or its text when it has none; "mb1... +bias+relu" with an epilogue.
std::string show_layer(const LayerProblem&);

// What a row's runs took in the log that it is from, and what they take by this candidate; empty
// where the log has no time.
Cell log_cell(const LayerResult&);
Cell runs_cell(const LayerResult&, const Candidate&);
bool has_log_times(const TuneTable&);
// Sums over those `rows` of `of` that have a time in the log and a choice.
struct LogTotals {
  double log_ms = 0, convlab_ms = 0;
  std::int64_t rows = 0, of = 0, predicted = 0;
};
LogTotals log_totals(const TuneTable&);
// "log 41.2 ms, convlab 23.4 ms, 1.76×"; empty if no row is from a log with times.
std::string log_note(const TuneTable&);

// For each transposed convolution, the convolution and its passes: "deconv:mb1... is the gradient
// of mb1...: its fwd is that one's bwd_d, its bwd_d that one's fwd".
std::string transposed_note(const LayerProblem&);
std::vector<std::string> transposed_notes(const TuneTable&);

// Only for a row that has a choice.
inline const Candidate& chosen_of(const LayerResult& layer) {
  return layer.candidates[*layer.chosen];
}
// The first `ok` candidate that is not the chosen one: candidates stand best first.
const Candidate* runner_up(const LayerResult&);
// A recurrent layer's candidate that does another pass's products too (oneDNN's backward_data does
// backward_filter's): its time for this pass alone is not comparable.
bool does_more(const LayerResult&, const Candidate&);
// The candidate's reason; where it does more and lost, that too.
std::string shown_reason(const LayerResult&, const Candidate&);
// No interval if either side was never run.
std::array<double, 3> shown_ratio(const LayerResult&);
// The runner-up, which must exist; "onednn.rnn+bwd_w" of one that does more. If it is of the
// chosen's algorithm, `in_full` adds the difference.
std::string next_best_name(const LayerResult&, bool in_full);
// "1.31 [1.27 1.35]", with the unit after the first number; empty if the ratio is not known.
std::string next_best_ratio(const LayerResult&, const char* unit);
// The runner-up and its ms over the chosen's. If it is of the same algorithm, `in_full` adds the
// difference. If nothing works, the reason.
std::string show_next_best(const LayerResult&, bool in_full = true);

// A measured time, or "~1.234" for a predicted one.
Cell time_cell(const Candidate&);
// A number that only a measurement gives; "not measured" for a prediction.
Cell measured_error(const Candidate&);
Cell measured_bytes(const Candidate&);
Cell spread_cell(const Candidate&);
Cell measured_ms(const Candidate&, double ms);  // empty for a prediction
Cell gflops_cell(const Candidate&, double gflops);

// Merges equal problems into one row and adds their counts.
TuneTable with_equal_rows_merged(const TuneTable&);
template <class ValueOf>
bool differ(const TuneTable& table, const ValueOf& value_of) {
  return std::any_of(table.layers.begin(), table.layers.end(), [&](const LayerResult& layer) {
    return value_of(layer) != value_of(table.layers.front());
  });
}

bool has_batches(const TuneTable&);

}  // namespace convlab
