#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "autotune/race/checker.h"
#include "bench/options/choice.h"
#include "bench/options/tune_options.h"
#include "bench/options/work.h"
#include "bench/output.h"
#include "bench/reports/tune_cells.h"
#include "bench/text.h"
#include "bench/verbs/verbs.h"
#include "conv/error.h"
#include "conv/text/text.h"
#include "conv/types/math_type.h"

namespace convlab {
namespace {

struct Options {
  CommonOptions common;
  TuneOptions tune;
};

// The problem's text, which has no epilogue: for a problem with one, the log that it is from.
std::string target_of(const LayerProblem& layer, const CommonOptions& common) {
  const ConvProblem* const conv = layer.problem.conv();
  return conv && !conv->epilogue.empty() && !common.from.empty() && common.from != "-"
             ? "--from " + shell_word(common.from)
             : layer.text();
}

// The shell command that checks this algorithm on this problem in this layout again. --layout nchwc
// also tries x in NCHW with y blocked. No flag chooses a config.
std::string repeating_line(const LayerProblem& layer, const Candidate& c, const Options& o) {
  const Problem& p = layer.problem;
  // Forward runs as in training when there is a backward pass too.
  const RecurrentProblem* const recurrent = p.recurrent();
  const bool training = recurrent && recurrent->training;
  return fmt::format(
      "{}convlab check {} --pass {}{} --dtype {} --algos {}{}{} --seed {}{}", variables_in_force(),
      target_of(layer, o.common), training ? "fwd,bwd_d" : to_string(layer.pass()),
      recurrent && recurrent->recompute ? " --recompute" : "", to_string(p.dtype()), c.algo,
      !c.has_layouts
          ? ""
          : fmt::format(" --layout {}", is_blocked(c.y_layout) ? "nchwc" : to_string(c.y_layout)),
      o.common.device.kind == DeviceKind::cuda
          ? fmt::format(" --device cuda:{}", o.common.device.index)
          : fmt::format(" --threads {}", c.threads),
      o.common.seed, o.tune.max_error ? fmt::format(" --max-error {}", *o.tune.max_error) : "");
}

// A config's default limit follows its math type: a factor in TF32 has f16's mantissa, and
// transforms amplify its error.
double fair_error(DType dtype, const Config& config) {
  return math_type(config) == MathType::tf32 ? 5e-2 : default_max_error(dtype);
}

struct Count {
  std::int64_t passed = 0, failed = 0, skipped = 0;
};

// The rows so far, as CSV in OUTPUT.partial: a candidate may end this process. What is there
// already is moved to OUTPUT.partial~.
class PartialRows {
 public:
  PartialRows(const std::string& output, std::vector<std::string> columns)
      : path_(output + ".partial") {
    std::error_code unknown;
    if (output.empty() || output == "-" ||
        (std::filesystem::exists(output, unknown) &&
         !std::filesystem::is_regular_file(output, unknown)))
      return;
    using std::filesystem::file_type;
    // A link that leads nowhere is there too.
    if (std::filesystem::symlink_status(path_, unknown).type() != file_type::not_found) {
      std::error_code failed;
      std::filesystem::rename(path_, path_ + '~', failed);
      if (failed) {
        say(printable(
            fmt::format("cannot move {0} of an earlier run to {0}~: {1}; rows are not kept "
                        "as they come",
                        path_, failed.message())));
        return;
      }
      say(printable(fmt::format("{0} of an earlier run is {0}~ now", path_)));
    }
    one_.columns = std::move(columns);
    file_.open(path_, std::ios::trunc);
    if (!file_) say(printable(fmt::format("cannot keep rows in {} as they come", path_)));
    file_ << render(one_, Format::csv) << std::flush;
  }
  void add(const std::vector<Cell>& row) {
    if (!file_.is_open()) return;
    one_.rows = {row};
    const std::string text = render(one_, Format::csv);
    file_ << text.substr(text.find('\n') + 1) << std::flush;
  }
  // The whole table is written.
  void remove() {
    if (!file_.is_open()) return;
    file_.close();
    std::error_code gone;
    std::filesystem::remove(path_, gone);
  }

