#include "bench/reports/tune_cells.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/options/choice.h"

namespace convlab {

const Candidate* runner_up(const LayerResult& layer) {
  for (std::size_t i = 0; i < layer.candidates.size(); ++i)
    if (i != layer.chosen && layer.candidates[i].status == Status::ok) return &layer.candidates[i];
  return nullptr;
}

bool does_more(const LayerResult& layer, const Candidate& c) {
  return layer.layer.problem.recurrent() && c.exec_gflops > 1.5 * c.eff_gflops;
}

std::string shown_reason(const LayerResult& layer, const Candidate& c) {
  if (c.status != Status::dropped || !does_more(layer, c)) return c.reason;
  return c.reason + "; bwd_w's products are in its time";
}

std::array<double, 3> shown_ratio(const LayerResult& layer) {
  std::array<double, 3> ratio = layer.ratio;
  const Candidate* const next = runner_up(layer);
  if (next && layer.chosen && (next->predicted || layer.candidates[*layer.chosen].predicted))
    ratio[0] = ratio[2] = 0;
  return ratio;
}

Cell spread_cell(const Candidate& c) {
  if (c.predicted || c.ms <= 0) return {};
  const double percent = 100 * c.mad_ms / c.ms;
  return {percent, fmt::format("{:.1f}", percent)};
}

Cell measured_ms(const Candidate& c, double ms) { return c.predicted ? Cell() : ms_cell(ms); }

Cell gflops_cell(const Candidate& c, double gflops) {
  return {gflops, fmt::format("{}{:.1f}", c.predicted ? "~" : "", gflops)};
}

std::string next_best_name(const LayerResult& layer, bool in_full) {
  const Candidate &next = *runner_up(layer), &chosen = chosen_of(layer);
  std::string text = next.algo;
  if (does_more(layer, next)) text += "+bwd_w";
  if (in_full && next.algo == chosen.algo) {
    if (next.config != chosen.config) text += " " + next.config.text();
    if (show_layouts(next) != show_layouts(chosen)) text += " " + show_layouts(next);
  }
  return text;
}

std::string next_best_ratio(const LayerResult& layer, const char* unit) {
  const std::array<double, 3> ratio = shown_ratio(layer);
  if (ratio[1] <= 0) return "";
  const bool predicted = runner_up(layer)->predicted || chosen_of(layer).predicted;
  std::string text = fmt::format("{}{:.2f}{}", predicted ? "~" : "", ratio[1], unit);
  if (ratio[0] > 0) text += fmt::format(" [{:.2f} {:.2f}]", ratio[0], ratio[2]);
  return text;
}

TuneTable with_equal_rows_merged(const TuneTable& table) {
  TuneTable merged = table;
  merged.layers.clear();
  for (const LayerResult& next : table.layers) {
    const auto same =
        std::find_if(merged.layers.begin(), merged.layers.end(), [&](const LayerResult& seen) {
          return seen.first_layer == next.first_layer &&
                 seen.layer.transposed == next.layer.transposed &&
                 seen.layer.problem == next.layer.problem;
        });
    if (same == merged.layers.end())
      merged.layers.push_back(next);
    else {
      same->layer.count += next.layer.count;
      const bool timed = same->log_ms > 0 && next.log_ms > 0;
      same->log_ms = timed ? same->log_ms + next.log_ms : 0;
    }
  }
  return merged;
}

bool has_batches(const TuneTable& table) {
  return differ(table, [](const LayerResult& l) { return l.layer.problem.batch(); });
}

std::string show_next_best(const LayerResult& layer, bool in_full) {
  if (!layer.chosen) return layer.reason;
  if (!runner_up(layer)) return "";
  const std::string ratio = next_best_ratio(layer, "");
  return next_best_name(layer, in_full) + (ratio.empty() ? "" : " ") + ratio;
}

Cell time_cell(const Candidate& c) {
  return c.predicted ? Cell(c.ms, "~" + show_ms(c.ms)) : ms_cell(c.ms);
}

Cell measured_error(const Candidate& c) {
  if (c.predicted) return Cell::without_value("not measured");
  return {c.rel_error, fmt::format("{:.1e}{}", c.rel_error, c.sampled_error ? "*" : "")};
}

Cell measured_bytes(const Candidate& c) {
  return c.predicted ? Cell() : bytes_cell(c.workspace_bytes);
}

std::string show_layer(const LayerProblem& layer) {
  const ConvProblem* const conv = layer.problem.conv();
  const std::string epilogue =
      conv && !conv->epilogue.empty() ? " +" + extras_of(layer.problem) : "";
  return (layer.name.empty() ? layer.text() : layer.name) + epilogue;
}

Cell log_cell(const LayerResult& layer) {
  return layer.log_ms > 0 ? ms_cell(layer.log_ms) : Cell();
}

Cell runs_cell(const LayerResult& layer, const Candidate& c) {
  const double ms = double(layer.layer.count) * c.ms;
  return layer.log_ms > 0 && c.ms > 0 ? Cell(ms, (c.predicted ? "~" : "") + show_ms(ms)) : Cell();
}

bool has_log_times(const TuneTable& table) {
  return std::any_of(table.layers.begin(), table.layers.end(),
                     [](const LayerResult& layer) { return layer.log_ms > 0; });
}

LogTotals log_totals(const TuneTable& table) {
  LogTotals sum;
  for (const LayerResult& layer : table.layers) {
    ++sum.of;
    if (layer.log_ms <= 0 || !layer.chosen) continue;
    const Candidate& c = chosen_of(layer);
    ++sum.rows;
    sum.predicted += c.predicted ? 1 : 0;
    sum.log_ms += layer.log_ms;
    sum.convlab_ms += double(layer.layer.count) * c.ms;
  }
  return sum;
}

std::string log_note(const TuneTable& table) {
  const LogTotals sum = log_totals(table);
  if (sum.rows == 0 || sum.convlab_ms <= 0) return "";
  const char* const mark = sum.predicted > 0 ? "~" : "";
  return fmt::format(
      "log {} ms, convlab {}{} ms, {}{:.2f}×{}", show_ms(sum.log_ms), mark, show_ms(sum.convlab_ms),
      mark, sum.log_ms / sum.convlab_ms,
      sum.rows < sum.of ? fmt::format(", over {} of {} rows", sum.rows, sum.of) : "");
}

std::string transposed_note(const LayerProblem& layer) {
  return fmt::format(
      "{} is the gradient of {}: its fwd is that one's bwd_d, its bwd_d that one's fwd; layouts "
      "and "
      "reasons are that one's",
      layer.text(), to_text(layer.problem));
}

std::vector<std::string> transposed_notes(const TuneTable& table) {
  std::vector<std::string> notes;
  for (const LayerResult& layer : table.layers) {
    if (!layer.layer.transposed) continue;
    std::string note = transposed_note(layer.layer);
    if (std::find(notes.begin(), notes.end(), note) == notes.end())
      notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace convlab
