#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "bench/options/tune_options.h"
#include "bench/options/work.h"
#include "bench/output.h"
#include "bench/reports/tune_cells.h"
#include "bench/verbs/verbs.h"
#include "conv/text/bytes.h"
#include "nets/zoo/zoo.h"

namespace convlab {

using namespace nets;
namespace {

struct Options {
  CommonOptions common;
  TuneOptions tune;
};

// Small problems that each need one feature more than the first.
const std::vector<LayerProblem>& probes() {
  static const std::vector<LayerProblem> list = [] {
    std::vector<LayerProblem> parsed;
    for (const char* text :
         {"mb1ic32ih16oc32oh16kh3ph1n3x3", "mb1ic64ih16oc64oh16kh1ph0n1x1",
          "mb1ic32ih16oc32oh16kh5ph2n5x5", "mb1ic32ih16oc32oh8kh3sh2ph1nstride",
          "mb1ic32ih16oc32oh16kh3ph2dh1ndilation", "g2mb1ic32ih16oc32oh16kh3ph1ngroups",
          "g8mb1ic32ih16oc32oh16kh3ph1nsmall_groups", "g32mb1ic32ih16oc32oh16kh3ph1ndepthwise",
          "g32mb1ic32ih16oc32oh16kh13ph6nlarge_depthwise", "mb1ic3ih16oc32oh16kh3ph1nC=3",
          "mb1ic32ih16oc32oh8kh3sh2ph0nasym_pad", "mb1ic32iw64oc32ow64kw3pw1n1-D",
          "mb1ic32id4ih16oc32kd3kh3pd1ph1ndepth", "deconv:mb1ic32ih8oc32oh16kh4sh2ph1ndeconv",
          "rnn:t4dhc16nrnn", "gru:t4dhc16ngru", "lstm:t4dhc16nlstm", "lstm:l2t4dhc16nlayers",
          "lstm:t4dhc16:binbi"})
      parsed.push_back(parse_layer(text));
    return parsed;
  }();
  return list;
}

// Runs nothing: the heuristic queries every algorithm in every layout and returns the refusals.
TuneTable ask(const std::vector<TuneItem>& items, const Options& o, Device& device) {
  TuneOptions options = o.tune;
  options.mode = TuneMode::heuristic;
  options.layout = chosen_layout(o.common, device);
  options.max_error = 0;
  options.lists_refusals = true;
  return tune(items, options, append_all_algos, device);
}

bool takes(const LayerResult& layer, const std::string& algo) {
  return std::any_of(layer.candidates.begin(), layer.candidates.end(), [&](const Candidate& c) {
    return c.algo == algo && c.status != Status::refused;
  });
}

// "Families, for --algos and --exclude: direct (direct, direct_plain); ..."
std::string families_note(const std::vector<AlgoRef>& algos) {
  std::map<std::string, std::vector<std::string>> families;
  for (const AlgoRef& algo : algos)
    if (!algo.info().family.empty()) families[algo.info().family].push_back(algo.info().id);
  std::vector<std::string> texts;
  for (const auto& [family, ids] : families)
    texts.push_back(fmt::format("{} ({})", family, fmt::join(ids, ", ")));
  return fmt::format("Families, for --algos and --exclude: {}",
                     texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, "; ")));
}

Report support_report(const Options& o, Device& device, const Algos& algos) {
  std::vector<TuneItem> items;
  for (const LayerProblem& probe : probes())
    for (const Pass pass : all_passes)
      for (const DType dtype : all_dtypes) {
        if (probe.problem.recurrent() && dtype != DType::f32 && dtype != DType::f64) continue;
        items.push_back({probe, false});
        items.back().layer.set_pass(pass);
        items.back().layer.problem.set_dtype(dtype);
      }
  const TuneTable table = ask(items, o, device);
  Report report;
  report.columns = {"algo", "version", "origin"};
  for (const LayerProblem& probe : probes()) report.columns.push_back(probe.name);
  report.columns.insert(report.columns.end(), {"types", "what"});
  for (const AlgoRef& algo : algos.for_device(device.info().kind)) {
    const AlgoInfo& info = algo.info();
    std::vector<Cell> row{info.id, std::int64_t(info.version),
                          info.origin == Origin::own ? "own" : "vendor"};
    std::set<DType> types;
    for (const LayerProblem& probe : probes()) {
      std::string passes;
      for (const LayerResult& layer : table.layers) {
        if (layer.layer.name != probe.name || !takes(layer, info.id)) continue;
        types.insert(layer.layer.problem.dtype());
        const char letter = "fdw"[std::size_t(layer.layer.pass())];
        if (passes.find(letter) == std::string::npos) passes += letter;
      }
      row.push_back(passes.empty() ? "-" : passes);
    }
    std::vector<std::string_view> names;
    for (const DType type : types) names.push_back(to_string(type));
    row.push_back(fmt::format("{}", fmt::join(names, " ")));
    row.push_back(info.summary);
    report.rows.push_back(std::move(row));
  }
  report.notes = {
      "f, d, w: takes such problems forward, backward_data, backward_filter (some type, some "
      "layout).",
      families_note(algos.for_device(device.info().kind)),
      fmt::format("Nets: {}", fmt::join(net_names(), " "))};
  return report;
}

