#include "bench/reports/nets/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "autotune/measure/ceilings.h"
#include "autotune/measure/phase_times.h"
#include "conv/types/math_type.h"

namespace convlab {

using namespace nets;
namespace {

using Json = nlohmann::ordered_json;

// One row's calls.
struct Calls {
  std::int64_t count = 0;
  double total = 0, exclusive = 0, least = 0, most = 0;  // ms

  void add(double ms, double exclusive_ms) {
    least = count == 0 ? ms : std::min(least, ms);
    most = std::max(most, ms);
    total += ms;
    exclusive += exclusive_ms;
    ++count;
  }
};

using Rows = std::map<std::string, Calls>;

// Names of vendors' templates can take many lines, which only files keep.
Cell name_cell(const std::string& name) {
  constexpr std::size_t most = 100;
  return name.size() <= most ? Cell(name) : Cell(name, name.substr(0, most - 3) + "...");
}

Report table_of(const Rows& rows, bool exclusive) {
  Report report;
  report.columns = {"Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name"};
  if (exclusive)
    report.columns[1] = "Inclusive", report.columns.insert(report.columns.begin() + 2, "Exclusive");
  std::vector<std::pair<std::string, Calls>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.total > b.second.total; });
  double all = 0;
  for (const auto& [name, calls] : sorted) all += calls.total;
  for (const auto& [name, calls] : sorted) {
    const double share = all > 0 ? 100 * calls.total / all : 0;
    std::vector<Cell> row{Cell(share, fmt::format("{:.2f}", share)), ms_cell(calls.total)};
    if (exclusive) row.push_back(ms_cell(calls.exclusive));
    row.insert(row.end(), {calls.count, ms_cell(calls.total / double(calls.count)),
                           ms_cell(calls.least), ms_cell(calls.most), name_cell(name)});
    report.rows.push_back(std::move(row));
  }
  return report;
}

// The phases of a convolution run alone: name and ms for the whole batch.
using PhaseMs = std::vector<std::pair<std::string, double>>;

class Profiler {
 public:
  Profiler(const TimedNet& net, const NetAlgos& algos, Device& device)
      : net_(net), algos_(algos), device_(device) {}

  Profile run() {
    for (std::size_t i = 0; i < net_.steps.size(); ++i)
      for (const Phase phase : all_phases)
        if (!net_.times.steps[i][std::size_t(phase)].empty()) count_step(i, phase);
    Profile profile;
    profile.kernels = table_of(kernels_, false);
    profile.layers = table_of(layers_, true);
    profile.as_ran = kernel_run_table(net_.times.kernels);
    profile.next = headrooms();
    profile.notes = {fmt::format(
        "Kernels and layers: ms over {} observed iterations; what to tune next: ms of one. How a "
        "convolution's time divides among its phases comes from running it alone; \"rest\" is "
        "packing, converting, and threads that start and wait.",
        iterations())};
    if (!ceilings_of(device_).measured)
      profile.notes.emplace_back("The ceilings are the card's theoretical peaks, not measured.");
    count_hardware(profile);
    if (!profile.as_ran.rows.empty())
      profile.notes.push_back(fmt::format("Kernels as they ran: by CUPTI, over {} iterations more.",
                                          net_.times.kernel_iterations));
    else if (!net_.times.no_kernels.empty())
      profile.notes.push_back(
          fmt::format("No kernels as the card ran them: {}.", net_.times.no_kernels));
    return profile;
  }

 private:
  std::size_t iterations() const {
    std::size_t most = 0;
    for (const auto& step : net_.times.steps) most = std::max(most, step[0].size());
    return most;
  }

  void count_step(std::size_t i, Phase phase) {
    const StepInfo& step = net_.steps[i];
    if (step.kind == "input") return;
    const PassPlan* const plan = step.phases[std::size_t(phase)].plan;
    const PhaseMs parts =
        step.phases[std::size_t(phase)].problem ? phases_alone(i, phase, *plan) : PhaseMs();
    double alone = 0;
    for (const auto& [name, ms] : parts) alone += ms;
    for (const double ms : net_.times.steps[i][std::size_t(phase)]) {
      // In the net it may run faster than alone, so its parts are scaled to fit the whole.
      const double scale = alone > ms ? ms / alone : 1;
      const double rest = parts.empty() ? ms : ms - scale * alone;
      layers_[step.layer + step.suffix].add(ms, rest);
      const std::string pass(to_string(phase));
      if (parts.empty()) {
        kernels_[fmt::format("{} {}", plan ? plan->algo : step.kind, pass)].add(ms, ms);
        continue;
      }
      for (const auto& [name, part] : parts)
        kernels_[fmt::format("{} {} {}", plan->algo, pass, name)].add(scale * part, scale * part);
      kernels_[fmt::format("{} {} rest", plan->algo, pass)].add(rest, rest);
    }
  }

