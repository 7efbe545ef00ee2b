#include "bench/reports/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "autotune/race/decide.h"
#include "bench/options/options.h"
#include "bench/reports/tune_cells.h"
#include "conv/text/counted.h"

namespace convlab {
namespace {

using Json = nlohmann::ordered_json;

// ---- Comparison with vendors' algorithms ----

const std::set<std::string>& vendor_algos() {
  static const std::set<std::string> ids = [] {
    Algos algos;
    append_all_algos(algos);
    std::set<std::string> found;
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda})
      for (const AlgoRef& algo : algos.for_device(kind))
        if (algo.info().origin == Origin::vendor) found.insert(algo.info().id);
    return found;
  }();
  return ids;
}

bool is_vendor(const Candidate& c) { return vendor_algos().contains(c.algo); }

// The best of vendors' algorithms, or of ours. The choice is the best of its kind; otherwise
// candidates are sorted best first.
const Candidate* best_measured(const LayerResult& layer, bool vendor) {
  const auto counts = [&](const Candidate& c) {
    return was_timed(c) && is_vendor(c) == vendor && !does_more(layer, c);
  };
  if (layer.chosen && counts(chosen_of(layer))) return &chosen_of(layer);
  const auto best = std::find_if(layer.candidates.begin(), layer.candidates.end(), counts);
  return best == layer.candidates.end() ? nullptr : &*best;
}

// Costs as in the tuner: packing the filter is part of a training step.
class Costs {
 public:
  explicit Costs(const TuneTable& table)
      : training_((table.shard && table.shard->training) ||
                  std::any_of(table.layers.begin(), table.layers.end(), [](const LayerResult& l) {
                    return l.layer.pass() != Pass::forward;
                  })) {}
  bool training() const { return training_; }
  double of(const LayerResult& layer, const Candidate& c) const {
    return cost_ms(c, training_ && layer.layer.pass() != Pass::backward_filter);
  }

 private:
  bool training_;
};

// The vendor whose algorithms were measured here: "onednn" of "onednn.direct"; empty if none was.
std::string peer_name(const TuneTable& table) {
  for (const LayerResult& layer : table.layers)
    if (const Candidate* peer = best_measured(layer, true))
      return peer->algo.substr(0, peer->algo.find('.'));
  return "";
}

// The best vendor's cost over the chosen's.
Cell over_peer(const LayerResult& layer, const Costs& costs) {
  const Candidate* const peer = best_measured(layer, true);
  if (!peer || !layer.chosen || chosen_of(layer).predicted) return {};
  const double ratio = peer == runner_up(layer)
                           ? layer.ratio[1]  // paired, as in the next best's column
                           : costs.of(layer, *peer) / costs.of(layer, chosen_of(layer));
  return {ratio, fmt::format("{:.2f}", ratio)};
}

// ---- Tables ----

Cell chosen_runs(const LayerResult& layer) {
  return layer.chosen ? runs_cell(layer, chosen_of(layer)) : Cell();
}

Report narrow_report(const TuneTable& table, bool with_config) {
  // A text says its batch.
  const bool batches =
      has_batches(table) && std::any_of(table.layers.begin(), table.layers.end(),
                                        [](const LayerResult& l) { return !l.layer.name.empty(); });
  const bool counts = std::any_of(table.layers.begin(), table.layers.end(),
                                  [](const LayerResult& l) { return l.layer.count != 1; });
  const std::string peer = peer_name(table);
  const Costs costs(table);
  Report report;
  report.width = terminal_width;
  report.columns = {"layer"};
  if (batches) report.columns.emplace_back("batch");
  report.columns.emplace_back("pass");
  if (counts) report.columns.emplace_back("#");  // repetitions; space is scarce
  report.columns.insert(report.columns.end(), {"algo", "ms"});
  const bool log = has_log_times(table);
  if (log) report.columns.insert(report.columns.end(), {"log_ms", "convlab_ms"});
  if (!peer.empty()) report.columns.push_back("× " + peer);
  report.columns.insert(report.columns.end(), {"verdict", "next best"});
  for (const LayerResult& layer : table.layers) {
    const Problem& p = layer.layer.problem;
    std::vector<Cell> row{show_layer(layer.layer)};
    if (batches) row.emplace_back(p.batch());
    row.emplace_back(to_string(layer.layer.pass()));
    if (counts) row.emplace_back(layer.layer.count);
    if (layer.chosen) {
      const Candidate& c = chosen_of(layer);
      const bool config = with_config && !c.config.values().empty();
      row.insert(row.end(), {config ? c.algo + " " + c.config.text() : c.algo, time_cell(c)});
    } else {
      row.insert(row.end(), {"-", Cell()});
    }
    if (log) row.insert(row.end(), {log_cell(layer), chosen_runs(layer)});
    if (!peer.empty()) row.push_back(over_peer(layer, costs));
    row.insert(row.end(), {to_string(layer.verdict), show_next_best(layer, false)});
    report.rows.push_back(std::move(row));
  }
  return report;
}

