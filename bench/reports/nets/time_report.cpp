#include "bench/reports/nets/time_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autotune/measure/measure.h"
#include "bench/reports/nets/profile.h"

namespace convlab {

using namespace nets;
namespace {

using Json = nlohmann::ordered_json;

// Sums over a step or a kind of steps.
struct Work {
  std::array<double, 4> ms{};  // by Phase
  double eff_flops = 0, exec_flops = 0, flops_ms = 0;
  double bytes = 0;

  double total_ms() const { return ms[0] + ms[1] + ms[2] + ms[3]; }
  double gflops(double flops) const { return flops_ms > 0 ? flops / flops_ms / 1e6 : 0; }
  double gbytes_per_s() const { return total_ms() > 0 ? bytes / total_ms() / 1e6 : 0; }

  Work& operator+=(const Work& other) {
    for (std::size_t i = 0; i < ms.size(); ++i) ms[i] += other.ms[i];
    eff_flops += other.eff_flops;
    exec_flops += other.exec_flops;
    flops_ms += other.flops_ms;
    bytes += other.bytes;
    return *this;
  }
};

Work phase_work(const TimedNet& net, std::size_t step, Phase phase) {
  const PhaseInfo& info = net.steps[step].phases[std::size_t(phase)];
  Work work;
  const double ms = net.times.step_ms(step, phase);
  work.ms[std::size_t(phase)] = ms;
  if (ms <= 0) return work;  // did not run, so it did no work
  work.eff_flops = info.eff_flops;
  work.exec_flops = info.exec_flops;
  work.flops_ms = info.eff_flops > 0 ? ms : 0;
  work.bytes = info.bytes;
  return work;
}

Work step_work(const TimedNet& net, std::size_t step) {
  Work work;
  for (const Phase phase : all_phases) work += phase_work(net, step, phase);
  return work;
}

struct StepKind {
  std::string name;
  std::int64_t steps = 0;
  Work work;
};

// Most expensive first.
std::vector<StepKind> kinds(const TimedNet& net) {
  std::vector<StepKind> kinds;
  for (std::size_t i = 0; i < net.steps.size(); ++i) {
    const Work work = step_work(net, i);
    if (work.total_ms() <= 0) continue;
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const StepKind& k) { return k.name == net.steps[i].kind; });
    if (kind == kinds.end()) kind = kinds.insert(kind, {net.steps[i].kind, 0, {}});
    ++kind->steps;
    kind->work += work;
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const StepKind& a, const StepKind& b) {
    return a.work.total_ms() > b.work.total_ms();
  });
  return kinds;
}

Work total_work(const TimedNet& net) {
  Work total;
  for (std::size_t i = 0; i < net.steps.size(); ++i) total += step_work(net, i);
  return total;
}

bool training(const TimedNet& net) { return net.plan.mode == Mode::training; }

std::vector<Phase> phases(const TimedNet& net) {
  if (!training(net)) return {Phase::forward};
  return {all_phases.begin(), all_phases.end()};
}

Cell blank_if_zero(double value, const std::string& format) {
  if (value <= 0) return {};
  return {value, fmt::format(fmt::runtime(format), value)};
}

Cell share_cell(double ms, double total_ms) {
  return total_ms > 0 ? blank_if_zero(100 * ms / total_ms, "{:.1f}") : Cell();
}

// ---- For people ----

void append_work(const TimedNet& net, const Work& work, double total_ms, std::vector<Cell>& row) {
  for (const Phase phase : phases(net)) {
    const double ms = work.ms[std::size_t(phase)];
    row.push_back(ms > 0 ? ms_cell(ms) : Cell());
  }
  row.push_back(share_cell(work.total_ms(), total_ms));
  row.push_back(blank_if_zero(work.gflops(work.eff_flops), "{:.0f}"));
  if (net.wide) row.push_back(blank_if_zero(work.gflops(work.exec_flops), "{:.0f}"));
  if (net.wide) row.push_back(blank_if_zero(work.bytes / 1e6, "{:.1f}"));
  row.push_back(blank_if_zero(work.gbytes_per_s(), "{:.1f}"));
}

