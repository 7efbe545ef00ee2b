#include <fmt/format.h>

#include <memory>

#include "bench/options/tune_options.h"
#include "bench/options/work.h"
#include "bench/output.h"
#include "bench/reports/tune_report.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"

namespace convlab {
namespace {

int run(const TuneArguments& a) {
  require_work(a.common, "tune", "a net, a problem or @FILE, as in `convlab tune resnet18`");
  const bool runs = a.tune.mode != TuneMode::heuristic;
  if (!runs && a.tune.budget_s)
    throw InputError("--mode heuristic runs nothing, so --budget has nothing to bound: drop one");
  Output output(a.common.output);
  const TuneOutcome outcome = run_tuning(a, runs ? db_path(a.common) : "");
  output.write(render(outcome.table, a.common.format, a.common.wide));
  if (const std::string note = unsure_note(outcome.table, true); !note.empty()) say(note);
  return outcome.interrupted ? interrupted_exit_code : exit_code(outcome.table);
}

}  // namespace

VerbAction declare_tune(CLI::App& app) {
  const auto a = std::make_shared<TuneArguments>();
  add_tuning(app, *a);
  add_from(app, a->common);
  add_layer(app, a->common);
  add_seconds(app, "--budget", a->tune.budget_s,
              "Wall clock for the run, from its start: 90, 60s, 5m, 1h. Spent where most may be "
              "gained; prints what gain may remain");
  add_parsed(
      app, "--shard", [a](const std::string& text) { a->tune.shard = parse_shard(text); },
      "Only the I-th of N parts, 1/4 to 4/4: as many equal machines tune one each, and `convlab db "
      "merge` joins their stores",
      "I/N");
  add_flag(app, "--fresh", a->tune.fresh, "Measure again what the store knows, and replace it");
  add_flag(app, "--retry-failed", a->tune.retry_failed,
           "Run again what the store knows to have failed or timed out");
  add_wide(app, a->common, "config, layouts, packing, error, workspace and the rest");
  add_output(app, a->common, {"table", "csv", "json", "md", "hpp"});
  add_db(app, a->common);
  set_footer(
      app,
      "Races every algorithm, config and layout on each layer and pass, each checked against the\n"
      "reference before it is timed, and prints who is fastest. Every outcome is in the store as\n"
      "soon as it is known: Ctrl-C prints what is done, and the same command goes on from "
      "there. Exits 1 when no row has an algorithm.\n\n"
      "Examples:\n"
      "  convlab tune resnet18 --batch 1\n"
      "  convlab tune resnet18 --layer layer1.0.conv1 --wide\n"
      "  convlab tune vgg16 --batch 1,16 --pass fwd --format csv --output vgg16.csv\n"
      "  convlab tune mb1ic64ih56oc64oh56kh3ph1 --max-error 1e-6 --workspace-max 16M\n"
      "  convlab tune deconv:mb1ic64ih28oc32kh2sh2        a transposed convolution\n"
      "  convlab tune lstm:l1t32mb16dhc512 --pass fwd     a recurrent layer, as for inference\n"
      "  convlab tune @layers.txt --exclude vendor --budget 60s\n"
      "  convlab tune --from net.log                what a program ran, from its oneDNN log\n"
      "  convlab tune resnet50 --mode heuristic     without running anything\n"
      "  convlab tune resnet50 --shard 2/4 --db second.db   on the second of four machines\n\n"
      "Columns: ms is one run's median, filter packed and layouts converted beforehand (pack_ms),\n"
      "~ a prediction of what was never run; × onednn the time of oneDNN's best algorithm over "
      "the\n"
      "chosen's; verdict WIN, TIE (the deterministic one, then the one with less workspace), "
      "ONLY,\n"
      "UNSURE (measured, but too little or too disturbed to tell) or NONE; next best the\n"
      "runner-up's time over the chosen's with its 95% interval, perhaps another config of the\n"
      "same algorithm. Equal layers are one row, # how many. With --wide, mad_% is the spread of\n"
      "the samples, and eff_gflops counts direct convolution's work. Of a log with times, log_ms\n"
      "is what all runs of the row took there, and convlab_ms # times ms.");
  return [a] { return run(*a); };
}

}  // namespace convlab
