#include "bench/options/net_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <variant>

#include "bench/json_text.h"
#include "bench/options/targets.h"
#include "bench/options/tune_options.h"
#include "bench/output.h"
#include "bench/reports/nets/net_timing.h"
#include "bench/reports/nets/step_info.h"
#include "bench/reports/report.h"
#include "bench/text.h"
#include "conv/error.h"
#include "conv/text/bytes.h"
#include "conv/text/counted.h"
#include "conv/text/text_file.h"
#include "kernels_cpu/cpu.h"
#include "nets/zoo/zoo.h"

namespace convlab {

using namespace nets;
namespace {

// A command for this net as the flags run it, in shell syntax.
std::string net_command(const std::string& verb, const Graph& graph, const CommonOptions& c,
                        const std::string& mode_flags) {
  const bool model = !c.targets.empty() && is_model(c.targets.front());
  std::string text =
      fmt::format("{}convlab {} {} --batch {}{}", variables_in_force(), verb,
                  model ? shell_word(c.targets.front()) : graph.name(), graph.batch(), mode_flags);
  for (const auto& [name, size] : c.dims)
    text += fmt::format(" --dim {}", shell_word(fmt::format("{}={}", name, size)));
  if (c.dtype != DType::f32) text += fmt::format(" --dtype {}", to_string(c.dtype));
  if (c.device.kind == DeviceKind::cuda) text += fmt::format(" --device cuda:{}", c.device.index);
  if (c.threads > 0) text += fmt::format(" --threads {}", c.threads);
  return text;
}

// The command that measures whatever the plan had to guess.
std::string tune_command(const NetArguments& a, const Graph& graph, const ChooseOptions& o) {
  const CommonOptions& c = a.common;
  std::string text = net_command("tune", graph, c, a.forward_only ? " --pass fwd" : "");
  const auto add = [&text](bool given, const std::string& flag) {
    if (given) text += " " + flag;
  };
  add(c.layout != "auto", fmt::format("--layout {}", c.layout));
  add(c.cache != CacheMode::hot, fmt::format("--cache {}", to_string(c.cache)));
  add(o.max_error.has_value(), fmt::format("--max-error {}", o.max_error.value_or(0)));
  add(o.workspace_max.has_value(), "--workspace-max " + exact_bytes(o.workspace_max.value_or(0)));
  add(o.deterministic, "--deterministic");
  add(!o.algos.empty(), fmt::format("--algos {}", fmt::join(o.algos, ",")));
  add(!o.exclude.empty(), fmt::format("--exclude {}", fmt::join(o.exclude, ",")));
  add(!o.maths.empty(), fmt::format("--math {}", show_maths(a.tune)));
  add(!c.db.empty(), fmt::format("--db {}", shell_word(c.db)));
  return text;
}

NetPlan read_plan(const std::string& file) {
  return naming("--plan", [&] {
    const std::string text = read_text_file(file, "a file of `convlab plan NET --format json`");
    require_json(text, file, "what `convlab plan NET --format json` writes");
    return plan_from_json(text, file);
  });
}

// Refuses flags that choose something the plan has already decided.
void require_nothing_to_choose(const NetArguments& a) {
  const auto refuse_if = [](bool given, const char* flag) {
    if (given) throw InputError(fmt::format("--plan has decided about {}: drop one", flag));
  };
  refuse_if(a.common.layout != "auto", "--layout");
  refuse_if(a.common.cache != CacheMode::hot, "--cache");
  refuse_if(a.tune.max_error.has_value(), "--max-error");
  refuse_if(a.tune.workspace_max.has_value(), "--workspace-max");
  refuse_if(a.tune.deterministic, "--deterministic");
  refuse_if(!a.tune.algos.empty(), "--algos");
  refuse_if(!a.tune.exclude.empty(), "--exclude");
  refuse_if(!a.tune.maths.empty(), "--math");
  refuse_if(!a.common.db.empty(), "--db");
}

// What is wrong with a plan for these flags, and what to do about it; empty if it fits.
std::string plan_fault(const NetPlan& plan, const Graph& graph, const NetArguments& a,
                       const DeviceInfo& device) {
  const bool other_mode = plan.mode == Mode::training ? a.forward_only : a.training_only;
  const Mode mode = !other_mode ? plan.mode : a.forward_only ? Mode::inference : Mode::training;
  const std::string misfit = plan_misfit(plan, graph, device);
  if (misfit.empty() && !other_mode) return "";
  NetPlan on_these_threads = plan;
  on_these_threads.threads = device.threads;
  const bool only_threads = !other_mode && device.kind == DeviceKind::cpu &&
                            plan_misfit(on_these_threads, graph, device).empty();
  return fmt::format(
      "{}: {}make one with `{} --format json`",
      other_mode ? fmt::format("the plan is for {}, not {}", to_string(plan.mode), to_string(mode))
                 : misfit,
      only_threads ? fmt::format("say --threads {}, or ", plan.threads) : "",
      net_command("plan", graph, a.common, mode == Mode::inference ? " --forward-only" : ""));
}

// The file's plan and its net.
PlannedNet net_of_plan(const NetArguments& a, const DeviceInfo& device) {
  require_nothing_to_choose(a);
  NetPlan plan = read_plan(a.plan_file);
  const CommonOptions& c = a.common;
  std::string notes;
  Graph graph = net_of_target(c, c.batches.empty() ? plan.batch : c.batches.front(), &notes);
  std::string fault = plan_fault(plan, graph, a, device);
  if (fault.empty() && c.dtype != DType::f32 && c.dtype != plan.dtype)
    fault = fmt::format("the plan is for {}: drop --dtype", to_string(plan.dtype));
  if (!fault.empty()) throw InputError(fmt::format("{}: {}", a.plan_file, fault));
  return {std::move(graph), std::move(plan), std::move(notes)};
}

// ---- Memory ----

// Memory available to a net: a card's own, or what this machine can give without swapping.
double usable_bytes(const DeviceInfo& device) {
  auto all = double(device.memory_bytes);
  if (device.kind != DeviceKind::cpu) return all;
  // A limit also covers memory that this process already holds.
  if (std::int64_t pages = 0, resident = 0; std::ifstream("/proc/self/statm") >> pages >> resident)
    all -= double(resident * sysconf(_SC_PAGESIZE));
  std::ifstream meminfo("/proc/meminfo");
  double kib = 0;
  for (std::string word; meminfo >> word;)
    if (word == "MemAvailable:" && meminfo >> kib) return std::min(all, 1024 * kib);
  return all;
}

// A lower bound for every plan: a layer's input and output exist at the same time.
double least_bytes(const Graph& graph, DType dtype) {
  const auto elements = [&](NodeId id) {
    const Shape& s = graph.nodes()[id].shape;
    return double(s.n) * double(s.c) * double(s.d) * double(s.h) * double(s.w);
  };
  double most = 0;
  for (NodeId id = 0; id < graph.nodes().size(); ++id)
    for (const NodeId input : graph.nodes()[id].inputs)
      most = std::max(most, elements(input) + elements(id));
  return double(size_of(dtype)) * most;
}

double needed_bytes(const Graph& graph, const NetPlan& plan, const NetAlgos& algos,
                    Device& device) {
  const MemoryUse use = Net::memory_needed(
      graph, plan, algos, device, timing_net_options(graph, plan.mode), timing_update_rule());
  return double(use.total);
}

// The largest batch that fits, below `batch`, which does not; 0: not even one image.
std::int64_t largest_batch(std::int64_t batch, double needed, double usable,
                           const std::function<double(std::int64_t)>& needed_at) {
  while (needed > usable) {
    batch = std::min(batch - 1, std::int64_t(double(batch) * usable / needed));
    if (batch < 1) return 0;
    needed = needed_at(batch);
  }
  return batch;
}

[[noreturn]] void refuse_size(const Graph& graph, double needed, double usable,
                              const std::string& remedy) {
  throw InputError(fmt::format("{} at batch {} needs {} of memory at least, but there are {}: {}",
                               graph.name(), batch_of(graph), show_bytes(std::int64_t(needed)),
                               show_bytes(std::int64_t(usable)), remedy));
}

// Chooses a plan and makes sure that it fits.
Chosen fitting_plan(const Graph& graph, const NetArguments& a, const ChooseOptions& options,
                    const NetAlgos& algos, Device& device) {
  const double usable = usable_bytes(device.info());
  const auto choose = [&](const Graph& g) { return choose_by_store(g, a, options, algos, device); };
  double needed = least_bytes(graph, options.dtype);
  if (needed <= usable) {
    Chosen chosen = choose(graph);
    needed = needed_bytes(graph, chosen.plan, algos, device);
    if (needed <= usable) return chosen;
  }
  const std::int64_t fits = largest_batch(batch_of(graph), needed, usable, [&](std::int64_t batch) {
    const Graph smaller = net_of_target(a.common, batch);
    const double least = least_bytes(smaller, options.dtype);
    return least > usable ? least : needed_bytes(smaller, choose(smaller).plan, algos, device);
  });
  refuse_size(
      graph, needed, usable,
      fits > 0 ? fmt::format("expected a batch of at most {}", fits) : "expected a smaller net");
}

template <class Kind>
bool has(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& node) { return std::holds_alternative<Kind>(node.layer); });
}