// The table that fits a terminal; configs are shown only if they fit.
Report narrow_report(const TuneTable& table) {
  Report report = narrow_report(table, true);
  return fits(report) ? report : narrow_report(table, false);
}

// The columns a person compares. csv and json add the problem's text and the rest.
Report wide_report(const TuneTable& table) {
  const std::string peer = peer_name(table);
  const Costs costs(table);
  Report report;
  report.columns = {"layer", "batch", "pass", "count", "algo", "config", "layouts", "ms"};
  if (!peer.empty()) report.columns.push_back("× " + peer);
  report.columns.insert(report.columns.end(),
                        {"mad_%", "pack_ms", "eff_gflops", "rel_error", "workspace"});
  const bool log = has_log_times(table);
  if (log) report.columns.insert(report.columns.end(), {"log_ms", "convlab_ms"});
  const std::size_t before_verdict = report.columns.size();
  report.columns.insert(report.columns.end(), {"verdict", "next best"});
  for (const LayerResult& layer : table.layers) {
    const Problem& p = layer.layer.problem;
    std::vector<Cell> row{show_layer(layer.layer), p.batch(), to_string(layer.layer.pass()),
                          layer.layer.count};
    if (layer.chosen) {
      const Candidate& c = chosen_of(layer);
      row.insert(row.end(), {c.algo, c.config.text(), show_layouts(c), time_cell(c)});
      if (!peer.empty()) row.push_back(over_peer(layer, costs));
      row.insert(row.end(), {spread_cell(c), measured_ms(c, c.pack_ms),
                             gflops_cell(c, c.eff_gflops), measured_error(c), measured_bytes(c)});
    } else {
      row.emplace_back("-");
      row.resize(before_verdict - (log ? 2 : 0));
    }
    if (log) row.insert(row.end(), {log_cell(layer), chosen_runs(layer)});
    row.insert(row.end(), {to_string(layer.verdict), show_next_best(layer)});
    report.rows.push_back(std::move(row));
  }
  return report;
}