std::vector<std::string> work_columns(const TimedNet& net) {
  std::vector<std::string> columns;
  for (const Phase phase : phases(net)) columns.emplace_back(to_string(phase));
  columns.insert(columns.end(), {"%", "eff"});
  if (net.wide) columns.insert(columns.end(), {"exec", "MB"});
  columns.emplace_back("GB/s");
  return columns;
}

Report reading_steps(const TimedNet& net) {
  Report report;
  report.columns = work_columns(net);
  report.columns.insert(report.columns.begin(), "layer");
  if (net.wide) report.columns.emplace_back("layouts");
  report.columns.emplace_back("algo");
  const double total_ms = total_work(net).total_ms();
  for (std::size_t i = 0; i < net.steps.size(); ++i) {
    const StepInfo& step = net.steps[i];
    if (step.kind == "input") continue;
    std::vector<Cell> row{step.layer + step.suffix};
    append_work(net, step_work(net, i), total_ms, row);
    if (net.wide) row.push_back(step.layouts());
    row.push_back(step.algos());
    report.rows.push_back(std::move(row));
  }
  return report;
}

Report reading_kinds(const TimedNet& net) {
  Report report;
  report.columns = work_columns(net);
  report.columns.insert(report.columns.begin(), {"kind", "steps"});
  const double total_ms = total_work(net).total_ms();
  for (const StepKind& kind : kinds(net)) {
    std::vector<Cell> row{kind.name, kind.steps};
    append_work(net, kind.work, total_ms, row);
    report.rows.push_back(std::move(row));
  }
  return report;
}

// ---- The iteration as a whole ----

struct Summary {
  double ms = 0, mad_ms = 0;  // of a whole iteration
  IterationTime parts;
  double hidden() const {  // share of the exchange
    return parts.communicated > 0 ? std::max(0.0, 1 - parts.exposed / parts.communicated) : 0;
  }
  double images_per_s = 0;
};

Summary summary(const TimedNet& net) {
  Summary s;
  s.ms = net.times.iteration_ms();
  s.mad_ms = s.ms * net.times.iteration_spread();
  s.parts = net.times.typical();
  if (s.ms > 0)
    s.images_per_s = 1e3 * double(net.times.streams * net.times.ranks * net.plan.batch) / s.ms;
  return s;
}

std::vector<std::string> notes(const TimedNet& net) {
  const NetTimes& times = net.times;
  const Summary s = summary(net);
  std::vector<std::string> notes;
  if (!times.iterations.empty()) {
    notes.push_back(fmt::format(
        "iteration  {} ms, {} images/s: the median of {} undisturbed, which spread by {:.1f}%",
        show_ms(s.ms), show_images_per_s(s.images_per_s), times.iterations.size(),
        100 * s.mad_ms / s.ms));
    if (times.streams > 1)
      notes.push_back(fmt::format("           of {} nets on {} streams; all else here is of one",
                                  times.streams, times.streams));
    notes.push_back(fmt::format(
        "           t_h2d {}, t_f {}{}; t_io {} makes random data and is left out",
        show_ms(s.parts.h2d), show_ms(s.parts.forward),
        training(net)
            ? fmt::format(", t_b {}, t_u {}", show_ms(s.parts.backward), show_ms(s.parts.update))
            : "",
        show_ms(s.parts.io)));
    if (times.ranks > 1)
      notes.push_back(fmt::format(
          "           t_comm {} among {} ranks, {:.0f}% of it hidden by backward, {} exposed; "
          "buckets of {}",
          show_ms(s.parts.communicated), times.ranks, 100 * s.hidden(), show_ms(s.parts.exposed),
          show_bytes(times.bucket_bytes)));
    if (!times.exchange_note.empty()) notes.push_back("           " + times.exchange_note);
  }
  std::size_t samples = 0;
  for (const auto& phases : times.steps) samples = std::max(samples, phases[0].size());
  if (samples > 0)
    notes.push_back(
        fmt::format("steps      add up to {} ms, medians of {} with a pause around each",
                    show_ms(total_work(net).total_ms()), samples));
  const auto bytes = [](std::size_t count) { return show_bytes(std::int64_t(count)); };
  const MemoryUse& m = times.memory;
  notes.push_back(fmt::format(
      "memory     {}: weights {}, activations {}, gradients {}, workspace {}, optimizer {}",
      bytes(m.total), bytes(m.weights), bytes(m.activations), bytes(m.gradients),
      bytes(m.workspace), bytes(m.optimizer)));
  if (times.resident_peak > 0)
    notes.push_back(fmt::format("resident   {} at most, {} of them before there was a net",
                                show_bytes(times.resident_peak),
                                show_bytes(times.resident_before)));
  if (!times.finite)
    notes.push_back("The loss was no finite number in the end: these times may not be typical.");
  if (const std::string line = unrest(times); !line.empty()) notes.push_back(line);
  if (times.interrupted) notes.push_back("Stopped early: times are of what had run by then.");
  return notes;
}

