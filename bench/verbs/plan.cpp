#include <limits>
#include <memory>

#include "autotune/measure/clocks.h"
#include "bench/options/net_options.h"
#include "bench/output.h"
#include "bench/reports/nets/plan_report.h"
#include "bench/verbs/verbs.h"

namespace convlab {

using namespace nets;
namespace {

struct Options {
  NetArguments net;
  bool no_audit = false;
};

int run(const Options& o) {
  const CommonOptions& common = o.net.common;
  Output output(common.output);
  const std::unique_ptr<Device> device = open_device(common);
  Algos all;
  append_all_algos(all);
  const NetAlgos algos = all;
  const PlannedNet net = planned_net(o.net, "plan", algos, *device);
  const std::vector<StepInfo> steps = describe_steps(net.graph, net.plan, algos, *device);
  PlannedReport report{.graph = net.graph,
                       .plan = net.plan,
                       .steps = steps,
                       .audit = {},
                       .unlimited_ms = {},
                       .provenance = provenance(*device),
                       .wide = o.net.common.wide,
                       .cache = common.cache};
  ChooseOptions unlimited = choose_options(o.net, *device);
  unlimited.workspace_max = std::numeric_limits<std::int64_t>::max();
  report.unlimited_ms = choose_by_store(net.graph, o.net, unlimited, algos, *device).plan.ms();
  if (!net.advice.empty()) say(net.advice);
  // The file holds only the plan, so the net is not run.
  if (common.format != Format::json && !o.no_audit) {
    ClockWatch clocks(device->info());
    Progress progress;
    report.audit = time_net(net.graph, net.plan, algos, *device,
                            {.iterations = o.net.iterations, .seed = common.seed}, progress,
                            stop_on_interrupt());
    for (auto& field : clocks.fields()) report.provenance.fields.push_back(field);
  }
  output.write(render(report, common.format));
  return report.audit && report.audit->interrupted ? interrupted_exit_code : 0;
}

}  // namespace

VerbAction declare_plan(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  add_net_arguments(app, o->net);
  add_iterations(app, o->net);
  add_wide(app, o->net.common, "the passes' parts and conversions");
  add_flag(app, "--no-audit", o->no_audit, "Only choose; run nothing");
  add_output(app, o->net.common, {"table", "csv", "json", "md"});
  set_footer(
      app,
      "Chooses every convolution's algorithm and every step's layouts together, so that the whole\n"
      "net takes least time, converting layouts and packing filters included, under one limit on\n"
      "workspace and packed filters (by default inference takes little more than weights and\n"
      "activations, training a sixth of them on top, and 96 MiB at least; --workspace-max 1T "
      "frees\n"
      "it). Then runs the net and says whether that came true, and which steps behave otherwise\n"
      "inside the net than alone. --format json is the plan file that `convlab time --plan` "
      "takes,\n"
      "and runs nothing.\n\n"
      "Expected times of convolutions are those of the tuning store, measured alone with a hot\n"
      "cache; in a net they are often 2% to 38% off. --cache cold expects by times measured with "
      "a\n"
      "cold cache; where the store lacks them, a line says which `convlab tune --cache cold`\n"
      "command measures them.\n\n"
      "Examples:\n"
      "  convlab plan resnet18 --batch 16\n"
      "  convlab plan googlenet --forward-only --no-audit\n"
      "  convlab plan vgg16 --batch 16 --workspace-max 64M      what memory costs in time\n"
      "  convlab plan resnet18 --batch 16 --format json --output plan.json\n\n"
      "Columns: expected ms, ~ where parts are predictions and not from the tuning store, "
      "measured,\n"
      "and ratio, one over the other. With --wide fwd, bwd_d, bwd_w are convolutions' expected ms\n"
      "with packing, other what is not a convolution, convert bringing layouts together.");
  return [o] { return run(*o); };
}

}  // namespace convlab