Report full_report(const TuneTable& table) {
  Report report;
  report.columns = {"layer",      "problem",         "pass",
                    "epilogue",   "dtype",           "count",
                    "algo",       "config",          "x_layout",
                    "y_layout",   "threads",         "cache",
                    "ms",         "mad_ms",          "pack_ms",
                    "convert_ms", "eff_gflops",      "exec_gflops",
                    "rel_error",  "workspace_bytes", "packed_filter_bytes",
                    "verdict",    "ratio_lo",        "ratio",
                    "ratio_hi",   "next_best",       "reason"};
  const auto exact = [](double value) { return Cell(value, ""); };
  const bool log = has_log_times(table);
  for (const LayerResult& layer : table.layers) {
    const Problem& p = layer.layer.problem;
    std::vector<Cell> row{layer.layer.name, layer.layer.text(),   to_string(layer.layer.pass()),
                          extras_of(p),     to_string(p.dtype()), layer.layer.count};
    row.resize(report.columns.size());
    if (layer.chosen) {
      const Candidate& c = chosen_of(layer);
      const std::vector<Cell> cells{c.algo,
                                    c.config.text(),
                                    show_layout(c, c.x_layout),
                                    show_layout(c, c.y_layout),
                                    std::int64_t(c.threads),
                                    to_string(c.cache),
                                    exact(c.ms)};
      std::copy(cells.begin(), cells.end(), row.begin() + 6);
      row[16] = exact(c.eff_gflops);
      row[17] = exact(c.exec_gflops);
      if (!c.predicted) {
        row[13] = exact(c.mad_ms);
        row[14] = exact(c.pack_ms);
        row[15] = exact(c.convert_ms);
        row[18] = exact(c.rel_error);
        row[19] = c.workspace_bytes;
        row[20] = c.packed_filter_bytes;
      }
      if (const Candidate* next = runner_up(layer)) {
        const std::array<double, 3> ratio = shown_ratio(layer);
        for (std::size_t i = 0; i < 3; ++i)
          if (ratio[i] > 0) row[22 + i] = exact(ratio[i]);
        row[25] = next->algo;
      }
    }
    row[21] = to_string(layer.verdict);
    row[26] = layer.reason;
    if (log) row.insert(row.end(), {log_cell(layer), chosen_runs(layer)});
    report.rows.push_back(std::move(row));
  }
  if (log) report.columns.insert(report.columns.end(), {"log_ms", "convlab_ms"});
  return report;
}

// The rows in `totals`.
bool is_counted(const LayerResult& layer) {
  return !layer.first_layer || layer.layer.pass() != Pass::backward_data;
}

// The number of predicted choices in a total.
std::int64_t predicted_rows(const TuneTable& table, std::optional<Pass> pass = {}) {
  return std::count_if(table.layers.begin(), table.layers.end(), [&](const LayerResult& layer) {
    return (!pass || *pass == layer.layer.pass()) && is_counted(layer) && layer.chosen &&
           chosen_of(layer).predicted;
  });
}

std::string show_total(const std::string& name, const TuneTable& table, const TuneTotals& t,
                       std::optional<Pass> pass = {}) {
  const std::int64_t predicted = predicted_rows(table, pass);
  const char* const mark = predicted > 0 ? "~" : "";
  return fmt::format("total {}  {}{} ms, packing filters {}{} ms, converting layouts {} ms{}", name,
                     mark, show_ms(t.chosen_ms), mark, show_ms(t.pack_ms), show_ms(t.convert_ms),
                     predicted > 0 ? fmt::format("; {} predicted", predicted) : "");
}

// The parts to total. A net at several batches counts as several nets, each with its batch.
std::vector<std::pair<std::optional<std::int64_t>, TuneTable>> summed_parts(
    const TuneTable& table) {
  std::map<std::int64_t, TuneTable> by_batch;
  std::set<std::pair<std::string, Pass>> seen;
  bool repeated = false;
  const auto without_batch = [](LayerProblem p) {
    p.problem.set_batch(1);
    return std::pair(p.text(), p.pass());
  };
  for (const LayerResult& layer : table.layers)
    by_batch[layer.layer.problem.batch()].layers.push_back(layer);
  for (const auto& [n, part] : by_batch) {
    std::set<std::pair<std::string, Pass>> here;
    for (const LayerResult& layer : part.layers) here.insert(without_batch(layer.layer));
    for (const auto& problem : here) repeated |= !seen.insert(problem).second;
  }
  if (!repeated) return {{std::nullopt, table}};
  std::vector<std::pair<std::optional<std::int64_t>, TuneTable>> parts;
  for (auto& [n, part] : by_batch) parts.emplace_back(n, std::move(part));
  return parts;
}

// The totals of the best of all, of our own alone and of the vendors alone, over rows where all
// three are known.
struct Contest {
  double best_ms = 0, own_ms = 0, peer_ms = 0;
  std::int64_t rows = 0, of = 0;
};

