#include <memory>

#include "bench/output.h"
#include "bench/tune_options.h"
#include "bench/tune_report.h"
#include "bench/verbs.h"
#include "conv/error.h"

namespace convlab {
namespace {

int run(const TuneArguments& a) {
  if (a.common.targets.empty())
    throw InputError(
        "tune: no target: expected a net, a problem or @FILE, as in "
        "`convlab tune resnet18`");
  const bool runs = a.tune.mode != TuneMode::heuristic;
  if (!runs && a.tune.budget_s)
    throw InputError("--mode heuristic runs nothing, so --budget has nothing to bound: drop one");
  Output output(a.common.output);
  const TuneOutcome outcome = run_tuning(a, runs ? db_path(a.common) : "");
  output.write(render(outcome.table, a.common.format));
  return outcome.interrupted ? interrupted_exit_code : 0;
}

}  // namespace

VerbAction declare_tune(CLI::App& app) {
  const auto a = std::make_shared<TuneArguments>();
  add_tuning(app, *a);
  add_seconds(app, "--budget", a->tune.budget_s,
              "Wall clock for the run: 90, 60s, 5m, 1h. Spent where most may be gained; prints "
              "what gain may remain");
  add_flag(app, "--fresh", a->tune.fresh, "Measure again what the store knows, and replace it");
  add_output(app, a->common, {"table", "csv", "json", "md", "hpp"});
  add_db(app, a->common);
  set_footer(
      app,
      "Races every algorithm, config and layout on each layer and pass, each checked against the\n"
      "reference before it is timed, and prints who is fastest. Every outcome is in the store as\n"
      "soon as it is known: Ctrl-C prints what is done, and the same command goes on from "
      "there.\n\n"
      "Examples:\n"
      "  convlab tune resnet18 --batch 1\n"
      "  convlab tune vgg16 --batch 1,16 --pass fwd --format csv --output vgg16.csv\n"
      "  convlab tune mb1ic64ih56oc64oh56kh3ph1 --max-error 1e-6 --workspace-max 16M\n"
      "  convlab tune @layers.txt --exclude vendor --budget 60s\n"
      "  convlab tune resnet50 --mode heuristic     without running anything\n\n"
      "Columns: ms is one run's median, filter packed and layouts converted beforehand (pack_ms);\n"
      "mad_% its spread; eff_gflops counts direct convolution's work; verdict WIN, TIE (within\n"
      "1%: the deterministic one, then the one with less workspace), or ONLY; next_best the\n"
      "runner-up's time over the chosen's with its 95% interval.");
  return [a] { return run(*a); };
}

}  // namespace convlab
