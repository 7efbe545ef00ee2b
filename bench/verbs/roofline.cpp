#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "autotune/candidates.h"
#include "autotune/store/store.h"
#include "bench/options/targets.h"
#include "bench/options/tune_options.h"
#include "bench/output.h"
#include "bench/reports/gnuplot.h"
#include "bench/reports/roofline/roofline_report.h"
#include "bench/reports/tune_cells.h"
#include "bench/text.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/text/text_file.h"
#include "kernels_cpu/cpu.h"

namespace convlab {
namespace {

struct RooflineArguments {
  TuneArguments tuning;
  std::string html, svg, from;
  bool measure = false, remeasure = false, no_phases = false;
};

// The `convlab tune ...` command that fills the store for these flags.
std::string tune_command(const CommonOptions& o) {
  std::string command = "convlab tune";
  for (const std::string& target : o.targets) command += " " + shell_word(target);
  if (!o.batches.empty()) command += fmt::format(" --batch {}", fmt::join(o.batches, ","));
  if (o.passes.size() < all_passes.size()) {
    std::vector<std::string_view> passes;
    for (const Pass pass : o.passes) passes.push_back(to_string(pass));
    command += fmt::format(" --pass {}", fmt::join(passes, ","));
  }
  if (o.dtype != DType::f32) command += fmt::format(" --dtype {}", to_string(o.dtype));
  if (o.device.kind == DeviceKind::cuda)
    command += fmt::format(" --device cuda:{}", o.device.index);
  if (o.threads > 0) command += fmt::format(" --threads {}", o.threads);
  if (o.cache == CacheMode::cold) command += " --cache cold";
  if (!o.db.empty()) command += " --db " + shell_word(o.db);
  return command;
}

// The same layers on fewer threads, as far as the store has them.
void add_thread_curves(RooflineReport& report, const TuneTable& table, const Store& store,
                       const Algos& algos, const DeviceInfo& device, CacheMode cache) {
  for (const LayerResult& layer : table.layers)
    for (const ConvAlgo* algo : algos.conv.for_device(device.kind))
      for (int threads = 1; threads <= device.threads; threads *= 2) {
        DeviceInfo fewer = device;
        fewer.threads = threads;
        double best = 0;
        for (const Layouts& layouts : layout_pairs(*layer.layer.problem.conv(), {}, device)) {
          const Problem problem = layer.layer.problem.with_layouts(layouts);
          for (const Candidate& c : store.lookup(problem, cache, fewer, algo->info()).candidates)
            if (c.status == Status::ok && !c.predicted && (best == 0 || c.ms < best)) best = c.ms;
        }
        if (best > 0)
          report.curves.push_back({show_layer(layer.layer),
                                   std::string(to_string(layer.layer.pass())), algo->info().id,
                                   layer.layer.problem.batch(), threads, best});
      }
}

void add_notes(RooflineReport& report) {
  std::vector<const RooflinePoint*> chosen;
  double headroom = 0, total = 0;
  std::size_t above = 0, unsure = 0;
  for (const RooflinePoint& p : report.points) {
    above += p.status == "above roof" ? 1 : 0;
    if (!p.chosen) continue;
    chosen.push_back(&p);
    unsure += p.verdict == to_string(Verdict::unsure) ? 1 : 0;
    headroom += double(p.count) * p.headroom_ms;
    total += double(p.count) * p.ms;
  }
  std::sort(chosen.begin(), chosen.end(), [](const RooflinePoint* a, const RooflinePoint* b) {
    return double(a->count) * a->headroom_ms > double(b->count) * b->headroom_ms;
  });
  report.notes.push_back("Bytes are " + report.bytes + ".");
  report.notes.push_back(fmt::format(
      "The chosen algorithms take {} ms in all; {} ms of it could be saved at their roofs.",
      show_ms(total), show_ms(headroom)));
  for (std::size_t i = 0; i < std::min<std::size_t>(3, chosen.size()); ++i) {
    const RooflinePoint& p = *chosen[i];
    if (p.headroom_ms <= 0) break;
    report.notes.push_back(fmt::format("most headroom, {}: {} {} {}: {} ms x {}, {:.0f}% of roof",
                                       i + 1, p.layer, p.pass, p.algo, show_ms(p.headroom_ms),
                                       p.count, p.percent_of_roof));
  }
  if (unsure > 0)
    report.notes.push_back(fmt::format(
        "{} of {} choices {} UNSURE: a rival may be as fast; `convlab tune` takes them up again.",
        unsure, chosen.size(), unsure == 1 ? "is" : "are"));
  if (const std::string warning = noise_warning(report.roofs); !warning.empty())
    report.notes.push_back(warning);
  if (above > 0)
    report.notes.push_back(fmt::format(
        "{} points stand above their roof, which cannot be: the estimate of their work or a "
        "ceiling is wrong. They are listed, not drawn.",
        above));
}

// Has no points if interrupted before the first.
RooflineReport gather(const RooflineArguments& a) {
  TuneArguments tuning = a.tuning;
  const CommonOptions& common = tuning.common;
  const std::string db = db_path(common);
  const bool has_store = Store::exists(db);
  if (!a.measure) tuning.tune.budget_s = 0.0;  // only the store's results
  const std::unique_ptr<Device> device = open_device(common);
  const std::vector<TuneItem> items = resolve_targets(common, device->info());
  require_convolutions(items, "roofline");
  const TuneOutcome outcome =
      run_tuning(tuning, items, *device, a.measure || has_store ? db : "", {});

  Algos algos;
  append_all_algos(algos);
  RooflineReport report;
  report.provenance = outcome.table.provenance.fields;
  report.bytes = fmt::format(
      "modelled, at least what the algorithm must move, and not counted by hardware ({})",
      counters_obstacle(device->info()));
  std::vector<std::string> unknown;
  for (const LayerResult& layer : outcome.table.layers)
    if (!layer.chosen || layer.candidates[*layer.chosen].predicted)
      unknown.push_back(
          fmt::format("{} {}", show_layer(layer.layer), to_string(layer.layer.pass())));
  const std::string remedy =
      fmt::format("`{}` measures it, or --measure here", tune_command(common));
  if (unknown.size() == outcome.table.layers.size() && outcome.interrupted) return {};
  if (unknown.size() == outcome.table.layers.size())
    throw InputError(fmt::format("roofline: {} knows nothing of {}: {}", db,
                                 fmt::join(common.targets, " "), remedy));
  if (!unknown.empty())
    report.notes.push_back(fmt::format("{} of {} layers and passes are not in the store: {}.",
                                       unknown.size(), outcome.table.layers.size(), remedy));

  report.roofs = find_roofs(*device, db, a.remeasure);
  const std::atomic<bool>& stop = stop_on_interrupt();
  Progress progress;
  std::size_t done = 0;
  for (const LayerResult& layer : outcome.table.layers) {
    progress.bar(++done, outcome.table.layers.size(), "phases of " + show_layer(layer.layer));
    for (RooflinePoint& point :
         roofline_points(layer, algos, *device, report.roofs, !a.no_phases && !stop))
      report.points.push_back(std::move(point));
  }
  if (device->info().kind == DeviceKind::cpu && outcome.table.store_error.empty())
    add_thread_curves(report, outcome.table, Store(db, Store::Open::existing), algos,
                      device->info(), common.cache);
  report.complete = !stop;
  if (stop) report.notes.emplace_back("Stopped early: the same command goes on from here.");
  add_notes(report);
  return report;
}

RooflineReport read_report(const std::string& path) {
  return naming("--from", [&] {
    return roofline_from_json(read_text_file(path, "a file that `roofline --format json` wrote"),
                              path);
  });
}

// Without a TARGET: the roofs alone, of every ISA this CPU has.
int show_roofs(const RooflineArguments& a) {
  const CommonOptions& common = a.tuning.common;
  if (!a.html.empty() || !a.svg.empty())
    throw InputError(
        "roofline: --html and --svg draw points: expected a TARGET too, as in `convlab roofline "
        "resnet18 --html roofline.html`");
  Output output(common.output);
  Report report;
  if (common.device.kind == DeviceKind::cuda) {
    const std::unique_ptr<Device> device = open_device(common);
    add_roofs(report, device->info().isa, find_roofs(*device, db_path(common), a.remeasure));
    report.provenance = provenance(*device);
  } else {
    // The last device made decides the process's ISA: the best.
    for (const std::string& isa : supported_isas()) {
      const std::unique_ptr<Device> device =
          make_cpu_device({.threads = common.threads, .isa = isa});
      add_roofs(report, isa, find_roofs(*device, db_path(common), a.remeasure));
      report.provenance = provenance(*device);
    }
  }
  output.write(render(report, common.format));
  return 0;
}

int run(const RooflineArguments& a) {
  const CommonOptions& common = a.tuning.common;
  if (!a.from.empty() && !common.targets.empty())
    throw InputError("roofline: --from has its points already: drop it, or the TARGET");
  if (!a.from.empty() && (a.measure || a.remeasure))
    throw InputError("roofline: --from has its points already: drop it, or what measures them");
  if (a.from.empty() && common.targets.empty()) return show_roofs(a);
  Output output(common.output), svg(a.svg, "--svg"), html(a.html, "--html");
  if (!a.html.empty()) require_chart_library();
  if (!a.svg.empty() && !gnuplot("")) throw EnvironmentError(fmt::format("--svg: {}", no_gnuplot));
  RooflineReport report = a.from.empty() ? gather(a) : read_report(a.from);
  if (report.points.empty() && stop_on_interrupt()) {
    say("stopped before a layer was measured: the same command goes on from here");
    return interrupted_exit_code;
  }
  if (common.format == Format::json) {
    output.write(to_json(report));
  } else if (common.format == Format::table) {
    const std::optional<std::string> chart = roofline_chart(report);
    if (!chart) report.notes.emplace_back(no_gnuplot);
    output.write((chart ? *chart + "\n" : "") + render(roofline_table(report), Format::table));
  } else {
    output.write(render(roofline_table(report), common.format));
  }
  if (!a.html.empty()) html.write(roofline_html(report));
  if (!a.svg.empty()) svg.write(roofline_svg(report).value());
  return stop_on_interrupt() ? interrupted_exit_code : 0;
}

}  // namespace

VerbAction declare_roofline(CLI::App& app) {
  const auto a = std::make_shared<RooflineArguments>();
  CommonOptions& common = a->tuning.common;
  add_choice(
      app, a->tuning,
      "A net (resnet18), a convolution (mb1ic64ih56oc64oh56kh3ph1), or @FILE with one a line");
  add_flag(app, "--measure", a->measure,
           "Measure what the store does not know, and keep it there, as `tune` does");
  add_flag(app, "--remeasure", a->remeasure, "Measure the machine's roofs again");
  add_flag(app, "--no-phases", a->no_phases, "Run nothing: leave out the time of each phase");
  add_text(app, "--html", a->html, "Also write one self-contained page with all charts", "FILE");
  add_svg(app, a->svg, "Also write the chart as SVG (gnuplot)");
  add_text(app, "--from", a->from, "Take the points from what --format json wrote before", "FILE");
  add_output(app, common, {"table", "csv", "json", "md"});
  add_db(app, common);
  set_footer(
      app,
      "How far each layer and algorithm is from what this machine can do. Without a TARGET: the\n"
      "machine's roofs, measured once and kept in the store. With one: the best of each algorithm\n"
      "as `tune` measured it, under its roof: min(peak, bandwidth x executed FLOPs per byte) of\n"
      "each level that its bytes go through. A point above its roof is an error, and says so.\n\n"
      "Examples:\n"
      "  convlab roofline                                   this machine's roofs\n"
      "  convlab roofline --remeasure --threads 1\n"
      "  convlab roofline resnet18 --html resnet18.html     after `convlab tune resnet18`\n"
      "  convlab roofline mb1ic64ih56oc64oh56kh3ph1 --measure --pass fwd\n"
      "  convlab roofline alexnet --batch 1,16 --format json --output alexnet.json\n"
      "  convlab roofline --from alexnet.json --svg alexnet.svg");
  return [a] { return run(*a); };
}

}  // namespace convlab