Contest contest(const TuneTable& table) {
  const Costs costs(table);
  Contest sum;
  for (const LayerResult& layer : table.layers) {
    if (!is_counted(layer)) continue;
    ++sum.of;
    const Candidate* const own = best_measured(layer, false);
    const Candidate* const peer = best_measured(layer, true);
    if (!own || !peer || !layer.chosen || !was_timed(chosen_of(layer))) continue;
    ++sum.rows;
    const double count = double(layer.layer.count);
    sum.best_ms += count * costs.of(layer, chosen_of(layer));
    sum.own_ms += count * costs.of(layer, *own);
    sum.peer_ms += count * costs.of(layer, *peer);
  }
  return sum;
}

// Where a peer's backward_data does backward_filter's products too, the sum of both passes is what
// compares: a line for each such layer.
std::vector<std::string> backward_sums(const TuneTable& table) {
  std::vector<std::string> lines;
  const Costs costs(table);
  for (const LayerResult& data : table.layers)
    for (const LayerResult& filter : table.layers) {
      Problem same = filter.layer.problem;
      same.set_pass(Pass::backward_data);
      if (filter.layer.pass() != Pass::backward_filter || !(same == data.layer.problem)) continue;
      const auto peer = std::find_if(
          data.candidates.begin(), data.candidates.end(),
          [&](const Candidate& c) { return was_timed(c) && is_vendor(c) && does_more(data, c); });
      const Candidate* const first = best_measured(data, false);
      const Candidate* const second = best_measured(filter, false);
      if (peer == data.candidates.end() || !first || !second) continue;
      const double own_ms = costs.of(data, *first) + costs.of(filter, *second);
      const double peer_ms = costs.of(data, *peer);
      lines.push_back(fmt::format(
          "{} bwd_d and bwd_w: {} + {} {} ms, {}, whose bwd_d does both, {} ms: {:.2f} times that",
          show_layer(data.layer), first->algo, second->algo, show_ms(own_ms), peer->algo,
          show_ms(peer_ms), peer_ms / own_ms));
    }
  return lines;
}

bool measured_any(const TuneTable& table) {
  return std::any_of(table.layers.begin(), table.layers.end(), [](const LayerResult& layer) {
    return layer.chosen && !layer.candidates[*layer.chosen].predicted;
  });
}

