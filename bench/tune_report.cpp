#include "bench/tune_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "autotune/measure.h"

namespace convlab {
namespace {

using Json = nlohmann::ordered_json;

// The first `ok` candidate that is not the chosen one: candidates stand best first.
const Candidate* runner_up(const LayerResult& layer) {
  for (std::size_t i = 0; i < layer.candidates.size(); ++i)
    if (i != layer.chosen && layer.candidates[i].status == Status::ok) return &layer.candidates[i];
  return nullptr;
}

Cell spread_cell(const Candidate& c) {
  if (c.predicted || c.ms <= 0) return {};
  const double percent = 100 * c.mad_ms / c.ms;
  return {percent, fmt::format("{:.1f}", percent)};
}

Cell measured_error(const Candidate& c) {
  if (c.predicted) return {};
  return {c.rel_error, fmt::format("{:.1e}{}", c.rel_error, c.sampled_error ? "*" : "")};
}

// What a person compares; the problem's text and the rest stand in csv and json.
Report reading_report(const TuneTable& table) {
  Report report;
  report.columns = {"layer",      "batch",     "pass",      "count",   "algo",
                    "config",     "layouts",   "ms",        "mad_%",   "pack_ms",
                    "eff_gflops", "rel_error", "workspace", "verdict", "next_best"};
  for (const LayerResult& layer : table.layers) {
    const ConvProblem& p = layer.layer.problem;
    std::vector<Cell> row{show_layer(layer.layer), p.n, to_string(p.pass), layer.layer.count};
    if (layer.chosen) {
      const Candidate& c = layer.candidates[*layer.chosen];
      row.insert(row.end(),
                 {c.algo, c.config.text(), show_layouts(c), ms_cell(c.ms), spread_cell(c),
                  ms_cell(c.pack_ms), gflops_cell(c.eff_gflops), measured_error(c),
                  bytes_cell(c.workspace_bytes), to_string(layer.verdict), show_next_best(layer)});
    } else {
      row.resize(report.columns.size());
      row[4] = "-";
      row[13] = to_string(layer.verdict);
    }
    report.rows.push_back(std::move(row));
  }
  return report;
}

Report full_report(const TuneTable& table) {
  Report report;
  report.columns = {
      "layer",      "problem",     "pass",      "dtype",           "count",
      "algo",       "config",      "x_layout",  "y_layout",        "threads",
      "cache",      "ms",          "mad_ms",    "pack_ms",         "convert_ms",
      "eff_gflops", "exec_gflops", "rel_error", "workspace_bytes", "packed_filter_bytes",
      "verdict",    "ratio_lo",    "ratio",     "ratio_hi",        "next_best"};
  const auto exact = [](double value) { return Cell(value, ""); };
  for (const LayerResult& layer : table.layers) {
    const ConvProblem& p = layer.layer.problem;
    std::vector<Cell> row{layer.layer.name, to_text(p), to_string(p.pass), to_string(p.dtype),
                          layer.layer.count};
    row.resize(report.columns.size());
    if (layer.chosen) {
      const Candidate& c = layer.candidates[*layer.chosen];
      const std::vector<Cell> cells{c.algo,
                                    c.config.text(),
                                    to_string(c.x_layout),
                                    to_string(c.y_layout),
                                    std::int64_t(c.threads),
                                    to_string(c.cache),
                                    exact(c.ms),
                                    exact(c.mad_ms),
                                    exact(c.pack_ms),
                                    exact(c.convert_ms),
                                    exact(c.eff_gflops),
                                    exact(c.exec_gflops),
                                    exact(c.rel_error),
                                    c.workspace_bytes,
                                    c.packed_filter_bytes};
      std::copy(cells.begin(), cells.end(), row.begin() + 5);
      if (const Candidate* next = runner_up(layer)) {
        for (std::size_t i = 0; i < 3; ++i) row[21 + i] = exact(layer.ratio[i]);
        row[24] = next->algo;
      }
    }
    row[20] = to_string(layer.verdict);
    report.rows.push_back(std::move(row));
  }
  return report;
}

// The median over the layers of how far a chosen candidate's samples spread.
double typical_spread(const TuneTable& table) {
  std::vector<double> spreads;
  for (const LayerResult& layer : table.layers)
    if (layer.chosen) {
      const Candidate& c = layer.candidates[*layer.chosen];
      if (c.ms > 0) spreads.push_back(c.mad_ms / c.ms);
    }
  return median(spreads);
}

std::vector<std::string> notes(const TuneTable& table) {
  std::vector<std::string> notes;
  bool sampled = false, first_backward = false;
  for (const LayerResult& layer : table.layers) {
    if (layer.chosen) sampled |= layer.candidates[*layer.chosen].sampled_error;
    first_backward |= layer.first_layer && layer.layer.problem.pass == Pass::backward_data;
  }
  for (const Pass pass : all_passes) {
    const Totals t = totals(table, pass);
    if (t.chosen_ms > 0)
      notes.push_back(fmt::format(
          "total {:<5}  {} ms, packing filters {} ms, converting layouts {} ms", to_string(pass),
          show_ms(t.chosen_ms), show_ms(t.pack_ms), show_ms(t.convert_ms)));
  }
  const Totals all = totals(table);
  notes.push_back(fmt::format("total all    {} ms, packing filters {} ms, converting layouts {} ms",
                              show_ms(all.chosen_ms), show_ms(all.pack_ms),
                              show_ms(all.convert_ms)));
  if (first_backward)
    notes.push_back("The first layer's bwd_d is listed but in no total: nothing reads its result.");
  if (all.layers_without > 0)
    notes.push_back(fmt::format("{} without any working algorithm.", all.layers_without));
  if (sampled) notes.push_back("* rel_error over a sample of the outputs.");
  // A quiet machine's is about 0.02; at 0.1 single times are off by factors.
  if (const double spread = typical_spread(table); spread > 0.1)
    notes.push_back(
        fmt::format("Times spread by {:.0f}%: something else used this machine. Run it "
                    "again with --fresh when that is over.",
                    100 * spread));
  if (!table.complete)
    notes.push_back(
        fmt::format("Stopped early: untried candidates may save another {} ms; the same "
                    "command goes on from here.",
                    show_ms(table.remaining_gain)));
  return notes;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json candidate_json(const Candidate& c) {
  return {{"algo", c.algo},
          {"config", c.config.text()},
          {"layouts", {to_string(c.x_layout), to_string(c.y_layout)}},
          {"threads", c.threads},
          {"cache", to_string(c.cache)},
          {"ms", number(c.ms)},
          {"mad_ms", number(c.mad_ms)},
          {"pack_ms", number(c.pack_ms)},
          {"convert_ms", number(c.convert_ms)},
          {"eff_gflops", number(c.eff_gflops)},
          {"exec_gflops", number(c.exec_gflops)},
          {"rel_error", number(c.rel_error)},
          {"workspace_bytes", c.workspace_bytes},
          {"packed_filter_bytes", c.packed_filter_bytes}};
}

Json totals_json(const Totals& t) {
  return {{"ms", t.chosen_ms},
          {"pack_ms", t.pack_ms},
          {"convert_ms", t.convert_ms},
          {"layers_without", t.layers_without}};
}

std::string render_json(const TuneTable& table) {
  Json json{{"convlab_tune", 1},
            {"provenance", Json::object()},
            {"layers", Json::array()},
            {"totals", Json::object()}};
  for (const auto& [name, value] : table.provenance.fields) json["provenance"][name] = value;
  for (const LayerResult& layer : table.layers) json["layers"].push_back(layer_json(layer));
  for (const Pass pass : all_passes)
    json["totals"][std::string(to_string(pass))] = totals_json(totals(table, pass));
  json["totals"]["all"] = totals_json(totals(table));
  json["totals"]["complete"] = table.complete;
  json["totals"]["remaining_gain_ms"] = table.remaining_gain;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string cpp_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') literal += '\\';
    literal += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return literal + "\"";
}

std::string render_header(const TuneTable& table) {
  std::string text =
      R"(// Convolution algorithms as `convlab tune` chose them. Written by convlab; do not edit.
#pragma once

#include <cstdint>
#include <string_view>

namespace convlab_tuned {

struct Fact {
  std::string_view name, value;
};

// Where and how the choices were made.
inline constexpr Fact provenance[] = {
)";
  for (const auto& [name, value] : table.provenance.fields)
    text += fmt::format("    {{{}, {}}},\n", cpp_literal(name), cpp_literal(value));
  text += R"(};

struct Choice {
  std::string_view layer, problem, pass, dtype;  // problem in benchdnn's text form
  std::string_view algo, config, x_layout, y_layout;
  double ms;
  double rel_error;
  std::int64_t workspace_bytes, packed_filter_bytes;
};

inline constexpr Choice choices[] = {
)";
  bool any = false;
  for (const LayerResult& layer : table.layers) {
    if (!layer.chosen) continue;
    any = true;
    const ConvProblem& p = layer.layer.problem;
    const Candidate& c = layer.candidates[*layer.chosen];
    text += fmt::format("    {{{}, {}, {}, {},\n     {}, {}, {}, {},\n     {}, {}, {}, {}}},\n",
                        cpp_literal(layer.layer.name), cpp_literal(to_text(p)),
                        cpp_literal(to_string(p.pass)), cpp_literal(to_string(p.dtype)),
                        cpp_literal(c.algo), cpp_literal(c.config.text()),
                        cpp_literal(to_string(c.x_layout)), cpp_literal(to_string(c.y_layout)),
                        c.ms, c.rel_error, c.workspace_bytes, c.packed_filter_bytes);
  }
  if (!any) text += "    {},  // nothing was chosen\n";
  text += R"(};

// Null when the problem was not tuned.
constexpr const Choice* find(std::string_view problem, std::string_view pass,
                             std::string_view dtype = "f32") {
  for (const Choice& c : choices)
    if (c.problem == problem && c.pass == pass && c.dtype == dtype) return &c;
  return nullptr;
}

}  // namespace convlab_tuned
)";
  return text;
}

}  // namespace

std::string render(const TuneTable& table, Format format) {
  if (format == Format::json) return render_json(table);
  if (format == Format::hpp) return render_header(table);
  Report report = format == Format::csv ? full_report(table) : reading_report(table);
  report.notes = notes(table);
  report.provenance = table.provenance;
  return render(report, format);
}

std::string render_candidates(const TuneTable& table, Format format) {
  if (format == Format::json) return render_json(table);
  Report report;
  report.columns = {"layer",      "pass",        "algo",      "config",    "layouts",
                    "status",     "ms",          "mad_%",     "pack_ms",   "convert_ms",
                    "eff_gflops", "exec_gflops", "rel_error", "workspace", "reason"};
  for (const LayerResult& layer : table.layers) {
    const std::string name = show_layer(layer.layer);
    const std::string_view pass = to_string(layer.layer.problem.pass);
    for (const Candidate& c : layer.candidates) {
      std::vector<Cell> row{
          name, pass, c.algo, c.config.text(), show_layouts(c), to_string(c.status)};
      row.resize(report.columns.size());
      if (c.ms > 0) {
        row[6] = c.predicted ? Cell(c.ms, "~" + show_ms(c.ms)) : ms_cell(c.ms);
        row[7] = spread_cell(c);
        row[10] = gflops_cell(c.eff_gflops);
        row[11] = gflops_cell(c.exec_gflops);
      }
      if (c.status != Status::refused && !c.predicted) {
        row[8] = ms_cell(c.pack_ms);
        row[9] = ms_cell(c.convert_ms);
        row[12] = measured_error(c);
        row[13] = bytes_cell(c.workspace_bytes);
      }
      row[14] = c.reason;
      report.rows.push_back(std::move(row));
    }
    if (layer.chosen)
      report.notes.push_back(fmt::format("{} {}: {} {} {}", name, pass, to_string(layer.verdict),
                                         show_choice(layer.candidates[*layer.chosen]),
                                         show_next_best(layer)));
  }
  report.provenance = table.provenance;
  return render(report, format);
}

std::string show_next_best(const LayerResult& layer) {
  const Candidate* next = runner_up(layer);
  if (!next || !layer.chosen) return "";
  const Candidate& chosen = layer.candidates[*layer.chosen];
  std::string text = next->algo;
  if (next->algo == chosen.algo) {
    if (next->config != chosen.config) text += " " + next->config.text();
    if (show_layouts(*next) != show_layouts(chosen)) text += " " + show_layouts(*next);
  }
  text += fmt::format(" {:.2f}x", layer.ratio[1]);
  if (layer.ratio[0] > 0) text += fmt::format(" [{:.2f} {:.2f}]", layer.ratio[0], layer.ratio[2]);
  return text;
}

Json layer_json(const LayerResult& layer) {
  const ConvProblem& p = layer.layer.problem;
  Json candidates = Json::array(), chosen;
  for (const Candidate& c : layer.candidates) {
    Json candidate = candidate_json(c);
    candidate["status"] = to_string(c.status);
    candidate["reason"] = c.reason;
    candidates.push_back(std::move(candidate));
  }
  if (layer.chosen) {
    const Candidate& c = layer.candidates[*layer.chosen];
    chosen = candidate_json(c);
    chosen["samples_ms"] = c.samples_ms;
  }
  return {{"layer", layer.layer.name},           {"problem", to_text(p)},
          {"pass", to_string(p.pass)},           {"dtype", to_string(p.dtype)},
          {"count", layer.layer.count},          {"chosen", std::move(chosen)},
          {"verdict", to_string(layer.verdict)}, {"ratio", layer.ratio},
          {"candidates", std::move(candidates)}};
}

std::string show_layouts(const Candidate& c) {
  std::string text(to_string(c.x_layout));
  if (c.y_layout != c.x_layout) text += fmt::format(">{}", to_string(c.y_layout));
  return text;
}

std::string show_choice(const Candidate& c) {
  return fmt::format("{} {}{}{}", c.algo, c.config.text(), c.config.values().empty() ? "" : " ",
                     show_layouts(c));
}

std::string show_layer(const NamedProblem& layer) {
  return layer.name.empty() ? to_text(layer.problem) : layer.name;
}

}  // namespace convlab