std::string legend(const TimedNet& net) {
  std::vector<std::string_view> names;
  for (const Phase phase : phases(net)) names.push_back(to_string(phase));
  const bool convolves = std::any_of(net.steps.begin(), net.steps.end(), [](const StepInfo& step) {
    return step.kind == "convolution";
  });
  const std::string first =
      fmt::format("{} in ms; % of all steps; eff: GFLOP/s {}", fmt::join(names, ", "),
                  convolves ? "as direct convolution" : "of the products");
  return first + (net.wide ? ", exec: as executed; MB: what must be read and written, once"
                           : "; GB/s: of what must be read and written, once");
}

// ---- For programs ----

Report full_steps(const TimedNet& net) {
  Report report;
  report.columns = {"layer", "fused", "kind", "x_layout", "y_layout", "ms", "mad_ms", "share_%"};
  for (const Phase phase : phases(net)) {
    const std::string name(to_string(phase));
    report.columns.insert(report.columns.end(), {name + "_ms", name + "_bytes"});
    if (phase != Phase::update)
      report.columns.insert(report.columns.end(), {name + "_eff_gflops", name + "_exec_gflops",
                                                   name + "_algo", name + "_config"});
  }
  const auto exact = [](double value) { return Cell(value, ""); };
  const double total_ms = total_work(net).total_ms();
  for (std::size_t i = 0; i < net.steps.size(); ++i) {
    const StepInfo& step = net.steps[i];
    const double ms = net.times.step_ms(i);
    std::vector<Cell> row{step.layer,
                          step.suffix,
                          step.kind,
                          to_string(step.plan->x_layout),
                          to_string(step.plan->y_layout),
                          exact(ms),
                          exact(net.times.step_mad_ms(i)),
                          exact(total_ms > 0 ? 100 * ms / total_ms : 0)};
    for (const Phase phase : phases(net)) {
      const Work work = phase_work(net, i, phase);
      row.insert(row.end(), {exact(work.total_ms()), exact(work.bytes)});
      if (phase == Phase::update) continue;
      const PassPlan* const plan = step.phases[std::size_t(phase)].plan;
      row.insert(row.end(),
                 {exact(work.gflops(work.eff_flops)), exact(work.gflops(work.exec_flops)),
                  plan ? plan->algo : "", plan ? plan->config.text() : ""});
    }
    report.rows.push_back(std::move(row));
  }
  return report;
}

Json phases_json(const TimedNet& net, const Work& work) {
  Json json = Json::object();
  for (const Phase phase : phases(net))
    json[std::string(to_string(phase))] = work.ms[std::size_t(phase)];
  return json;
}