// Those of the net's kinds of layers; all if it has neither. So `tune` knows the same names for it.
std::vector<AlgoRef> algos_for(const Graph& graph, const NetAlgos& algos, DeviceKind kind) {
  const bool convolutions = has<Conv>(graph) || has<ConvTranspose>(graph),
             recurrent = has<Recurrent>(graph);
  std::vector<AlgoRef> known;
  if (convolutions || !recurrent)
    for (const ConvAlgo* algo : algos.conv.for_device(kind)) known.emplace_back(*algo);
  if (algos.recurrent && (recurrent || !convolutions))
    for (const RecurrentAlgo* algo : algos.recurrent->for_device(kind)) known.emplace_back(*algo);
  return known;
}

}  // namespace

void add_net_arguments(CLI::App& app, NetArguments& a) {
  add_net(app, a.common, "Images at a time; default: 1, or a model's own");
  add_flag(app, "--forward-only", a.forward_only,
           "Inference: batch norm folded, dropout gone; default: a training step");
  add_device(app, a.common);
  add_seed(app, a.common);
  add_layout(app, a.common);
  add_cache(app, a.common);
  add_limits(app, a.tune);
  add_algo_choice(app, a.tune);
  add_db(app, a.common);
}

void add_iterations(CLI::App& app, NetArguments& a) {
  add_number(app, "--iterations", a.iterations, 1, 1'000'000,
             "How many of each kind, whole and step by step; default: as many as take about 5 "
             "s, at least 3");
}

