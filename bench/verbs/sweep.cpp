#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "autotune/measure/ceilings.h"
#include "bench/options/targets.h"
#include "bench/options/tune_options.h"
#include "bench/options/work.h"
#include "bench/output.h"
#include "bench/reports/gnuplot.h"
#include "bench/reports/sweep_report.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"

namespace convlab {
namespace {

struct Options {
  TuneArguments tuning;
  std::vector<std::string> axes;
  std::string svg;
};

// Points that share one device and one --layout.
struct Group {
  CommonOptions common;
  std::vector<std::size_t> points;
};

std::vector<Group> groups(const CommonOptions& common, const std::vector<SweepPoint>& points) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < points.size(); ++i) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.common.threads == points[i].threads && g.common.layout == points[i].layout;
    });
    if (group == groups.end()) {
      group = groups.insert(group, {common, {}});
      group->common.threads = points[i].threads;
      group->common.layout = points[i].layout;
    }
    group->points.push_back(i);
  }
  return groups;
}

std::vector<TuneItem> items_of(const Group& group, const std::vector<SweepPoint>& points,
                               const std::vector<Pass>& passes, const DeviceInfo& device) {
  std::vector<TuneItem> items;
  for (const std::size_t i : group.points) {
    CommonOptions one = group.common;
    one.from.clear();
    one.passes = passes;
    one.targets = {points[i].layer.text()};
    one.dtype = points[i].layer.problem.dtype();
    one.batches.clear();
    for (TuneItem& item : resolve_targets(one, device)) items.push_back(std::move(item));
  }
  return items;
}

// The one problem of a log. Its passes and type become those of the sweep.
LayerProblem base_of_log(CommonOptions& common, Provenance& origin) {
  const Work work = resolve_work(common, open_device(common)->info());
  origin.fields = work.about;
  const LayerProblem& first = work.items.front().layer;
  common.passes.clear();
  common.dtype = first.problem.dtype();
  for (const Pass pass : all_passes)
    for (const TuneItem& item : work.items) {
      if (item.layer.text() != first.text())
        throw InputError(fmt::format(
            "sweep: --from: the log holds {} and {}: expected one problem: `convlab list --from "
            "FILE --format problems` lists them",
            first.text(), item.layer.text()));
      if (item.layer.problem.dtype() != common.dtype)
        throw InputError(
            fmt::format("sweep: --from: the log has runs in {} and {}: choose by "
                        "--dtype",
                        to_string(common.dtype), to_string(item.layer.problem.dtype())));
      if (item.layer.pass() == pass && (common.passes.empty() || common.passes.back() != pass))
        common.passes.push_back(pass);
    }
  for (const TuneItem& item : work.items)
    if (const std::string extras = extras_of(item.layer.problem); !extras.empty())
      say(fmt::format("sweep: {} without its {}", first.text(), extras));
  return parse_layer(first.text());
}

Sweep planned_sweep(const Options& o) {
  CommonOptions common = o.tuning.common;
  if (common.from.empty() && common.targets.size() != 1)
    throw InputError(
        "sweep: expected one problem, as in "
        "`convlab sweep mb1ic64ih56oc64oh56kh3ph1 -a n=1:256:*2`");
  require_work(common, "sweep", "one problem");
  Sweep sweep;
  if (common.from.empty())
    sweep.base = naming("sweep", [&] { return parse_one_problem(common.targets.front()); });
  else
    sweep.base = base_of_log(common, sweep.provenance);
  if (o.axes.empty())
    throw InputError("sweep: nothing to vary: expected an axis, as in -a n=1:256:*2 or -a r=1,3,5");
  Problem& base = sweep.base.problem;
  base.set_dtype(common.dtype);
  naming("--dtype", [&] { validate(base); });
  const Swept swept = base.conv() ? Swept::convolution : Swept::recurrent_layer;
  for (const std::string& text : o.axes)
    sweep.axes.push_back(naming("--axis", [&] { return parse_axis(text, swept); }));
  if (common.batches.size() > 1)
    throw InputError("sweep: --batch takes one size here: expected -a n=... to vary it");
  if (!common.batches.empty() && std::any_of(sweep.axes.begin(), sweep.axes.end(),
                                             [](const Axis& axis) { return axis.name == "n"; }))
    throw InputError(fmt::format("sweep: --batch {} and -a n=... both set the batch: drop one",
                                 common.batches.front()));
  if (!common.batches.empty()) base.set_batch(common.batches.front());
  sweep.points = naming("--axis", [&] {
    return sweep_points({{}, sweep.base, common.threads, common.layout}, sweep.axes);
  });
  sweep.passes = common.passes;
  sweep.layers.resize(sweep.points.size() * sweep.passes.size());
  sweep.wide = common.wide;
  sweep.predicted = o.tuning.tune.mode == TuneMode::heuristic;
  return sweep;
}

