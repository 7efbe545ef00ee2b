#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "autotune/measure/clocks.h"
#include "bench/options/net_options.h"
#include "bench/options/network_options.h"
#include "bench/options/ranges.h"
#include "bench/options/tune_options.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "bench/reports/gnuplot.h"
#include "bench/reports/nets/scaling_report.h"
#include "bench/reports/nets/worker_times.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/types/arithmetic_type.h"
#include "nets/data/loader.h"
#include "nets/distributed/measure.h"

namespace convlab {

using namespace nets;
namespace {

constexpr double s_per_ms = 1e-3;

struct Options {
  NetArguments net;
  NetworkArguments network;
  std::vector<std::int64_t> workers{1, 2, 4, 8, 16, 32, 64};
  std::vector<Strategy> strategies{std::begin(all_strategies), std::end(all_strategies)};
  std::optional<std::int64_t> bucket_bytes;
  std::string times, data, trace, svg;
  std::optional<std::int64_t> data_threads;  // default: 1
};

std::vector<Strategy> parse_strategies(const std::string& text) {
  std::vector<Strategy> strategies;
  for (const std::string& item : split_list(text)) {
    const Strategy strategy = parse_strategy(item);
    if (std::find(strategies.begin(), strategies.end(), strategy) != strategies.end())
      throw InputError(fmt::format("'{}' stands twice in '{}'", item, text));
    strategies.push_back(strategy);
  }
  return strategies;
}

// Seconds in which the loader makes a batch, when nothing else runs.
double loading_s(const Options& o, const Dataset& images, const Graph& graph, DType dtype,
                 Device& device, Progress& progress) {
  using Clock = std::chrono::steady_clock;
  const Shape& x = graph.nodes().front().shape;
  if (images.size() < graph.batch())
    throw InputError(fmt::format("--data: {} images: expected {} or more, a batch", images.size(),
                                 graph.batch()));
  Transform transform = usual_transform(images, x.c, x.h, x.w, Split::train);
  transform.frames = x.d;
  DataLoader loader(images, transform,
                    {.batch = graph.batch(),
                     .shuffle = true,
                     .drop_last = true,
                     .seed = o.net.common.seed,
                     .threads = int(o.data_threads.value_or(1)),
                     .dtype = arithmetic_type(dtype)},
                    device);
  // The first batches, made ahead of their use, would be counted as made in no time.
  constexpr std::int64_t before = 3;
  constexpr double long_enough_s = 2;
  std::int64_t epoch = 0, batches = 0;
  loader.start(epoch);
  Clock::time_point begin = Clock::now();
  for (;;) {
    const double s = std::chrono::duration<double>(Clock::now() - begin).count();
    if (batches > before && s > long_enough_s) return s / double(batches - before);
    if (stop_on_interrupt()) throw Interrupted{};
    progress.bar(std::size_t(std::min(s / long_enough_s, 1.0) * 100), 100, "loading images");
    if (!loader.next()) {
      loader.start(++epoch);
      continue;
    }
    if (++batches == before) begin = Clock::now();
  }
}

bool measures_network(const Options& o) { return !o.network.latency_s || !o.network.bytes_per_s; }

// A strategy's iterations, by all ranks.
MeasuredExchange measured_exchange(const Options& o, Strategy strategy, const PlannedNet& net,
                                   const NetAlgos& algos, Device& device, const Ranks& ranks,
                                   Progress& progress, std::vector<std::string>& notes) {
  const ExchangeArguments how{.strategy = strategy, .bucket = o.bucket_bytes};
  progress.line(fmt::format("{}:", to_string(strategy)));
  const NetTimes times = time_net(net.graph, net.plan, algos, device,
                                  {.iterations = o.net.iterations,
                                   .seed = o.net.common.seed,
                                   .communicator = ranks.communicator(),
                                   .exchange = ranks.exchange(how, device),
                                   .step_by_step = false},
                                  progress, stop_on_interrupt());
  if (times.interrupted) throw Interrupted{};
  if (const std::string line = unrest(times); !line.empty())
    notes.push_back(fmt::format("{}: {}", to_string(strategy), line));
  if (!times.exchange_note.empty())
    notes.push_back(fmt::format("{}: {}", to_string(strategy), times.exchange_note));
  const IterationTime typical = times.typical();
  return {strategy, o.bucket_bytes.value_or(times.bucket_bytes), s_per_ms * times.iteration_ms(),
          s_per_ms * typical.communicated, s_per_ms * typical.exposed};
}

// Each is collective.
void require_same_measurements(const Options& o, Ranks& ranks) {
  std::string names;
  for (const Strategy strategy : o.strategies) names += fmt::format(" {}", to_string(strategy));
  ranks.agree();
  require_same(*ranks.communicator(), "--exchange", names.substr(1));
  require_same(*ranks.communicator(), "--bucket",
               o.bucket_bytes ? fmt::format("{} bytes", *o.bucket_bytes) : "none");
  require_same(*ranks.communicator(), "--latency and --bandwidth",
               measures_network(o) ? "not both" : "both");
}

// The others wait for the slowest.
std::string slowest_rank(const Ranks& ranks, double iteration_ms) {
  constexpr double much = 1.05;
  const std::vector<double> all = ranks.communicator()->all_gather(iteration_ms);
  const auto slowest = std::max_element(all.begin(), all.end());
  if (*slowest <= much * all.front()) return "";
  return fmt::format("Rank {} takes {:.0f}% longer than rank 0, whose times these are.",
                     slowest - all.begin(), 100 * (*slowest / all.front() - 1));
}

// What computing and exchanging at once costs either, by training steps beside averages.
Contention measured_contention(const Options& o, const PlannedNet& net, const NetAlgos& algos,
                               Device& device, const Ranks& ranks, const NetTimes& alone,
                               Progress& progress) {
  Communicator& communicator = *ranks.communicator();
  constexpr auto long_enough = std::chrono::milliseconds(500);
  SteadyAverages quiet(communicator);
  std::this_thread::sleep_for(long_enough);
  const double quiet_s = quiet.stop();
  SteadyAverages beside(communicator);
  progress.line("training steps while the network is busy:");
  const NetTimes times = time_net(net.graph, net.plan, algos, device,
                                  {.iterations = o.net.iterations,
                                   .seed = o.net.common.seed,
                                   .communicator = &communicator,
                                   .warmed_up = [&] { beside.count_anew(); },
                                   .step_by_step = false},
                                  progress, stop_on_interrupt());
  const double busy_s = beside.stop();
  if (times.interrupted) throw Interrupted{};
  const auto share = [](double before, double now) {
    constexpr double least = 0.01;
    return std::clamp(before / now, least, 1.0);
  };
  const IterationTime a = alone.typical(), b = times.typical();
  const Contention own{share(a.forward + a.backward, b.forward + b.backward),
                       share(quiet_s, busy_s)};
  return communicator.all_gather(own).front();
}

void set_worker(const Options& o, const NetAlgos& algos, Device& device, Ranks& ranks,
                ScalingTable& table, std::vector<MeasuredExchange>& measured) {
  std::unique_ptr<Dataset> images;  // opened before anything takes long
  if (!o.data.empty())
    images = naming("--data", [&] { return open_dataset(o.data, Split::train); });
  if (ranks.communicator()) require_same_measurements(o, ranks);
  const PlannedNet net = ranks.planned_net(o.net, "scaling", algos, device);
  if (images) naming("--data", [&] { require_frames(net.graph, o.data); });
  ranks.begin();
  if (!net.advice.empty()) say(net.advice);
  table.net = net.graph.name();
  table.dtype = net.plan.dtype;
  ClockWatch clocks(device.info());
  Progress progress;
  std::optional<double> io_s;
  if (images) io_s = loading_s(o, *images, net.graph, net.plan.dtype, device, progress);
  const NetTimes times = time_net(net.graph, net.plan, algos, device,
                                  {.iterations = o.net.iterations,
                                   .seed = o.net.common.seed,
                                   .communicator = ranks.communicator()},
                                  progress, stop_on_interrupt());
  if (times.interrupted) throw Interrupted{};
  table.worker = worker_times(net.graph, net.plan.dtype, times);
  table.worker.io_s = io_s.value_or(0);
  table.provenance = provenance(device);
  for (auto& field : clocks.fields()) table.provenance.fields.push_back(field);
  if (!io_s)
    table.notes.emplace_back(ranks.size() > 1 ? "t_io is left out: batches are random."
                                              : "t_io is left out: --data DIR measures a loader.");
  if (const std::string line = unrest(times); !line.empty()) table.notes.push_back(line);
  if (ranks.size() == 1) return;
  if (const std::string line = slowest_rank(ranks, times.iteration_ms()); !line.empty())
    table.notes.push_back(line);
  if (measures_network(o)) {
    progress.bar(0, 1, "the network");
    table.network = network_of(o.network, measured_link(*ranks.communicator()));
    table.network_measured = true;
  }
  table.contention = measured_contention(o, net, algos, device, ranks, times, progress);
  for (const Strategy strategy : o.strategies)
    measured.push_back(
        measured_exchange(o, strategy, net, algos, device, ranks, progress, table.notes));
}

// Refuses flags about measuring alongside a file of times.
void require_nothing_to_measure(const Options& o) {
  const CommonOptions& c = o.net.common;
  const auto refuse_if = [](bool given, const char* flag) {
    if (given) throw InputError(fmt::format("--times has measured already: drop {}", flag));
  };
  refuse_if(!c.batches.empty(), "--batch");
  refuse_if(c.dtype != DType::f32, "--dtype");
  refuse_if(c.device.kind != DeviceKind::cpu, "--device");
  refuse_if(c.threads > 0, "--threads");
  refuse_if(c.layout != "auto", "--layout");
  refuse_if(c.cache != CacheMode::hot, "--cache");
  refuse_if(o.net.tune.max_error.has_value(), "--max-error");
  refuse_if(o.net.tune.workspace_max.has_value(), "--workspace-max");
  refuse_if(o.net.tune.deterministic, "--deterministic");
  refuse_if(!o.net.tune.algos.empty(), "--algos");
  refuse_if(!o.net.tune.exclude.empty(), "--exclude");
  refuse_if(!o.net.tune.maths.empty(), "--math");
  refuse_if(!c.db.empty(), "--db");
  refuse_if(!o.net.plan_file.empty(), "--plan");
  refuse_if(o.net.iterations > 0, "--iterations");
  refuse_if(!o.data.empty(), "--data");
}

void read_worker(const Options& o, ScalingTable& table) {
  require_nothing_to_measure(o);
  TimedWorker timed = naming("--times", [&] { return read_timed_worker(o.times); });
  const std::vector<std::string>& targets = o.net.common.targets;
  if (!targets.empty() && targets.front() != timed.net)
    throw InputError(fmt::format("--times: '{}' has the times of {}, not of {}: drop one", o.times,
                                 timed.net, targets.front()));
  table.net = timed.net;
  table.dtype = timed.dtype;
  table.worker = std::move(timed.worker);
  table.provenance = command_provenance();
  table.provenance.fields.emplace_back("times", o.times);
  for (auto& field : timed.provenance.fields)
    if (field.first != "convlab" && field.first != "command")
      table.provenance.fields.push_back(std::move(field));
  table.notes.emplace_back("t_io is left out: the file's is of random data.");
}

// What ranks measure is their own: random batches, and sums around a ring.
void require_fits_ranks(const Options& o) {
  if (!o.times.empty()) throw InputError("--times measures nothing: drop it, or mpirun");
  if (!o.data.empty())
    throw InputError("--data: under mpirun batches are random: drop it, or mpirun");
  if (o.network.network.topology != Topology::ring)
    throw InputError(
        fmt::format("--topology {}: ranks under mpirun sum around a ring: drop it, or "
                    "mpirun",
                    to_string(o.network.network.topology)));
}

int scaling(Options o, Ranks& ranks) {
  if (o.data_threads && o.data.empty())
    throw InputError("--data-threads is about the loader of --data: drop it, or say --data DIR");
  ScalingTable table;
  table.network = network_of(o.network);
  table.strategies = o.strategies;
  if (ranks.size() > 1) {
    require_fits_ranks(o);
    ranks.divide_host(o.net.common);
    const auto at = std::lower_bound(o.workers.begin(), o.workers.end(), ranks.size());
    if (at == o.workers.end() || *at != ranks.size()) o.workers.insert(at, ranks.size());
  }
  std::optional<Output> output, trace, svg;
  if (ranks.speaks()) output.emplace(o.net.common.output);
  if (ranks.speaks() && !o.trace.empty()) trace.emplace(o.trace, "--trace");
  if (ranks.speaks() && !o.svg.empty()) {
    if (!gnuplot("")) throw EnvironmentError(fmt::format("--svg: {}", no_gnuplot));
    svg.emplace(o.svg, "--svg");
  }
  const std::atomic<bool>& stop = stop_on_interrupt();
  std::vector<MeasuredExchange> measured;
  try {
    if (o.times.empty()) {
      const std::unique_ptr<Device> device = open_device(o.net.common);
      Algos all;
      append_all_algos(all);
      const NetAlgos algos = all;
      set_worker(o, algos, *device, ranks, table, measured);
    } else {
      read_worker(o, table);
    }
    if (!ranks.speaks()) return 0;
    for (const std::int64_t workers : o.workers)
      for (std::size_t i = 0; i < o.strategies.size(); ++i) {
        if (stop) throw Interrupted{};
        const bool is_measured = !measured.empty() && workers == ranks.size();
        table.points.push_back(
            scaling_point(table.worker,
                          {.workers = workers,
                           .strategy = o.strategies[i],
                           .network = table.network,
                           .contention = table.contention},
                          is_measured ? measured[i].bucket_bytes : o.bucket_bytes));
        if (is_measured) table.points.back().measured = measured[i];
        // Timelines of all rows would be most of the memory, and one number of workers is drawn.
        if (workers != o.workers.back()) table.points.back().simulation.tasks = std::vector<Task>();
      }
  } catch (const Interrupted&) {
    say("interrupted before there was anything to print");
    return interrupted_exit_code;
  }

  const Format format = o.net.common.format;
  if (trace) trace->write(render_trace(table));
  if (svg) svg->write(gnuplot(svg_chart_script(table)).value_or(""));
  const bool charts = format == Format::table && o.workers.size() > 1;
  const auto chart = [&] {
    return text_chart(text_chart_script(table, int(terminal_columns(terminal_width))));
  };
  output->write((charts ? chart() : "") + render(table, format));
  return 0;
}

int run(const Options& o) {
  Ranks ranks;
  return ranks.run("scaling", [&] { return scaling(o, ranks); });
}

}  // namespace

VerbAction declare_scaling(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  CommonOptions& common = o->net.common;
  o->net.training_only = true;
  add_net(app, common, "Images a worker; default: 1");
  add_parsed(
      app, "--workers",
      [o](const std::string& text) {
        o->workers = parse_ranges(text);
        std::sort(o->workers.begin(), o->workers.end());
      },
      "Numbers of workers: 4, 1,2,12 or 1:1024:*2; default: 1:64:*2", "N,...");
  add_parsed(
      app, "--exchange", [o](const std::string& text) { o->strategies = parse_strategies(text); },
      "When gradients are exchanged: overlapped (during backward), after (it), server (during "
      "backward, through one of the workers); default: all",
      "NAME,...");
  add_bytes(app, "--bucket", o->bucket_bytes,
            "Gradients are exchanged once there are so many: 0 (each layer alone), 4M; default: "
            "what makes each row's iteration shortest");
  add_network(app, o->network);
  add_text(app, "--times", o->times,
           "Take the worker's times from this file of `convlab time NET --format json`, of this "
           "machine or another, instead of measuring",
           "FILE");
  add_text(app, "--data", o->data,
           "Measure t_io: how fast the loader makes batches of these images, synthetic or a "
           "directory as `train` takes it; default: t_io of 0",
           "DIR");
  add_number(app, "--data-threads", o->data_threads, 0, most_data_threads,
             "Threads of that loader; default: 1");
  add_text(app, "--trace", o->trace,
           "A timeline of the iterations with the most workers, for ui.perfetto.dev: its first "
           "ranks, since all are equal, under each exchange",
           "FILE");
  add_svg(app, o->svg, "The chart as a picture; needs gnuplot");
  add_device(app, common);
  add_seed(app, common);
  add_layout(app, common);
  add_cache(app, common);
  add_limits(app, o->net.tune);
  add_algo_choice(app, o->net.tune);
  add_plan_file(app, o->net);
  add_iterations(app, o->net);
  add_output(app, common, {"table", "csv", "json", "md"});
  add_db(app, common);
  set_footer(
      app,
      "Measures one worker as `time` does, and simulates many that train one net together by\n"
      "synchronous SGD: each takes a batch of its own, gradients are averaged, all update alike.\n"
      "Algorithms and layouts come from the tuning store; tune first for the best.\n\n"
      "Examples:\n"
      "  convlab scaling resnet50 --batch 32 --bandwidth 10Gbit\n"
      "  convlab scaling alexnet --batch 128 --workers 1:1024:*2 --svg alexnet.svg\n"
      "  convlab scaling vgg16 --topology hierarchical --workers-per-host 4 --bandwidth 100Gbit\n"
      "  convlab time resnet50 --batch 32 --format json --output there.json    on the machine\n"
      "  convlab scaling --times there.json --latency 5us --workers 8 --trace ranks.json\n"
      "  mpirun -n 4 convlab scaling resnet50 --batch 32       measured beside predicted\n\n"
      "Columns: speedup is images/s over those of one worker alone, % that over the number of\n"
      "workers. t_comm is how long the network is busy, exposed what of it other work does not\n"
      "hide, bucket the bytes that are exchanged at a time. exposed from: from this layer's\n"
      "gradient on, in backward's order, exchanges are late. batch: the least a worker with which\n"
      "the exposed part is at most 5% of the iteration.\n\n"
      "Under mpirun all ranks measure a worker at once, the network's latency and bandwidth, how\n"
      "far computing and exchanging at the same time slow each other, and their iterations under\n"
      "each --exchange, which are printed beside what is predicted for as many workers.\n\n"
      "The model: workers are equal, with the times of one; one exchange at a time; sums and\n"
      "copies on the way cost nothing, nor does computing meanwhile, unless mpirun measured it;\n"
      "batches are made ahead, two at most.");
  return [o] { return run(*o); };
}

}  // namespace convlab