std::vector<std::string> notes(const TuneTable& table, bool with_errors) {
  std::vector<std::string> notes;
  if (const std::string note = shard_note(table); !note.empty()) notes.push_back(note);
  bool sampled = false, first_backward = false;
  for (const LayerResult& layer : table.layers) {
    if (layer.chosen) sampled |= chosen_of(layer).sampled_error;
    first_backward |= layer.first_layer && layer.layer.pass() == Pass::backward_data;
  }
  for (std::string& note : transposed_notes(table)) notes.push_back(std::move(note));
  for (const auto& [batch, part] : summed_parts(table)) {
    const std::string label = batch ? fmt::format(" n={}", *batch) : "";
    std::size_t passes = 0;
    for (const Pass pass : all_passes)
      if (const TuneTotals t = totals(part, pass); t.chosen_ms > 0) {
        notes.push_back(show_total(fmt::format("{:<5}{}", to_string(pass), label), part, t, pass));
        ++passes;
      }
    if (passes != 1)
      notes.push_back(show_total(fmt::format("{:<5}{}", "all", label), part, totals(part)));
  }
  if (const Contest c = contest(table); c.rows > 0)
    notes.push_back(fmt::format("best of all {} ms, own alone {}, {} alone {}{}, over {} of {}",
                                show_ms(c.best_ms), show_ms(c.own_ms), peer_name(table),
                                show_ms(c.peer_ms), Costs(table).training() ? ", with packing" : "",
                                c.rows, counted(c.of, "row")));
  for (std::string& line : backward_sums(table)) notes.push_back(std::move(line));
  if (const std::string note = log_note(table); !note.empty()) notes.push_back(note);
  if (first_backward)
    notes.push_back("The first layer's bwd_d is listed but in no total: nothing reads its result.");
  if (const int without = totals(table).layers_without; without > 0)
    notes.push_back(fmt::format("{} without any working algorithm.", without));
  if (sampled && with_errors) notes.push_back("* rel_error over a sample of the outputs.");
  if (!table.complete)
    notes.push_back(fmt::format("Stopped early{}{}; the same command goes on from here.",
                                measured_any(table) ? "" : " before anything was measured",
                                table.remaining_gain > 0
                                    ? fmt::format(": untried candidates may save another {} ms",
                                                  show_ms(table.remaining_gain))
                                    : ""));
  if (const std::string note = unsure_note(table, true); !note.empty()) notes.push_back(note);
  return notes;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json candidate_json(const Candidate& c) {
  // A value that was never measured is null, not 0.
  const auto measured = [&](Json value) { return c.predicted ? Json(nullptr) : std::move(value); };
  return {{"algo", c.algo},
          {"config", c.config.text()},
          {"layouts", layouts_json(c)},
          {"threads", c.threads},
          {"cache", to_string(c.cache)},
          {"predicted", c.predicted},
          {"ms", number(c.ms)},
          {"mad_ms", measured(number(c.mad_ms))},
          {"pack_ms", measured(number(c.pack_ms))},
          {"convert_ms", measured(number(c.convert_ms))},
          {"eff_gflops", number(c.eff_gflops)},
          {"exec_gflops", number(c.exec_gflops)},
          {"rel_error", measured(number(c.rel_error))},
          {"workspace_bytes", measured(c.workspace_bytes)},
          {"packed_filter_bytes", measured(c.packed_filter_bytes)},
          {"process_ms", c.process_ms},
          {"process_pack_ms", c.process_pack_ms}};
}

Json totals_json(const TuneTable& table, std::optional<Pass> pass) {
  const TuneTotals t = totals(table, pass);
  return {{"ms", t.chosen_ms},
          {"pack_ms", t.pack_ms},
          {"convert_ms", t.convert_ms},
          {"layers_without", t.layers_without},
          {"predicted", predicted_rows(table, pass)}};
}

Json totals_json(const TuneTable& table) {
  Json json;
  for (const Pass pass : all_passes) json[std::string(to_string(pass))] = totals_json(table, pass);
  json["all"] = totals_json(table, std::nullopt);
  return json;
}

std::string render_json(const TuneTable& table) {
  Json json{{"convlab_tune", tune_format},
            {"provenance", Json::object()},
            {"layers", Json::array()},
            {"totals", totals_json(table)}};
  for (const auto& [name, value] : table.provenance.fields) json["provenance"][name] = value;
  if (const auto& s = table.shard)
    json["shard"] = {
        {"index", s->index}, {"count", s->count}, {"problems", s->problems}, {"of", s->of}};
  for (const LayerResult& layer : table.layers) json["layers"].push_back(layer_json(layer));
  for (const auto& [batch, part] : summed_parts(table))
    if (batch) json["totals"]["by_batch"][fmt::format("{}", *batch)] = totals_json(part);
  const Contest c = contest(table);
  json["totals"]["contest"] = {{"rows", c.rows},
                               {"of", c.of},
                               {"best_ms", c.best_ms},
                               {"own_ms", c.own_ms},
                               {"peer_ms", c.peer_ms}};
  if (has_log_times(table)) {
    const LogTotals log = log_totals(table);
    json["totals"]["log"] = {{"log_ms", log.log_ms},
                             {"convlab_ms", log.convlab_ms},
                             {"ratio", number(log.log_ms / log.convlab_ms)},
                             {"rows", log.rows},
                             {"of", log.of},
                             {"predicted", log.predicted}};
  }
  const Disturbances& d = table.disturbances;
  json["disturbances"] = {{"samples", d.samples},
                          {"disturbed", d.disturbed},
                          {"others", d.others},
                          {"stolen", d.stolen}};
  json["totals"]["complete"] = table.complete;
  json["totals"]["remaining_gain_ms"] = table.remaining_gain;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string render(const TuneTable& table, Format format, bool wide) {
  if (format == Format::json) return render_json(table);
  if (format == Format::hpp) return render_header(table);
  const TuneTable merged = with_equal_rows_merged(table);
  const bool narrow = format == Format::table && !wide;
  Report report = format == Format::csv ? full_report(table)
                  : narrow              ? narrow_report(merged)
                                        : wide_report(merged);
  report.notes = notes(merged, !narrow);
  report.provenance = table.provenance;
  return render(report, format);
}

std::string shard_note(const TuneTable& table) {
  if (!table.shard) return "";
  const TableShard& s = *table.shard;
  return fmt::format(
      "Shard {}/{}: {} of {} problems and passes, a part of the table; `convlab db merge` joins "
      "the "
      "stores.",
      s.index, s.count, s.problems, s.of);
}

std::string unsure_note(const TuneTable& table, bool resumes) {
  const TuneTable merged = with_equal_rows_merged(table);
  const auto unsure =
      std::count_if(merged.layers.begin(), merged.layers.end(),
                    [](const LayerResult& l) { return l.verdict == Verdict::unsure; });
  return unsure_note(std::size_t(unsure), merged.layers.size(), table.disturbances, resumes);
}

std::string unsure_note(std::size_t unsure, std::size_t all, const Disturbances& disturbances,
                        bool resumes) {
  if (unsure == 0) return "";
  const std::string rows =
      fmt::format("{} of {} {} UNSURE: ", unsure, counted(all, "row"), unsure == 1 ? "is" : "are");
  // A smaller share disturbs few samples, and those are taken again.
  if (disturbances.others < 0.05)
    return rows + "too close to tell so far" +
           (resumes ? "; the same command goes on from here" : "");
  const long cores = disturbances.processors;
  return rows + fmt::format("other programs used {:.0f}% of {} {}; run it again when they are idle",
                            100 * disturbances.others, cores, cores == 1 ? "core" : "cores");
}

int exit_code(const TuneTable& table) {
  if (!table.store_error.empty()) return 3;
  return std::any_of(table.layers.begin(), table.layers.end(),
                     [](const LayerResult& layer) { return layer.chosen.has_value(); })
             ? 0
             : 1;
}

Json layouts_json(const Candidate& c) {
  if (!c.has_layouts) return Json::array();
  return {to_string(c.x_layout), to_string(c.y_layout)};
}

Json ratio_json(const std::array<double, 3>& ratio) {
  Json json = Json::array();
  for (const double bound : ratio) json.push_back(bound > 0 ? Json(bound) : Json());
  return json;
}

Json layer_json(const LayerResult& layer) {
  const Problem& p = layer.layer.problem;
  Json candidates = Json::array(), chosen;
  for (const Candidate& c : layer.candidates) {
    Json candidate = candidate_json(c);
    candidate["status"] = to_string(c.status);
    candidate["reason"] = c.reason;
    candidates.push_back(std::move(candidate));
  }
  if (layer.chosen) {
    const Candidate& c = chosen_of(layer);
    chosen = candidate_json(c);
    chosen["samples_ms"] = c.samples_ms;
  }
  Json json{{"layer", layer.layer.name},
            {"problem", layer.layer.text()},
            {"pass", to_string(layer.layer.pass())},
            {"dtype", to_string(p.dtype())},
            {"count", layer.layer.count},
            {"chosen", std::move(chosen)},
            {"verdict", to_string(layer.verdict)},
            {"reason", layer.reason},
            {"ratio", ratio_json(shown_ratio(layer))},
            {"candidates", std::move(candidates)}};
  if (layer.layer.transposed)
    json["convolution"] = {{"problem", to_text(p)}, {"pass", to_string(p.pass())}};
  if (layer.log_ms > 0) {
    json["log_ms"] = layer.log_ms;
    json["convlab_ms"] =
        layer.chosen ? Json(double(layer.layer.count) * chosen_of(layer).ms) : Json();
  }
  if (p.conv() && !p.conv()->epilogue.empty()) json["epilogue"] = extras_of(p);
  if (const RecurrentProblem* const recurrent = p.recurrent()) {
    json["training"] = recurrent->training;
    json["recompute"] = recurrent->recompute;
  }
  return json;
}

}  // namespace convlab
