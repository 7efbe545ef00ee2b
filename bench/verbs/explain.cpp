#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "bench/options/choice.h"
#include "bench/options/tune_options.h"
#include "bench/output.h"
#include "bench/reports/explain_data.h"
#include "bench/reports/tune_cells.h"
#include "bench/reports/tune_report.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"

namespace convlab {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainArguments {
  TuneArguments tuning;
  bool all = false;
};

bool is_known(const LayerResult& layer) {
  return layer.chosen && !layer.candidates[*layer.chosen].predicted;
}

// Takes the store's rows if it has all; else measures and stores the missing ones.
TuneOutcome find_out(const TuneArguments& a, std::string& source) {
  const std::string db = db_path(a.common);
  if (Store::exists(db)) {
    TuneArguments only_known = a;
    only_known.tune.budget_s = 0.0;
    TuneOutcome known = run_tuning(only_known, db);
    if (known.table.complete &&
        std::all_of(known.table.layers.begin(), known.table.layers.end(), is_known)) {
      source = "measured before, in " + db;
      return known;
    }
  }
  source = "measured now, and kept in " + db;
  return run_tuning(a, db);
}

BatchWinner batch_winner(const LayerResult& result) {
  const Candidate& chosen = result.candidates[*result.chosen];
  return {result.layer.problem.batch(), chosen.algo,
          chosen.predicted                    ? "predicted"
          : result.verdict == Verdict::unsure ? "UNSURE"
                                              : "measured"};
}

// The winner at the layer's own batch, which is its verdict, and at batches 1 to 256: from the
// store if that has decided, else as predicted.
std::string batch_sentence(const LayerResult& layer, const TuneOptions& options, Device& device,
                           Store* store) {
  const std::int64_t own = layer.layer.problem.batch();
  std::set<std::int64_t> batches{own};
  for (std::int64_t batch = 1; batch <= 256; batch *= 2) batches.insert(batch);
  std::vector<BatchWinner> winners;
  for (const std::int64_t batch : batches) {
    if (batch == own) {
      if (layer.chosen) winners.push_back(batch_winner(layer));
      continue;
    }
    LayerProblem other = layer.layer;
    other.problem.set_batch(batch);
    try {
      TuneOptions lookup = options;
      lookup.budget_s = 0.0;
      const TuneTable known = tune({{other}}, lookup, append_all_algos, device, store);
      if (const LayerResult& result = known.layers.front();
          is_known(result) && result.verdict != Verdict::unsure) {
        winners.push_back(batch_winner(result));
        continue;
      }
      TuneOptions heuristic = options;
      heuristic.mode = TuneMode::heuristic;
      heuristic.budget_s.reset();
      const TuneTable table = tune({{other}}, heuristic, append_all_algos, device);
      if (const LayerResult& result = table.layers.front(); result.chosen)
        winners.push_back(batch_winner(result));
    } catch (const InputError&) {
      if (batch > own) break;  // larger ones do not fit in memory either
    }
  }
  return winners_by_batch(winners, own);
}

// The best of each algorithm, or all candidates.
std::vector<ExplainedCandidate> shown_candidates(const Explanation& e, bool all) {
  std::vector<ExplainedCandidate> shown;
  for (const ExplainedCandidate& c : e.candidates) {
    const bool better = std::any_of(shown.begin(), shown.end(), [&](const ExplainedCandidate& s) {
      return s.candidate->algo == c.candidate->algo;
    });
    if (all || !better) shown.push_back(c);
  }
  return shown;
}

Report candidate_report(const Explanation& e, bool all) {
  Report report;
  report.columns = {"rank",     "algo",      "config",    "layouts",   "ms", "x_chosen",
                    "interval", "%_of_roof", "rel_error", "workspace", "why"};
  std::int64_t rank = 0;
  for (const ExplainedCandidate& row : shown_candidates(e, all)) {
    const Candidate& c = *row.candidate;
    std::vector<Cell> cells{++rank, c.algo, c.config.text(), show_layouts(c)};
    cells.resize(report.columns.size());
    if (c.ms > 0 && c.status != Status::refused) {
      cells[4] = c.predicted ? Cell(c.ms, "~" + show_ms(c.ms)) : ms_cell(c.ms);
      cells[5] = Cell(row.ratio[1], fmt::format("{:.2f}", row.ratio[1]));
      if (row.ratio[0] > 0) cells[6] = fmt::format("[{:.2f} {:.2f}]", row.ratio[0], row.ratio[2]);
    }
    if (row.percent_of_roof > 0)
      cells[7] = Cell(row.percent_of_roof, fmt::format("{:.0f}", row.percent_of_roof));
    if (!c.predicted && c.status != Status::refused) {
      cells[8] = error_cell(c.rel_error);
      cells[9] = bytes_cell(c.workspace_bytes);
    }
    cells[10] = row.why;
    report.rows.push_back(std::move(cells));
  }
  return report;
}

Report phase_report(const Explanation& e) {
  Report report;
  report.columns = {"phase", "ms", "share_%", "mflop", "gflops", "bytes", "%_of_roof"};
  double total = 0;
  for (const RooflinePhase& phase : e.phases) total += phase.ms;
  const auto add = [&](const RooflinePhase& phase, Cell share) {
    std::vector<Cell> cells{phase.name, ms_cell(phase.ms), std::move(share)};
    cells.resize(report.columns.size());
    if (phase.flops > 0) {
      cells[3] = Cell(phase.flops / 1e6, fmt::format("{:.1f}", phase.flops / 1e6));
      if (phase.ms > 0) cells[4] = gflops_cell(phase.flops / phase.ms / 1e6);
    }
    if (phase.bytes > 0) cells[5] = bytes_cell(std::int64_t(phase.bytes));
    if (phase.percent_of_roof > 0)
      cells[6] = Cell(phase.percent_of_roof, fmt::format("{:.0f}", phase.percent_of_roof));
    report.rows.push_back(std::move(cells));
  };
  for (const RooflinePhase& phase : e.phases) {
    const double share = total > 0 ? 100 * phase.ms / total : 0;
    add(phase, Cell(share, fmt::format("{:.0f}", share)));
  }
  for (const RooflinePhase& phase : e.beforehand) add(phase, Cell());
  if (!e.beforehand.empty())
    report.notes.emplace_back("Without a share: done beforehand, and in no run's time.");
  return report;
}

std::string title(const LayerResult& layer) {
  return fmt::format("{} {}, {}", show_layer(layer.layer), to_string(layer.layer.pass()),
                     layer.layer.text());
}

std::string render_text(const std::vector<Explanation>& explanations, const std::string& source,
                        const Provenance& provenance, bool complete, bool all, Format format) {
  const char* const heading = format == Format::md ? "## " : "";
  std::string text;
  for (const Explanation& e : explanations) {
    text += fmt::format("{}{}\n\n", heading, title(*e.layer));
    if (e.layer->layer.transposed) text += fmt::format("{}.\n\n", transposed_note(e.layer->layer));
    text += render(candidate_report(e, all), format) + "\n";
    if (!e.phases.empty()) {
      const Candidate& c = e.layer->candidates[*e.layer->chosen];
      text += fmt::format("Phases of {}, in a run of their own:\n\n", show_choice(c));
      text += render(phase_report(e), format) + "\n";
    }
    for (const std::string& sentence : e.verdict)
      text += (format == Format::md ? "- " : "") + sentence + "\n";
    text += "\n";
  }
  if (!complete) text += "Stopped early: the same command goes on from here.\n\n";
  for (const auto& [name, value] : provenance.fields)
    text += format == Format::md ? fmt::format("- {}: {}\n", name, value)
                                 : fmt::format("{:<10}  {}\n", name, value);
  text += format == Format::md ? fmt::format("- times: {}\n", source)
                               : fmt::format("{:<10}  {}\n", "times", source);
  return text;
}

std::string render_json(const std::vector<Explanation>& explanations, const std::string& source,
                        const Provenance& provenance, bool complete) {
  Json json{{"convlab_explain", explain_format}, {"provenance", Json::object()}};
  for (const auto& [name, value] : provenance.fields) json["provenance"][name] = value;
  json["times"] = source;
  json["layers"] = Json::array();
  for (const Explanation& e : explanations) {
    Json layer{{"layer", show_layer(e.layer->layer)},
               {"problem", e.layer->layer.text()},
               {"pass", to_string(e.layer->layer.pass())},
               {"verdict", to_string(e.layer->verdict)},
               {"candidates", Json::array()},
               {"phases", Json::array()},
               {"beforehand", Json::array()},
               {"sentences", e.verdict}};
    if (e.layer->layer.transposed)
      layer["convolution"] = {{"problem", to_text(e.layer->layer.problem)},
                              {"pass", to_string(e.layer->layer.problem.pass())}};
    for (const ExplainedCandidate& row : e.candidates) {
      const Candidate& c = *row.candidate;
      layer["candidates"].push_back(
          {{"algo", c.algo},
           {"config", c.config.text()},
           {"layouts", layouts_json(c)},
           {"status", to_string(c.status)},
           {"predicted", c.predicted},
           {"ms", c.ms},
           {"ratio", ratio_json(row.ratio)},
           {"exec_flops", row.flops},
           {"percent_of_roof", row.percent_of_roof},
           {"rel_error", std::isfinite(c.rel_error) ? Json(c.rel_error) : Json(nullptr)},
           {"workspace_bytes", c.workspace_bytes},
           {"why", row.why}});
    }
    const auto add = [&](const char* where, const RooflinePhase& phase) {
      layer[where].push_back({{"name", phase.name},
                              {"ms", phase.ms},
                              {"flops", phase.flops},
                              {"bytes", phase.bytes},
                              {"percent_of_roof", phase.percent_of_roof}});
    };
    for (const RooflinePhase& phase : e.phases) add("phases", phase);
    for (const RooflinePhase& phase : e.beforehand) add("beforehand", phase);
    json["layers"].push_back(std::move(layer));
  }
  json["complete"] = complete;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run(const ExplainArguments& given) {
  const TuneArguments& a = given.tuning;
  if (a.common.targets.empty())
    throw InputError(
        "explain: no target: expected a net or a problem, as in `convlab explain resnet18 --layer "
        "conv1 --pass fwd`");
  Output output(a.common.output);
  std::string source;
  const TuneOutcome outcome = find_out(a, source);

  const std::unique_ptr<Device> device = open_device(a.common);
  Algos algos;
  append_all_algos(algos);
  const std::string db = db_path(a.common);
  const std::vector<Roof> roofs = find_roofs(*device, db, false);
  std::optional<Store> store;
  if (Store::exists(db)) store.emplace(db, Store::Open::existing);
  TuneOptions options = a.tune;
  options.cache = a.common.cache;
  options.layout = chosen_layout(a.common, *device);
  Progress progress;
  std::vector<Explanation> explanations;
  for (const LayerResult& layer : outcome.table.layers) {
    progress.bar(explanations.size(), outcome.table.layers.size(), title(layer));
    Explanation& e = explanations.emplace_back(explain(layer, algos, *device, roofs));
    e.verdict = limits_that_decide(layer, options);
    if (const RecurrentProblem* const p = layer.layer.problem.recurrent())
      if (std::string roofline = recurrent_roofs(*p, device->info(), roofs); !roofline.empty())
        e.verdict.push_back(std::move(roofline));
    e.verdict.push_back(batch_sentence(layer, options, *device, store ? &*store : nullptr));
    if (const std::string warning = noise_warning(roofs); !warning.empty())
      e.verdict.push_back(warning);
  }
  const bool complete = !outcome.interrupted;
  output.write(a.common.format == Format::json
                   ? render_json(explanations, source, outcome.table.provenance, complete)
                   : render_text(explanations, source, outcome.table.provenance, complete,
                                 given.all, a.common.format));
  return outcome.interrupted ? interrupted_exit_code : 0;
}

}  // namespace

VerbAction declare_explain(CLI::App& app) {
  const auto a = std::make_shared<ExplainArguments>();
  CommonOptions& common = a->tuning.common;
  add_choice(app, a->tuning);
  add_recompute(app, a->tuning.common);
  add_layer(app, common);
  add_flag(app, "--all", a->all, "Every candidate; default: the best of each algorithm");
  add_output(app, common, {"table", "json", "md"});
  add_db(app, common);
  set_footer(
      app,
      "Why an algorithm won a layer: the candidates ranked, with their time over the chosen's and\n"
      "its 95% interval, and why each lost or was refused; the winner's phases against the\n"
      "machine's roofs; which limit would have to move to change the verdict, and at which batch "
      "it\n"
      "does. Missing results are measured first and stored, as by `tune`.\n\n"
      "Examples:\n"
      "  convlab explain mb1ic64ih56oc64oh56kh3ph1 --pass fwd\n"
      "  convlab explain resnet18 --layer layer1.0.conv1 --pass bwd_w --all\n"
      "  convlab explain rnn:t64mb1dhc512 --pass fwd\n"
      "  convlab explain mb1ic256ih14oc256oh14kh3ph1 --workspace-max 1M --format md");
  return [a] { return run(*a); };
}

}  // namespace convlab