void add_normalisation(CLI::App& app, PixelStatistics& given) {
  const auto parse = [](const std::string& text) {
    std::vector<double> numbers;
    for (const std::string& item : split_list(text)) {
      const std::optional<double> number = parse_number(item);
      if (!number || std::isinf(*number))
        throw InputError(
            fmt::format("'{}' is no number up to 1.8e308, as in 0.5 or 0.485,0.456,0.406", item));
      numbers.push_back(*number);
    }
    return numbers;
  };
  add_parsed(
      app, "--mean", [&given, parse](const std::string& text) { given.mean = parse(text); },
      "Mean of each channel of pixel / 255, which is subtracted; default: as the weights or the "
      "data say, else ImageNet's",
      "X,...");
  add_parsed(
      app, "--deviation",
      [&given, parse](const std::string& text) { given.deviation = parse(text); },
      "Standard deviation of each channel, by which the rest is divided", "X,...");
}

void normalise(Transform& transform, const PixelStatistics& given, const std::string& where) {
  if (given.mean.empty() && given.deviation.empty()) return;
  const auto set = [&](const char* name, std::vector<double>& values, const std::vector<double>& by,
                       double neutral) {
    const auto channels = std::size_t(transform.channels);
    if (by.size() > 1 && by.size() != channels)
      throw InputError(fmt::format("{}{}: {} numbers, but images have {} here: expected {}", where,
                                   name, by.size(), counted(channels, "channel"),
                                   channels == 1 ? "one" : fmt::format("one, or {}", channels)));
    if (by.size() == 1) return values.assign(channels, by.front());
    if (!by.empty()) values = by;
    if (values.empty()) values.assign(channels, neutral);
  };
  set("mean", transform.mean, given.mean, 0);
  set("deviation", transform.deviation, given.deviation, 1);
}

