// The table of every candidate, which `bench` prints.
#include <fmt/format.h>

#include <algorithm>

#include "bench/options/options.h"
#include "bench/reports/tune_cells.h"
#include "bench/reports/tune_report.h"
#include "conv/text/counted.h"

namespace convlab {
namespace {

// "conv1", or "conv1 n=2" if the table has several batches; a literal problem names its own.
std::string show_row(const TuneTable& table, const LayerProblem& layer) {
  return layer.name.empty() || !has_batches(table)
             ? show_layer(layer)
             : fmt::format("{} n={}", layer.name, layer.problem.batch());
}

// A terminal shows layouts only if rows would be equal without them.
std::string show_config(const LayerResult& layer, const Candidate& c) {
  const bool twin =
      std::any_of(layer.candidates.begin(), layer.candidates.end(), [&](const Candidate& other) {
        return other.algo == c.algo && other.config == c.config &&
               show_layouts(other) != show_layouts(c);
      });
  if (!twin) return c.config.text();
  return c.config.values().empty() ? show_layouts(c) : c.config.text() + " " + show_layouts(c);
}

// Every candidate and its outcome, for a terminal.
Report narrow_candidates(const TuneTable& table) {
  Report report;
  report.width = terminal_width;
  const bool layers = differ(table, [](const LayerResult& l) { return show_layer(l.layer); });
  const bool batches = has_batches(table);
  const bool passes = differ(table, [](const LayerResult& l) { return l.layer.pass(); });
  if (layers) report.columns.emplace_back("layer");
  if (batches) report.columns.emplace_back("batch");
  if (passes) report.columns.emplace_back("pass");
  report.columns.insert(report.columns.end(),
                        {"algo", "status", "ms", "rel_error", "config, reason"});
  for (const LayerResult& layer : table.layers)
    for (const Candidate& c : layer.candidates) {
      std::vector<Cell> row;
      if (layers) row.emplace_back(show_layer(layer.layer));
      if (batches) row.emplace_back(layer.layer.problem.batch());
      if (passes) row.emplace_back(to_string(layer.layer.pass()));
      row.insert(row.end(), {c.algo, to_string(c.status)});
      row.push_back(c.ms > 0 ? time_cell(c) : Cell());
      row.push_back(c.status == Status::refused ? Cell() : measured_error(c));
      std::string text = show_config(layer, c);
      const std::string reason = shown_reason(layer, c);
      if (!text.empty() && !reason.empty()) text += ": ";
      row.emplace_back(text + reason);
      report.rows.push_back(std::move(row));
    }
  return report;
}

// Adds the problem and, for files, whose numbers carry no "~", the column `predicted`.
Report wide_candidates(const TuneTable& table, bool for_file) {
  const bool batches = !for_file && has_batches(table);
  Report report;
  report.columns = {"layer"};
  if (for_file) report.columns.emplace_back("problem");
  if (batches) report.columns.emplace_back("batch");
  report.columns.emplace_back("pass");
  if (for_file) report.columns.emplace_back("epilogue");
  report.columns.insert(report.columns.end(), {"algo", "config", "layouts", "status"});
  if (for_file) report.columns.emplace_back("predicted");
  report.columns.insert(report.columns.end(), {"ms", "mad_%", "pack_ms", "convert_ms", "eff_gflops",
                                               "exec_gflops", "rel_error", "workspace"});
  const bool log = has_log_times(table);
  if (log) report.columns.insert(report.columns.end(), {"log_ms", "convlab_ms"});
  report.columns.emplace_back("reason");
  for (const LayerResult& layer : table.layers)
    for (const Candidate& c : layer.candidates) {
      const bool timed = c.ms > 0, ran = c.status != Status::refused;
      std::vector<Cell> row{show_layer(layer.layer)};
      if (for_file) row.emplace_back(layer.layer.text());
      if (batches) row.emplace_back(layer.layer.problem.batch());
      row.emplace_back(to_string(layer.layer.pass()));
      if (for_file) row.emplace_back(extras_of(layer.layer.problem));
      row.insert(row.end(), {c.algo, c.config.text(), show_layouts(c), to_string(c.status)});
      if (for_file) row.emplace_back(std::int64_t(c.predicted));
      row.insert(row.end(), {timed ? time_cell(c) : Cell(), timed ? spread_cell(c) : Cell(),
                             ran ? measured_ms(c, c.pack_ms) : Cell(),
                             ran ? measured_ms(c, c.convert_ms) : Cell(),
                             timed ? gflops_cell(c, c.eff_gflops) : Cell(),
                             timed ? gflops_cell(c, c.exec_gflops) : Cell(),
                             ran ? measured_error(c) : Cell(), ran ? measured_bytes(c) : Cell()});
      if (log) row.insert(row.end(), {log_cell(layer), runs_cell(layer, c)});
      row.emplace_back(shown_reason(layer, c));
      report.rows.push_back(std::move(row));
    }
  return report;
}

// "WIN: direct nhwc; next best fft, 1.31x [1.27 1.35]"
std::string verdict_line(const TuneTable& table, const LayerResult& layer) {
  std::string text = fmt::format("{} {}: {}", show_row(table, layer.layer),
                                 to_string(layer.layer.pass()), to_string(layer.verdict));
  if (!layer.chosen) return fmt::format("{}: {}", text, layer.reason);
  text += fmt::format(": {}", show_choice(chosen_of(layer)));
  if (!runner_up(layer)) return text;
  const std::string ratio = next_best_ratio(layer, "x");
  return fmt::format("{}; next best {}{}{}", text, next_best_name(layer, true),
                     ratio.empty() ? "" : ", ", ratio);
}

// "; log 3.1 ms, convlab 2.0 ms"
std::string log_part(const LayerResult& layer) {
  if (layer.log_ms <= 0 || !layer.chosen) return "";
  return fmt::format("; {} in the log {} ms, here {} ms", counted(layer.layer.count, "run"),
                     log_cell(layer).shown(), runs_cell(layer, chosen_of(layer)).shown());
}

}  // namespace

std::string render_candidates(const TuneTable& table, Format format, bool wide) {
  if (format == Format::json) return render(table, format);
  const TuneTable merged = format == Format::csv ? table : with_equal_rows_merged(table);
  Report report = format == Format::table && !wide ? narrow_candidates(merged)
                                                   : wide_candidates(merged, format == Format::csv);
  report.notes = transposed_notes(merged);
  for (const LayerResult& layer : merged.layers)
    report.notes.push_back(verdict_line(merged, layer) + log_part(layer));
  if (const std::string note = log_note(merged); !note.empty()) report.notes.push_back(note);
  if (const std::string note = unsure_note(merged, false); !note.empty())
    report.notes.push_back(note);
  report.provenance = table.provenance;
  return render(report, format);
}

}  // namespace convlab
