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
  require_work(a.common, "bench", "a problem, as in `convlab bench mb1ic64ih56oc64oh56kh3ph1`");
  Output output(a.common.output);
  const TuneOutcome outcome = run_tuning(a, "");
  output.write(render_candidates(outcome.table, a.common.format, a.common.wide));
  if (const std::string note = unsure_note(outcome.table, false); !note.empty()) say(note);
  return outcome.interrupted ? interrupted_exit_code : exit_code(outcome.table);
}

}  // namespace

VerbAction declare_bench(CLI::App& app) {
  const auto a = std::make_shared<TuneArguments>();
  add_tuning(app, *a);
  add_from(app, a->common);
  add_layer(app, a->common);
  add_wide(app, a->common, "layouts, packing, GFLOP/s, workspace and the rest");
  add_output(app, a->common, {"table", "csv", "json", "md"});
  set_footer(
      app,
      "Measures now, whatever the store knows, and leaves the store alone. Rows stand best first;\n"
      "~ marks a prediction of what was never run. Exits 1 when no row has an algorithm.\n\n"
      "Examples:\n"
      "  convlab bench mb1ic64ih56oc64oh56kh3ph1 --pass fwd\n"
      "  convlab bench resnet18 --layer conv1 --wide\n"
      "  convlab bench rnn:t64mb4dhc512 --exclude stepwise\n"
      "  convlab bench --from net.log --pass fwd\n"
      "  convlab bench mb1ic64ih56oc64oh56kh3ph1 --algos winograd,onednn --mode exhaustive\n"
      "  convlab bench mb8ic256ih14oc256oh14kh3ph1 --cache cold --threads 1 --format csv");
  return [a] { return run(*a); };
}

}  // namespace convlab