void require_frames(const Graph& net, const std::string& data) {
  const Shape& x = net.nodes().front().shape;
  if (x.d > 1 && !data.starts_with("synthetic"))
    throw InputError(
        fmt::format("'{}' has images, but {} takes clips of {} frames: expected synthetic", data,
                    net.name(), x.d));
}

void add_plan_file(CLI::App& app, NetArguments& a) {
  add_text(app, "--plan", a.plan_file,
           "Run as this file of `convlab plan NET --format json` says; default: choose by the "
           "store",
           "FILE");
}

ChooseOptions choose_options(const NetArguments& a, const Device& device) {
  require_math_choice(a.tune, a.common.dtype);
  ChooseOptions o;
  o.mode = a.forward_only ? Mode::inference : Mode::training;
  o.dtype = a.common.dtype;
  o.max_error = a.tune.max_error;
  o.workspace_max = a.tune.workspace_max;
  o.deterministic = a.tune.deterministic;
  o.layout = chosen_layout(a.common, device);
  o.algos = a.tune.algos;
  o.exclude = a.tune.exclude;
  o.maths = a.tune.maths;
  o.cache = a.common.cache;
  return o;
}

Chosen choose_by_store(const Graph& graph, const NetArguments& a, const ChooseOptions& options,
                       const NetAlgos& algos, Device& device) {
  const std::string db = db_path_if_any(a.common);
  std::optional<Store> store;
  // A store that the user names must exist; the default one may be missing.
  if (!a.common.db.empty() || Store::exists(db)) store.emplace(db, Store::Open::existing);
  return choose_plan(graph, options, algos, device, store ? &*store : nullptr);
}

void require_net(const NetArguments& a, const std::string& verb) {
  if (a.common.targets.empty())
    throw InputError(
        fmt::format("{}: no net: expected one, as in `convlab {} resnet18`", verb, verb));
  if (const std::string& target = a.common.targets.front();
      target.starts_with('@') || looks_like_problem(target))
    throw InputError(
        fmt::format("{}: '{}' is no net: expected one, as in `convlab {} resnet18`; problems are "
                    "timed by `convlab bench`",
                    verb, target, verb));
  if (is_model(a.common.targets.front())) return;
  if (!a.common.dims.empty())
    throw InputError("--dim: only ONNX models have dimensions by name: drop it");
  static_cast<void>(make_net(a.common.targets.front(), 1));
}

PlannedNet planned_net(const NetArguments& a, const std::string& verb, const NetAlgos& algos,
                       Device& device) {
  require_net(a, verb);
  if (!a.plan_file.empty()) {
    PlannedNet net = net_of_plan(a, device.info());
    const double needed = needed_bytes(net.graph, net.plan, algos, device),
                 usable = usable_bytes(device.info());
    if (needed > usable)
      refuse_size(net.graph, needed, usable, "expected a plan for a smaller batch");
    return net;
  }
  std::optional<std::int64_t> batch;
  if (!a.common.batches.empty()) batch = a.common.batches.front();
  std::string advice;
  Graph graph = net_of_target(a.common, batch, &advice);
  require_known_algos(a.tune, algos_for(graph, algos, device.info().kind));
  const ChooseOptions options = choose_options(a, device);
  Chosen chosen = fitting_plan(graph, a, options, algos, device);
  if (!chosen.untuned.empty())
    advice += fmt::format(
        "{}{} by predictions; to tune {}:\n  {}", advice.empty() ? "" : "\n",
        counted(chosen.untuned.size(), "pass of a layer is untuned or UNSURE here and goes",
                "passes of layers are untuned or UNSURE here and go"),
        chosen.untuned.size() == 1 ? "it" : "them", tune_command(a, graph, options));
  return {std::move(graph), std::move(chosen.plan), std::move(advice)};
}

}  // namespace convlab
