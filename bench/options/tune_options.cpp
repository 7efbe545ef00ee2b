#include "bench/options/tune_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "autotune/candidates.h"
#include "autotune/measure/clocks.h"
#include "autotune/measure/disturbance.h"
#include "autotune/store/store.h"
#include "bench/options/choice.h"
#include "bench/options/ranges.h"
#include "bench/options/work.h"
#include "bench/output.h"
#include "bench/reports/tune_cells.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/text/counted.h"

namespace convlab {
namespace {

// The winner, in one line.
std::string show_result(const LayerResult& result) {
  const std::string layer =
      fmt::format("{} {}", show_layer(result.layer), to_string(result.layer.pass()));
  if (!result.chosen) return fmt::format("{}: no algorithm works", layer);
  const Candidate& c = result.candidates[*result.chosen];
  return fmt::format("{}: {} {} ms {}", layer, show_choice(c), time_cell(c).shown(),
                     to_string(result.verdict));
}

class TunePrinter : public TuneProgress {
 public:
  TunePrinter(std::string store, const DeviceInfo& device, ClockWatch& clocks,
              const TuningPart& part)
      : store_(std::move(store)), device_(device), clocks_(clocks), part_(part) {}
  void resumed(std::size_t rows, std::size_t failed) override;
  void store_lost(const std::string& why) override;
  void begin(const TuneItem&, std::size_t index, std::size_t total) override;
  void ended(const Problem&, const Candidate&) override;
  void process(std::size_t number, std::size_t open) override;
  void again(const TuneItem&, const std::string& why) override;
  void end(const LayerResult&, std::size_t done, std::size_t total) override;

 private:
  void announce(const std::string&);
  void count(std::size_t done, std::size_t total) {
    done_ = part_.items_before + done;
    total_ = std::max(part_.items_total, total);
  }