 private:
  std::string path_;
  std::ofstream file_;
  Report one_;
};

// Every candidate of one problem and pass against one reference.
void check_layer(const LayerResult& layer, const Options& o, Checker& checker, Progress& progress,
                 const std::atomic<bool>& stop, Report& report, PartialRows& partial,
                 Count& count) {
  std::size_t done = 0;
  for (const Candidate& c : layer.candidates) {
    if (stop) return;
    const Problem& problem = layer.layer.problem;
    progress.bar(done++, layer.candidates.size(),
                 fmt::format("{} {}: {}", show_layer(layer.layer), to_string(layer.layer.pass()),
                             show_choice(c)));
    CheckResult verdict{c.status, c.reason, 0};
    if (c.status != Status::refused)
      verdict = checker.check(problem, c,
                              o.tune.max_error.value_or(fair_error(problem.dtype(), c.config)));
    const bool skipped = verdict.status == Status::refused;
    const bool passed = verdict.status == Status::ok;
    ++(skipped ? count.skipped : passed ? count.passed : count.failed);
    const std::string line = repeating_line(layer.layer, c, o);
    report.rows.push_back({show_layer(layer.layer), to_string(layer.layer.pass()), c.algo,
                           c.config.text(), show_layouts(c),
                           skipped  ? "SKIPPED"
                           : passed ? "PASSED"
                                    : "FAILED",
                           skipped ? Cell() : error_cell(verdict.rel_error), verdict.reason,
                           Cell(line, passed || skipped ? "" : line)});
    partial.add(report.rows.back());
  }
}

int run(const Options& o) {
  require_work(o.common, "check", "a net, a problem or @FILE, as in `convlab check resnet18`");
  Output output(o.common.output);
  const std::unique_ptr<Device> device = open_device(o.common);
  const Work work = resolve_work(o.common, device->info());
  const std::vector<TuneItem>& items = work.items;
  require_math_choice(o.tune, o.common.dtype);
  // The heuristic runs nothing, yet returns every candidate and every refusal.
  TuneOptions options = o.tune;
  options.mode = TuneMode::heuristic;
  options.layout = chosen_layout(o.common, *device);
  Algos algos;
  append_all_algos(algos);
  require_known_algos(options, algos_for(items, algos, device->info().kind));
  const TuneTable table = tune(items, options, append_all_algos, *device);

  Report report;
  report.columns = {"layer",  "pass",      "algo",   "config", "layouts",
                    "result", "rel_error", "reason", "repeat"};
  Count count;
  Checker checker(algos, *device, o.common.seed);
  PartialRows partial(o.common.output, report.columns);
  Progress progress;
  const std::atomic<bool>& stop = stop_on_interrupt();
  std::size_t done = 0;
  for (const LayerResult& layer : table.layers) {
    if (stop) break;
    const Count before = count;
    check_layer(layer, o, checker, progress, stop, report, partial, count);
    progress.step(++done, table.layers.size(),
                  fmt::format("{} {}: {} passed, {} failed, {} skipped", show_layer(layer.layer),
                              to_string(layer.layer.pass()), count.passed - before.passed,
                              count.failed - before.failed, count.skipped - before.skipped));
  }
  report.notes = transposed_notes(table);
  report.notes.push_back(
      fmt::format("{} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped));
  report.complete = !stop;
  if (stop) report.notes.emplace_back("Stopped early: what was to follow was not checked.");
  if (count.passed + count.failed == 0 && !stop)
    report.notes.push_back("Nothing was checked: every algorithm refuses these problems.");
  if (checker.losses() > 0)
    report.notes.push_back(
        "The card was lost with a candidate: those that followed ran in another process.");
  report.provenance = provenance(*device);
  for (const auto& field : work.about) report.provenance.fields.push_back(field);
  output.write(render(report, o.common.format));
  partial.remove();
  return stop ? interrupted_exit_code : count.failed > 0 ? 1 : 0;
}

}  // namespace

VerbAction declare_check(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  add_targets(app, o->common);
  add_from(app, o->common);
  add_layer(app, o->common);
  add_recompute(app, o->common);
  add_device(app, o->common);
  add_layout(app, o->common);
  add_seed(app, o->common);
  add_max_error(app, o->tune);
  add_algo_choice(app, o->tune);
  add_output(app, o->common, {"table", "csv", "json", "md"});
  set_footer(
      app,
      "Runs every algorithm in every config and layout once on N(0,1) data and compares with a\n"
      "reference accumulated in double: the error's 2-norm over the reference's, poison left in\n"
      "the output, and writes outside of buffers. Exits 1 if any failed; its row ends in the line\n"
      "that repeats it. Without --max-error a config with math=tf32 is held to 5e-2.\n\n"
      "Examples:\n"
      "  convlab check resnet18 --pass fwd\n"
      "  convlab check g32mb1ic128ih14oc128oh14kh3ph1 mb1ic16id8ih14oc16kd3kh3pd1ph1\n"
      "  convlab check deconv:mb1ic64ih14oc32kh2sh2 --pass bwd_d\n"
      "  convlab check gru:l2t8mb4dhc64 --dtype f64\n"
      "  convlab check --from net.log --pass fwd\n"
      "  convlab check mb1ic64ih56oc64oh56kh3ph1 --algos winograd --seed 7\n"
      "  CONVLAB_ISA=avx2 convlab check vgg16 --max-error 1e-5");
  return [o] { return run(*o); };
}

}  // namespace convlab
