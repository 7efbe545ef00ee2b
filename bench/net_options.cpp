#include "bench/net_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "bench/tune_options.h"
#include "conv/error.h"
#include "nets/zoo.h"

namespace convlab {
namespace {

// The command that measures what the plan had to guess, as a shell takes it.
std::string tune_command(const NetArguments& a, const Graph& graph, const ChooseOptions& o) {
  const CommonOptions& c = a.common;
  const char* const isa = std::getenv("CONVLAB_ISA");
  std::string text =
      fmt::format("{}convlab tune {} --batch {}", isa ? fmt::format("CONVLAB_ISA={} ", isa) : "",
                  graph.name(), graph.nodes().front().shape.n);
  const auto add = [&text](bool given, const std::string& flag) {
    if (given) text += " " + flag;
  };
  add(a.forward_only, "--pass fwd");
  add(c.dtype != DType::f32, fmt::format("--dtype {}", to_string(c.dtype)));
  add(c.device.kind == DeviceKind::cuda, fmt::format("--device cuda:{}", c.device.index));
  add(c.threads > 0, fmt::format("--threads {}", c.threads));
  add(c.layout != "auto", fmt::format("--layout {}", c.layout));
  add(c.cache != CacheMode::hot, fmt::format("--cache {}", to_string(c.cache)));
  add(o.max_error.has_value(), fmt::format("--max-error {}", o.max_error.value_or(0)));
  add(o.workspace_max.has_value(), fmt::format("--workspace-max {}", o.workspace_max.value_or(0)));
  add(o.deterministic, "--deterministic");
  add(!o.algos.empty(), fmt::format("--algos {}", fmt::join(o.algos, ",")));
  add(!o.exclude.empty(), fmt::format("--exclude {}", fmt::join(o.exclude, ",")));
  add(!c.db.empty(), fmt::format("--db {}", c.db));
  return text;
}

NetPlan read_plan(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  if (!stream.is_open() || stream.bad() || text.empty())
    throw InputError(fmt::format(
        "--plan: cannot read '{}': expected a file of `convlab plan NET --format json`", file));
  return plan_from_json(text, file);
}

void require_fitting(const NetPlan& plan, const NetArguments& a, const DeviceInfo& device) {
  const CommonOptions& c = a.common;
  const auto require = [&](bool fits, const std::string& made_for, const std::string& remedy) {
    if (!fits)
      throw InputError(fmt::format("{} is a plan for {}: {}", a.plan_file, made_for, remedy));
  };
  require(plan.net == c.targets.front(), plan.net,
          fmt::format("expected one for {}", c.targets.front()));
  require(c.batches.empty() || c.batches.front() == plan.batch, fmt::format("batch {}", plan.batch),
          "drop --batch, or make another plan");
  require(c.dtype == DType::f32 || c.dtype == plan.dtype, std::string(to_string(plan.dtype)),
          "drop --dtype, or make another plan");
  require(!a.forward_only || plan.mode == Mode::inference, std::string(to_string(plan.mode)),
          "drop --forward-only, or make one with `convlab plan --forward-only`");
  require(plan.machine == machine_name(device), plan.machine,
          fmt::format("this is {}: make a plan here", machine_name(device)));
  require(plan.threads == device.threads, fmt::format("{} threads", plan.threads),
          device.kind == DeviceKind::cpu
              ? fmt::format("this run has {}: say --threads {}, or make another plan",
                            device.threads, plan.threads)
              : fmt::format("this card has {}: make a plan here", device.threads));
}

}  // namespace

std::string machine_name(const DeviceInfo& device) {
  return fmt::format("{}, {}", device.name, device.isa);
}

void add_net_arguments(CLI::App& app, NetArguments& a) {
  add_net(app, a.common);
  app.add_flag("--forward-only", a.forward_only,
               "Inference: batch norm folded, dropout gone; default: a training step");
  add_device(app, a.common);
  add_seed(app, a.common);
  add_layout(app, a.common);
  add_cache(app, a.common);
  add_limits(app, a.tune);
  add_algo_choice(app, a.tune);
  add_db(app, a.common);
}

void add_plan_file(CLI::App& app, NetArguments& a) {
  CLI::Option* const plan =
      app.add_option("--plan", a.plan_file,
                     "Run as this file of `convlab plan NET --format json` says; default: choose "
                     "by the store")
          ->type_name("FILE");
  for (const char* choosing : {"--layout", "--cache", "--max-error", "--workspace-max",
                               "--deterministic", "--algos", "--exclude", "--db"})
    plan->excludes(choosing);
}

ChooseOptions choose_options(const NetArguments& a, const Device& device) {
  ChooseOptions o;
  o.mode = a.forward_only ? Mode::inference : Mode::training;
  o.dtype = a.common.dtype;
  o.max_error = a.tune.max_error;
  o.workspace_max = a.tune.workspace_max;
  o.deterministic = a.tune.deterministic;
  o.layout = chosen_layout(a.common, device);
  o.algos = a.tune.algos;
  o.exclude = a.tune.exclude;
  o.cache = a.common.cache;
  return o;
}

Chosen choose_by_store(const Graph& graph, const NetArguments& a, const ChooseOptions& options,
                       const AlgoRegistry& registry, Device& device) {
  const std::string db = db_path(a.common);
  std::optional<Store> store;
  // One that was asked for must be there; the default one may be missing.
  if (!a.common.db.empty() || std::filesystem::exists(db)) store.emplace(db, Store::Open::existing);
  return choose_plan(graph, options, registry, device, store ? &*store : nullptr);
}

PlannedNet planned_net(const NetArguments& a, const std::string& verb, const AlgoRegistry& registry,
                       Device& device) {
  if (a.common.targets.empty())
    throw InputError(
        fmt::format("{}: no net: expected one, as in `convlab {} resnet18`", verb, verb));
  const std::string& name = a.common.targets.front();
  if (!a.plan_file.empty()) {
    NetPlan plan = read_plan(a.plan_file);
    require_fitting(plan, a, device.info());
    Graph graph = make_net(name, plan.batch);
    return {std::move(graph), std::move(plan)};
  }
  Graph graph = make_net(name, a.common.batches.empty() ? 1 : a.common.batches.front());
  const ChooseOptions options = choose_options(a, device);
  Chosen chosen = choose_by_store(graph, a, options, registry, device);
  if (!chosen.untuned.empty())
    fmt::print(stderr,
               "convlab: {} of this net's convolutions were never tuned here, so their times are "
               "predictions: {}\n",
               chosen.untuned.size(), tune_command(a, graph, options));
  return {std::move(graph), std::move(chosen.plan)};
}

}  // namespace convlab