  Progress progress_;
  std::string store_, layer_;
  const DeviceInfo& device_;
  ClockWatch& clocks_;
  TuningPart part_;
  std::size_t done_ = 0, total_ = 0;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
};

void TunePrinter::resumed(std::size_t rows, std::size_t failed) {
  if (rows == 0) return;
  const std::string failures =
      failed > 0 ? fmt::format("; {} of them failed, --retry-failed tries them again", failed) : "";
  progress_.line(
      fmt::format("resuming: {} candidates are known from {}{}", rows, store_, failures));
}

void TunePrinter::store_lost(const std::string& why) {
  progress_.line(fmt::format("{}: the run goes on, and what follows is not stored", why));
}

void TunePrinter::begin(const TuneItem& item, std::size_t index, std::size_t total) {
  count(0, total);
  layer_ = fmt::format("{} {}", show_layer(item.layer), to_string(item.layer.pass()));
  if (index == 0) warn_of_other_programs(device_);
  announce(fmt::format("screening {} of {}: {}", part_.items_before + index + 1, total_, layer_));
}

void TunePrinter::ended(const Problem&, const Candidate& c) {
  if (c.status == Status::failed || c.status == Status::timeout)
    progress_.line(
        fmt::format("{}: {} {}: {}", layer_, show_choice(c), to_string(c.status), c.reason));
}

// A progress bar, or an occasional line.
void TunePrinter::announce(const std::string& text) {
  progress_.bar(done_, total_, text);
  const auto now = std::chrono::steady_clock::now();
  constexpr std::chrono::seconds pause(10);
  if (progress_.has_terminal() || now - last_line_ < pause) return;
  last_line_ = now;
  progress_.line(text);
}

void TunePrinter::process(std::size_t number, std::size_t open) {
  clocks_.look();
  announce(fmt::format("finals, process {}: {} of {} open", number, open, counted(total_, "row")));
}

void TunePrinter::again(const TuneItem& item, const std::string& why) {
  progress_.line(fmt::format("{} {}: raced again: {}", show_layer(item.layer),
                             to_string(item.layer.pass()), why));
}

void TunePrinter::end(const LayerResult& result, std::size_t done, std::size_t total) {
  count(done, total);
  progress_.step(done_, total_, show_result(result));
}

// Names the layers that have no algorithm only because of the workspace limit, and a sufficient
// limit.
void report_limit(const TuneTable& table, std::int64_t limit) {
  for (const LayerResult& layer : table.layers) {
    const Candidate* least = nullptr;
    for (const Candidate& c : layer.candidates)
      if (c.status == Status::refused && c.workspace_bytes > limit &&
          (!least || c.workspace_bytes < least->workspace_bytes))
        least = &c;
    if (!layer.chosen && least)
      say(fmt::format(
          "{} {}: the workspace limit of {} bytes is too small for every algorithm: expected at "
          "least --workspace-max {} ({})",
          show_layer(layer.layer), to_string(layer.layer.pass()), limit, least->workspace_bytes,
          show_choice(*least)));
  }
}

}  // namespace

void add_choice(CLI::App& app, TuneArguments& a, const std::string& target_description) {
  add_targets(app, a.common, target_description);
  add_device(app, a.common);
  add_layout(app, a.common);
  add_cache(app, a.common);
  add_seed(app, a.common);
  add_limits(app, a.tune);
  add_algo_choice(app, a.tune);
}

void add_tuning(CLI::App& app, TuneArguments& a, const std::string& target_description) {
  add_choice(app, a, target_description);
  add_recompute(app, a.common);
  add_mode(app, a.tune);
}

void add_max_error(CLI::App& app, TuneOptions& o) {
  add_parsed(
      app, "--max-error",
      [&o](const std::string& text) {
        o.max_error = parse_number(text);
        if (!o.max_error || *o.max_error < 0)
          throw InputError(fmt::format("'{}': expected a number from 0 to 1.8e308, or inf", text));
      },
      "Largest relative error in the 2-norm; inf lifts it; default: f64 1e-12, f32 1e-4, f16 1e-2, "
      "bf16 5e-2",
      "E");
}

void add_limits(CLI::App& app, TuneOptions& o) {
  add_max_error(app, o);
  add_bytes(app, "--workspace-max", o.workspace_max,
            "Most scratch memory an algorithm may use, in a net its packed filters as well: 0, "
            "500k, 64MiB "
            "(all units are powers of 1024)");
  add_flag(app, "--deterministic", o.deterministic,
           "Only algorithms whose results are the same to the bit from run to run");
}

void add_algo_choice(CLI::App& app, TuneOptions& o) {
  add_parsed(
      app, "--algos", [&o](const std::string& text) { o.algos = split_list(text); },
      "Only these, by id or family: direct,winograd; onednn is the family of all onednn.*; one "
      "alone of a family: --algos im2col --exclude im2col_blocked",
      "ID,...");
  add_parsed(
      app, "--exclude", [&o](const std::string& text) { o.exclude = split_list(text); },
      "Not these, by id or family; vendor stands for every vendor's", "ID,...");
  add_parsed(
      app, "--math",
      [&o](const std::string& text) {
        o.maths.clear();
        for (const std::string& name : split_list(text)) {
          if (name == math_type_names[std::size_t(MathType::bf16)])
            throw InputError("'bf16' is not for products of f32: expected --dtype bf16");
          o.maths.push_back(parse_math_type(name));
        }
      },
      fmt::format("Only these ways to form products of f32: {}; default: all within --max-error",
                  fmt::join(f32_math_names, ", ")),
      "MATH,...");
}

void require_math_choice(const TuneOptions& o, DType dtype) {
  if (!o.maths.empty() && dtype != DType::f32)
    throw InputError(fmt::format(
        "--math: chooses how products of f32 are formed, not of {0}: drop it, or --dtype {0}",
        to_string(dtype)));
}

std::string show_maths(const TuneOptions& o) {
  std::vector<std::string_view> names;
  for (const MathType math : o.maths) names.push_back(math_type_names[std::size_t(math)]);
  return fmt::format("{}", fmt::join(names, ","));
}

void require_known_algos(const TuneOptions& o, const std::vector<AlgoRef>& known) {
  naming("--algos", [&] { admitted_algos(known, o.algos, {}); });
  naming("--exclude", [&] {
    admitted_algos(known, {}, o.exclude);
    if (admitted_algos(known, o.algos, o.exclude).empty())
      throw InputError(fmt::format(
          "'{}' leaves none of {}: drop a name", fmt::join(o.exclude, ","),
          o.algos.empty() ? "the algorithms" : fmt::format("--algos {}", fmt::join(o.algos, ","))));
  });
}

void add_mode(CLI::App& app, TuneOptions& o) {
  add_parsed(
      app, "--mode", [&o](const std::string& text) { o.mode = parse_tune_mode(text); },
      "heuristic (predicted, nothing is run), race, or exhaustive (nobody is dropped, more "
      "samples); default: race",
      "MODE");
}

Shard parse_shard(const std::string& text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  Shard shard{0, 0};
  try {
    shard = {parse_count(text.substr(0, slash)),
             parse_count(slash < text.size() ? text.substr(slash + 1) : "")};
  } catch (const InputError&) {
  }
  if (shard.index < 1 || shard.index > shard.count)
    throw InputError(fmt::format(
        "'{}': expected I/N with I from 1 to N, as in 1/4 for the first of four", text));
  return shard;
}

void warn_of_other_programs(const DeviceInfo& device) {
  constexpr double noticeable = 0.1;
  constexpr std::chrono::milliseconds long_enough(250);  // /proc/stat ticks every 10 ms
  static bool done = false;
  if (device.kind != DeviceKind::cpu || disturbances_ignored() || std::exchange(done, true)) return;
  LoadMeter meter;
  const double own_s = own_cpu_s();
  std::this_thread::sleep_for(long_enough);
  const double others = meter.look(own_cpu_s() - own_s).others;
  if (others > noticeable)
    say(fmt::format(
        "other programs use {:.0f}% of the processors: measuring takes longer and is less certain",
        100 * others));
}

TuneOutcome run_tuning(const TuneArguments& a, const std::string& db) {
  const std::unique_ptr<Device> device = open_device(a.common);
  const Work work = resolve_work(a.common, device->info());
  TuneOutcome outcome = run_tuning(a, work.items, *device, db, {});
  for (const auto& field : work.about) outcome.table.provenance.fields.push_back(field);
  return outcome;
}

TuneOutcome run_tuning(const TuneArguments& a, const std::vector<TuneItem>& items, Device& device,
                       const std::string& db, const TuningPart& part) {
  for (const std::string& id : a.tune.algos)
    if (std::find(a.tune.exclude.begin(), a.tune.exclude.end(), id) != a.tune.exclude.end())
      throw InputError(fmt::format("'{}' is in both --algos and --exclude: drop one", id));
  require_math_choice(a.tune, a.common.dtype);
  TuneOptions options = a.tune;
  options.cache = a.common.cache;
  options.seed = a.common.seed;
  options.layout = chosen_layout(a.common, device);

  Algos algos;
  append_all_algos(algos);
  // Before a store is created.
  require_known_algos(options, algos_for(items, algos, device.info().kind));

  std::optional<Store> store;
  if (!db.empty()) store.emplace(db);
  ClockWatch clocks(device.info());
  TunePrinter printer(db, device.info(), clocks, part);
  const std::atomic<bool>& stop = stop_on_interrupt();
  if (store) store->interrupt_by(&stop);
  TuneOutcome outcome;
  outcome.table =
      tune(items, options, append_all_algos, device, store ? &*store : nullptr, &printer, &stop);
  outcome.table.provenance = provenance(device);
  if (disturbances_ignored())
    outcome.table.provenance.fields.emplace_back("disturbances",
                                                 "ignored (CONVLAB_IGNORE_DISTURBANCES)");
  if (options.mode != TuneMode::heuristic)
    for (auto& field : clocks.fields()) outcome.table.provenance.fields.push_back(field);
  outcome.interrupted = stop;
  if (options.workspace_max && !stop) report_limit(outcome.table, *options.workspace_max);
  return outcome;
}

}  // namespace convlab
