#include <fmt/format.h>

#include <memory>
#include <optional>

#include "autotune/measure/ceilings.h"
#include "autotune/measure/clocks.h"
#include "bench/options/net_options.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "bench/reports/nets/profile.h"
#include "bench/reports/nets/time_report.h"
#include "bench/reports/nets/trace.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"

namespace convlab {

using namespace nets;
namespace {

struct Options {
  NetArguments net;
  std::string trace;
  std::int64_t streams = 1;
  bool profile = false;
  ExchangeArguments exchange;
};

int time(Options o, Ranks& ranks) {
  ranks.require_mpirun_for(o.exchange);
  std::optional<Output> output, trace;
  if (ranks.speaks()) output.emplace(o.net.common.output);
  if (ranks.speaks() && !o.trace.empty()) trace.emplace(o.trace, "--trace");
  ranks.divide_host(o.net.common);
  const std::unique_ptr<Device> device = open_device(o.net.common);
  Algos all;
  append_all_algos(all);
  const NetAlgos algos = all;
  if (o.streams > 1 && device->info().kind == DeviceKind::cpu)
    throw InputError(
        "--streams: a CPU works on one thing after the other: expected a card, as in `--device "
        "cuda --streams 2`");
  if (o.streams > 1 && ranks.size() > 1)
    throw InputError("--streams: expected one a rank: drop it, or drop mpirun");
  for (std::int64_t& batch : o.net.common.batches) batch = ranks.share(batch);
  const PlannedNet net = ranks.planned_net(o.net, "time", algos, *device);
  ranks.begin();
  if (!net.advice.empty()) say(net.advice);

  ClockWatch clocks(device->info());
  Progress progress;
  const NetTimes times = time_net(net.graph, net.plan, algos, *device,
                                  {.iterations = o.net.iterations,
                                   .seed = o.net.common.seed,
                                   .streams = o.streams,
                                   .communicator = ranks.communicator(),
                                   .exchange = ranks.exchange(o.exchange, *device),
                                   .counters = o.profile},
                                  progress, stop_on_interrupt());
  if (!ranks.speaks()) return times.interrupted ? interrupted_exit_code : 0;
  const std::vector<StepInfo> steps = describe_steps(net.graph, net.plan, algos, *device);
  TimedNet timed{net.graph, net.plan, steps, times, provenance(*device), o.net.common.wide};
  for (auto& field : clocks.fields()) timed.provenance.fields.push_back(field);
  // The bandwidth to compare with for layers that mostly read their weights.
  timed.provenance.fields.emplace_back(
      "memory_read", fmt::format("{:.1f} GB/s", ceilings_of(*device).memory_bandwidth / 1e9));
  std::optional<Profile> profile;
  if (o.profile) profile = profile_net(timed, algos, *device);
  output->write(render(timed, o.net.common.format, profile ? &*profile : nullptr));
  if (trace) trace->write(render_trace(timed));
  return times.interrupted ? interrupted_exit_code : 0;
}

int run(const Options& o) {
  Ranks ranks;
  return ranks.run("time", [&] { return time(o, ranks); });
}

}  // namespace

VerbAction declare_time(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  add_net_arguments(app, o->net);
  add_plan_file(app, o->net);
  add_iterations(app, o->net);
  add_wide(app, o->net.common, "executed GFLOP/s, bytes and layouts");
  add_text(app, "--trace", o->trace,
           "A timeline of the first step-by-step iterations, for ui.perfetto.dev: one row for the "
           "host, one for the stream of steps, each of which all threads run together",
           "FILE");
  add_number(app, "--streams", o->streams, 1, 64,
             "So many nets side by side, each with its own weights, batch and stream of a card; "
             "images/s are of all, the table is of one alone; default: 1");
  add_exchange(app, o->exchange);
  add_flag(app, "--profile", o->profile,
           "Where the time goes by kernel and by layer, and what to tune next");
  add_output(app, o->net.common, {"table", "csv", "json", "md"});
  set_footer(
      app,
      "Trains on random data (or, with --forward-only, infers) and prints what each step took,\n"
      "forward, backward_data, backward_filter and update. Two measurements: whole iterations\n"
      "undisturbed, from which images/s come, then as many with a pause around each step.\n"
      "Algorithms and layouts come from the tuning store; tune first for the best.\n\n"
      "Examples:\n"
      "  convlab time resnet18 --batch 16\n"
      "  convlab time resnet18 --batch 16 --profile\n"
      "  convlab time vgg16 --forward-only --format csv --output vgg16.csv\n"
      "  convlab plan resnet18 --batch 16 --format json --output plan.json\n"
      "  convlab time resnet18 --plan plan.json\n"
      "  convlab time googlenet --batch 8 --trace googlenet.json   for ui.perfetto.dev\n"
      "  convlab time model.onnx --forward-only   your own net\n"
      "  mpirun -n 2 convlab time alexnet --batch 64   each rank half of the batch\n\n"
      "The iteration's parts: t_io makes the batch on the host (random, so left out of the "
      "total),\n"
      "t_h2d copies it to the device, t_f is forward with the loss, t_b both backward passes,\n"
      "t_u the update (SGD with momentum). Under mpirun t_comm is the exchange of gradients, of\n"
      "which backward hides a part. The table is of rank 0.");
  return [o] { return run(*o); };
}

}  // namespace convlab