Json step_json(const TimedNet& net, std::size_t i, double total_ms) {
  const StepInfo& step = net.steps[i];
  const double ms = net.times.step_ms(i);
  Json json{{"layer", step.layer},
            {"fused", step.suffix},
            {"kind", step.kind},
            {"layouts", {to_string(step.plan->x_layout), to_string(step.plan->y_layout)}},
            {"ms", ms},
            {"mad_ms", net.times.step_mad_ms(i)},
            {"share", total_ms > 0 ? ms / total_ms : 0},
            {"phases", Json::object()}};
  for (const Phase phase : phases(net)) {
    const Work work = phase_work(net, i, phase);
    Json& entry = json["phases"][std::string(to_string(phase))];
    entry = {{"ms", work.total_ms()},
             {"samples_ms", net.times.steps[i][std::size_t(phase)]},
             {"eff_gflops", work.gflops(work.eff_flops)},
             {"exec_gflops", work.gflops(work.exec_flops)},
             {"bytes", work.bytes}};
    if (const PassPlan* const plan = step.phases[std::size_t(phase)].plan) {
      entry["algo"] = plan->algo;
      entry["config"] = plan->config.text();
      entry["images"] = plan->images;
      entry["expected_ms"] = plan->ms;
    }
  }
  return json;
}

std::string render_json(const TimedNet& net, const Profile* profile) {
  Json json{{"convlab_time", time_format},
            {"provenance", Json::object()},
            {"net",
             {{"name", net.graph.name()},
              {"batch", net.plan.batch},
              {"streams", net.times.streams},
              {"mode", to_string(net.plan.mode)},
              {"dtype", to_string(net.plan.dtype)}}},
            {"steps", Json::array()},
            {"kinds", Json::array()}};
  for (const auto& [name, value] : net.provenance.fields) json["provenance"][name] = value;
  const double total_ms = total_work(net).total_ms();
  for (std::size_t i = 0; i < net.steps.size(); ++i)
    json["steps"].push_back(step_json(net, i, total_ms));
  for (const StepKind& kind : kinds(net))
    json["kinds"].push_back({{"kind", kind.name},
                             {"steps", kind.steps},
                             {"ms", kind.work.total_ms()},
                             {"share", total_ms > 0 ? kind.work.total_ms() / total_ms : 0},
                             {"phases_ms", phases_json(net, kind.work)},
                             {"eff_gflops", kind.work.gflops(kind.work.eff_flops)},
                             {"exec_gflops", kind.work.gflops(kind.work.exec_flops)},
                             {"bytes", kind.work.bytes}});
  const Summary s = summary(net);
  Json samples = Json::array();
  for (const IterationTime& time : net.times.iterations) samples.push_back(time.total());
  json["iteration"] = {{"ms", s.ms},
                       {"mad_ms", s.mad_ms},
                       {"images_per_s", s.images_per_s},
                       {"t_io", s.parts.io},
                       {"t_h2d", s.parts.h2d},
                       {"t_f", s.parts.forward},
                       {"t_b", s.parts.backward},
                       {"t_u", s.parts.update},
                       {"steps_ms", total_ms},
                       {"samples_ms", std::move(samples)}};
  if (net.times.ranks > 1)
    json["exchange"] = {{"ranks", net.times.ranks},
                        {"bucket_bytes", net.times.bucket_bytes},
                        {"t_comm", s.parts.communicated},
                        {"exposed_ms", s.parts.exposed},
                        {"hidden", s.hidden()}};
  const MemoryUse& m = net.times.memory;
  json["memory"] = {{"weights", m.weights},
                    {"activations", m.activations},
                    {"gradients", m.gradients},
                    {"workspace", m.workspace},
                    {"optimizer", m.optimizer},
                    {"arena", m.arena},
                    {"total", m.total},
                    {"resident_before", net.times.resident_before},
                    {"resident_peak", net.times.resident_peak}};
  json["complete"] = !net.times.interrupted;
  json["notes"] = notes(net);
  if (profile) json["profile"] = to_json(*profile);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string render(const TimedNet& net, Format format, const Profile* profile) {
  if (format == Format::json) return render_json(net, profile);
  if (format == Format::csv) {
    Report report = profile ? profile->kernels : full_steps(net);
    report.notes = notes(net);
    report.provenance = net.provenance;
    return render(report, format);
  }
  Report steps = reading_steps(net), kinds = reading_kinds(net);
  steps.notes = {legend(net)};
  kinds.notes = notes(net);
  kinds.provenance = net.provenance;
  const std::string text = render(steps, format) + "\n" + render(kinds, format);
  return profile ? text + "\n" + render(*profile, format) : text;
}

}  // namespace convlab