// "lstm:...: weights 8.0 MiB, of which ..."
std::string sizes_note(RecurrentProblem p) {
  p.recompute = false;
  const std::int64_t kept = p.activations_bytes();
  p.recompute = true;
  const std::int64_t again = p.activations_bytes();
  return fmt::format(
      "{}: weights {}, of which a step of a layer and direction reads {}; activations of training "
      "{}{}; gradients of the gates {}.",
      to_text(p), show_bytes(p.weights_bytes()), show_bytes(p.step_bytes()), show_bytes(kept),
      again < kept ? fmt::format(", or {} if they are computed again", show_bytes(again)) : "",
      show_bytes(p.dgates_bytes()));
}

Report refusal_report(const std::vector<TuneItem>& items, const Options& o, Device& device,
                      const Algos& algos) {
  Report report;
  std::set<std::string> sizes;
  report.columns = {"layer", "problem", "pass", "algo", "takes", "candidates", "reason"};
  const TuneTable table = ask(items, o, device);
  for (const LayerResult& layer : table.layers) {
    if (const RecurrentProblem* const p = layer.layer.problem.recurrent())
      if (const std::string note = sizes_note(*p); sizes.insert(note).second)
        report.notes.push_back(note);
    for (const AlgoRef& algo : algos.for_device(device.info().kind)) {
      if (!algo.is_for(layer.layer.problem)) continue;
      const std::string& id = algo.info().id;
      std::int64_t count = 0;
      std::string reason;
      for (const Candidate& c : layer.candidates) {
        if (c.algo != id) continue;
        if (c.status == Status::refused)
          reason = c.reason;
        else
          ++count;
      }
      report.rows.push_back({show_layer(layer.layer), layer.layer.text(),
                             to_string(layer.layer.pass()), id, count > 0 ? "yes" : "no", count,
                             count > 0 ? "" : reason});
    }
  }
  for (std::string& note : transposed_notes(table)) report.notes.push_back(std::move(note));
  report.notes.insert(report.notes.begin(), "candidates: configs x layouts that would be tried.");
  return report;
}

int run(const Options& o) {
  const bool has_work = !o.common.targets.empty() || !o.common.from.empty();
  const bool lists_problems = o.common.format == Format::problems;
  if (has_work || lists_problems)
    require_work(o.common, "list", "a net, a problem or @FILE, as in `convlab list resnet18`");
  Output output(o.common.output);
  const std::unique_ptr<Device> device = open_device(o.common);
  Algos algos;
  append_all_algos(algos);
  const Work work = has_work ? resolve_work(o.common, device->info()) : Work{};
  const Provenance origin = provenance(*device);
  if (lists_problems) {
    output.write(problem_lines(work, origin));
    return 0;
  }
  Report report =
      has_work ? refusal_report(work.items, o, *device, algos) : support_report(o, *device, algos);
  report.provenance = origin;
  for (const auto& field : work.about) report.provenance.fields.push_back(field);
  output.write(render(report, o.common.format));
  return 0;
}

}  // namespace

VerbAction declare_list(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  add_targets(app, o->common);
  add_from(app, o->common);
  add_recompute(app, o->common);
  add_device(app, o->common);
  add_layout(app, o->common);
  add_output(app, o->common, {"table", "csv", "json", "md", "problems"});
  set_footer(
      app,
      "Without a TARGET: each algorithm, and which kinds of problems it takes in which pass. With\n"
      "one: for each of its problems who takes it, and why the others refuse. --format problems\n"
      "writes the problems alone, one a line: an @FILE that every verb reads.\n\n"
      "Examples:\n"
      "  convlab list\n"
      "  convlab list --device cuda\n"
      "  convlab list lstm:t32mb16dhc512     also what its weights and activations take\n"
      "  convlab list mb1ic64ih56oc64oh28kh3sh2ph1 --pass fwd\n"
      "  convlab list googlenet --layout nchw --dtype f64 --format md\n"
      "  convlab list --from net.log --format problems --output net.txt");
  return [o] { return run(*o); };
}

}  // namespace convlab