int run(const Options& o) {
  Sweep sweep = planned_sweep(o);
  Output output(o.tuning.common.output);
  std::optional<Output> svg;
  if (!o.svg.empty()) {
    if (!gnuplot("")) throw EnvironmentError(fmt::format("--svg: {}", no_gnuplot));
    svg.emplace(o.svg, "--svg");
  }

  // Checks every device and problem before the first is measured.
  struct Part {
    TuneArguments arguments;
    std::vector<std::size_t> points;
    std::unique_ptr<Device> device;
    std::vector<TuneItem> items;
  };
  std::vector<Part> parts;
  for (Group& group : groups(o.tuning.common, sweep.points)) {
    Part part{{group.common, o.tuning.tune}, group.points, open_device(group.common), {}};
    part.items = items_of(group, sweep.points, sweep.passes, part.device->info());
    parts.push_back(std::move(part));
  }

  const std::size_t passes = sweep.passes.size();
  TuningPart progress{.items_before = 0, .items_total = sweep.layers.size()};
  std::string db = sweep.predicted ? "" : db_path(o.tuning.common);
  const Provenance origin = sweep.provenance;
  bool interrupted = false, stored = true;
  for (Part& part : parts) {
    if (interrupted) break;
    TuneOutcome outcome;
    try {
      outcome = run_tuning(part.arguments, part.items, *part.device, db, progress);
    } catch (const CeilingsInterrupted&) {
      if (progress.items_before == 0) throw;
      interrupted = true;
      break;
    }
    interrupted = outcome.interrupted;
    if (!outcome.table.store_error.empty()) {
      stored = false;
      db.clear();  // the other points continue without a store
    }
    for (std::size_t i = 0; i < part.points.size(); ++i)
      std::move(outcome.table.layers.begin() + std::ptrdiff_t(i * passes),
                outcome.table.layers.begin() + std::ptrdiff_t((i + 1) * passes),
                sweep.layers.begin() + std::ptrdiff_t(part.points[i] * passes));
    sweep.provenance = std::move(outcome.table.provenance);
    if (outcome.table.disturbances.others >= sweep.disturbances.others)
      sweep.disturbances = outcome.table.disturbances;
    progress.items_before += part.items.size();
  }
  for (const auto& field : origin.fields) sweep.provenance.fields.push_back(field);
  sweep.complete = !interrupted;

  const Format format = o.tuning.common.format;
  if (svg) svg->write(gnuplot(svg_chart_script(sweep)).value_or(""));
  const auto chart = [&] {
    return text_chart(text_chart_script(sweep, int(terminal_columns(terminal_width))));
  };
  output.write((format == Format::table ? chart() : "") + render(sweep, format));
  return interrupted ? interrupted_exit_code : stored ? 0 : 3;
}

}  // namespace

VerbAction declare_sweep(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  add_tuning(app, o->tuning,
             "The problem that is varied: mb1ic64ih56oc64oh56kh3ph1, deconv:…, lstm:t32mb16dhc512");
  add_from(app, o->tuning.common);
  add_texts(
      app, "-a,--axis", o->axes,
      "The axis to vary: n c d h w k g t r s stride dilation threads dtype layout, of a recurrent "
      "layer t n i h l threads dtype, each with a list or range. Several axes make every "
      "combination; along the "
      "first the charts and crossovers "
      "run",
      "NAME=VALUES");
  add_flag(app, "--fresh", o->tuning.tune.fresh,
           "Measure again what the store knows, and replace it");
  add_flag(app, "--retry-failed", o->tuning.tune.retry_failed,
           "Run again what the store knows to have failed or timed out");
  add_svg(app, o->svg, "The charts as a picture; needs gnuplot");
  add_wide(app, o->tuning.common, "configs, layouts and GFLOP/s");
  add_output(app, o->tuning.common, {"table", "csv", "json", "md"});
  add_db(app, o->tuning.common);
  set_footer(
      app,
      "Races every algorithm at every point, as tune does, and prints the charts, the winner of\n"
      "each point, who wins where, and what a plan tuned at one value costs at the others.\n"
      "Results are stored as they are measured: Ctrl-C prints what is done, and the same command\n"
      "goes on from there.\n\n"
      "Ranges: 1:256:*2 doubles from 1 to 256, 7:56:+7 goes by 7, 1:8 by 1.\n\n"
      "h is H and W, w is W alone; r is R and S, s is S alone; d is D and t is T, of a filter's\n"
      "depth. stride and dilation are of all directions; a dilation of 1 is dense (dh0). r, "
      "stride\n"
      "and dilation are of depth too where the problem has it equal there. c of a depthwise\n"
      "convolution is g and k too. Padding that keeps the size goes on doing so, any other stays.\n"
      "A recurrent layer's h is H, and I too where they are equal.\n\n"
      "Examples:\n"
      "  convlab sweep mb1ic64ih56oc64oh56kh3ph1 -a n=1:256:*2 --pass fwd\n"
      "  convlab sweep --from one_layer.log -a n=1:64:*2\n"
      "  convlab sweep mb8ic64ih28oc64oh28kh3ph1 -a r=1,3,5,7,9,11 --svg filters.svg\n"
      "  convlab sweep mb8ic64ih28oc64oh28kh3ph1 -a c=16:512:*2 -a dtype=f32,f64 --format csv\n"
      "  convlab sweep mb8ic64ih28oc64oh28kh3ph1 -a threads=1:8 --algos winograd,direct\n"
      "  convlab sweep mb1ic256ih28oc256oh28kh3ph1 -a g=1:256:*2 --pass fwd\n"
      "  convlab sweep g96mb1ic96ih56oc96oh56kh7ph3 -a r=3:31:+4 --pass fwd\n"
      "  convlab sweep mb1ic512ih65oc512oh65kh3ph1 -a dilation=1,2,4,12\n"
      "  convlab sweep mb1ic64id8ih28oc64od8oh28kd3kh3pd1ph1 -a d=1:16:*2\n"
      "  convlab sweep deconv:mb1ic256ih14oc128oh28kh2sh2ph0 -a h=7,14,28\n"
      "  convlab sweep rnn:t64dhc512 -a n=1:256:*2 --pass fwd");
  return [o] { return run(*o); };
}

}  // namespace convlab