  PhaseMs phases_alone(std::size_t i, Phase phase, const PassPlan& plan) {
    const ConvAlgo& algo = algos_.conv.get(device_.info().kind, plan.algo);
    ConvProblem problem = *net_.steps[i].phases[std::size_t(phase)].problem;
    const double pieces = plan.images > 0 ? double(problem.n) / double(plan.images) : 1;
    if (plan.images > 0) problem.n = plan.images;
    const std::string key =
        fmt::format("{} {} {} {} {} {}", to_text(problem), to_string(phase), plan.algo,
                    plan.config.text(), to_string(problem.x_layout), to_string(problem.y_layout));
    const auto [known, fresh] = alone_.try_emplace(key);
    if (fresh) {
      const std::vector<PhaseWork> phases = algo.work(problem, plan.config, device_).phases;
      const ReferenceCase data(problem, 0, DataKind::normal, ReferenceCase::Evaluate::nothing);
      const PhaseTimes times =
          measure_phases(algo, problem, plan.config, CacheMode::hot, data, device_);
      for (std::size_t p = 0; p < phases.size(); ++p)
        if (times.phase_ms[p] > 0)
          known->second.emplace_back(phases[p].name, pieces * times.phase_ms[p]);
    }
    return known->second;
  }

  // The bandwidth of the memory level that holds a step's data.
  double bandwidth(const Ceilings& c, double bytes) const {
    const DeviceInfo& info = device_.info();
    if (bytes <= double(info.l2_bytes) * info.threads) return c.l2_bandwidth;
    return bytes <= double(info.l3_bytes) ? c.l3_bandwidth : c.memory_bandwidth;
  }

  Report headrooms() const {
    constexpr std::size_t most = 15;
    struct Headroom {
      std::string name, limit;
      double ms = 0, attainable = 0;
    };
    const Ceilings& ceilings = ceilings_of(device_);
    std::vector<Headroom> all;
    double total = 0;
    for (std::size_t i = 0; i < net_.steps.size(); ++i)
      for (const Phase phase : all_phases) {
        const PhaseInfo& info = net_.steps[i].phases[std::size_t(phase)];
        const double ms = net_.times.step_ms(i, phase);
        total += ms;
        if (ms <= 0 || info.bytes <= 0) continue;
        const MathType math = info.plan ? math_type(info.plan->config) : MathType::f32;
        const double by_flops = 1e3 * info.exec_flops / ceilings.flops(net_.plan.dtype, math),
                     by_bytes = 1e3 * info.bytes / bandwidth(ceilings, info.bytes);
        all.push_back(
            {fmt::format("{} {}{}", net_.steps[i].layer + net_.steps[i].suffix, to_string(phase),
                         info.plan ? " " + info.plan->algo : std::string()),
             by_flops >= by_bytes ? "FLOPs" : "bytes", ms,
             std::min(ms, std::max(by_flops, by_bytes))});
      }
    std::stable_sort(all.begin(), all.end(), [](const Headroom& a, const Headroom& b) {
      return a.ms - a.attainable > b.ms - b.attainable;
    });
    if (all.size() > most) all.resize(most);
    Report report;
    report.columns = {"Headroom(%)", "Headroom", "Time", "Attainable", "Limit", "Name"};
    for (const Headroom& h : all) {
      // A card that is executed on the CPU is some 1e6 times as slow as its peaks.
      const Cell attainable = h.attainable < 5e-4
                                  ? Cell(h.attainable, fmt::format("{:.1e}", h.attainable))
                                  : ms_cell(h.attainable);
      const double gain = h.ms - h.attainable, share = 100 * gain / total;
      report.rows.push_back({Cell(share, fmt::format("{:.2f}", share)), ms_cell(gain),
                             ms_cell(h.ms), attainable, h.limit, h.name});
    }
    return report;
  }

  void count_hardware(Profile& profile) const {
    const NetTimes& times = net_.times;
    if (times.counter_names.empty()) {
      profile.notes.push_back(times.no_counters);
      return;
    }
    std::vector<std::string> totals;
    for (std::size_t e = 0; e < times.counter_names.size(); ++e)
      totals.push_back(fmt::format("{:.3e} {}", times.counts[e], times.counter_names[e]));
    profile.notes.push_back(fmt::format("An undisturbed iteration: {}.", fmt::join(totals, ", ")));
  }

  const TimedNet& net_;
  const NetAlgos algos_;
  Device& device_;
  Rows kernels_, layers_;
  std::map<std::string, PhaseMs> alone_;
};

}  // namespace

Report kernel_run_table(const std::vector<KernelRun>& runs) {
  Rows rows;
  for (const KernelRun& run : runs) rows[run.name].add(run.ms, run.ms);
  return table_of(rows, false);
}

Profile profile_net(const TimedNet& net, const NetAlgos& algos, Device& device) {
  return Profiler(net, algos, device).run();
}

std::string render(const Profile& profile, Format format) {
  Report next = profile.next;
  next.notes = {
      "Headroom: how much shorter an iteration would be if the step ran at this machine's "
      "ceilings, "
      "with the algorithm it has."};
  next.notes.insert(next.notes.end(), profile.notes.begin(), profile.notes.end());
  const auto titled = [&](const std::string& title, const Report& report) {
    return (format == Format::md ? "**" + title + "**\n\n" : title + "\n\n") +
           render(report, format);
  };
  std::string text = titled("By kernel, ms over all observed iterations", profile.kernels) + "\n";
  if (!profile.as_ran.rows.empty()) text += titled("Kernels as they ran", profile.as_ran) + "\n";
  return text + titled("By layer, ms over all observed iterations", profile.layers) + "\n" +
         titled("What to tune next, ms of one iteration", next);
}

Json to_json(const Profile& profile) {
  return {{"kernels", rows_json(profile.kernels)},
          {"kernels_as_ran", rows_json(profile.as_ran)},
          {"layers", rows_json(profile.layers)},
          {"next", rows_json(profile.next)},
          {"notes", profile.notes}};
}

}  // namespace convlab
