#include "bench/reports/nets/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace convlab {

using namespace nets;
namespace {

bool training(const PlannedReport& r) { return r.plan.mode == Mode::training; }

std::vector<Pass> passes(const PlannedReport& r) {
  if (!training(r)) return {Pass::forward};
  return {all_passes.begin(), all_passes.end()};
}

bool measured(const StepPlan& step) {
  return std::all_of(step.passes.begin(), step.passes.end(),
                     [](const auto& pass) { return !pass || pass->measured; });
}

std::string show_expected(double ms, bool from_store) {
  return (from_store || ms <= 0 ? "" : "~") + show_ms(ms);
}

Cell expected_cell(double ms, bool from_store) {
  if (ms <= 0) return {};
  return {ms, show_expected(ms, from_store)};
}

Cell pass_cell(const std::optional<PassPlan>& pass) {
  return pass ? expected_cell(pass->ms, pass->measured) : Cell();
}

// "3 x 16 images": a pass that takes the batch in pieces.
std::string pieces(const StepPlan& step) {
  std::string text;
  for (std::size_t i = 0; i < step.passes.size(); ++i)
    if (const auto& pass = step.passes[i]; pass && pass->images > 0)
      text += fmt::format("{}{} by {}", text.empty() ? "" : ", ", to_string(all_passes[i]),
                          pass->images);
  return text;
}

Report reading_report(const PlannedReport& r) {
  Report report;
  report.columns = {"layer"};
  if (r.wide) {
    for (const Pass pass : passes(r)) report.columns.emplace_back(to_string(pass));
    report.columns.insert(report.columns.end(), {"other", "convert"});
  }
  report.columns.emplace_back("expected");
  if (r.audit) report.columns.insert(report.columns.end(), {"measured", "ratio"});
  report.columns.insert(report.columns.end(), {"layouts", "algo"});
  const bool split = std::any_of(r.plan.steps.begin(), r.plan.steps.end(),
                                 [](const StepPlan& step) { return !pieces(step).empty(); });
  if (split) report.columns.emplace_back("images");
  for (std::size_t i = 0; i < r.steps.size(); ++i) {
    const StepInfo& info = r.steps[i];
    const StepPlan& step = r.plan.steps[i];
    if (info.kind == "input") continue;
    std::vector<Cell> row{info.layer + info.suffix};
    const double expected = expected_ms(step);
    if (r.wide) {
      for (const Pass pass : passes(r)) row.push_back(pass_cell(step.passes[std::size_t(pass)]));
      row.push_back(expected_cell(step.other_ms, false));
      row.push_back(expected_cell(step.convert_ms, false));
    }
    row.push_back(expected_cell(expected, measured(step) && step.other_ms <= 0));
    if (r.audit) {
      const double ms = r.audit->step_ms(i);
      row.push_back(ms > 0 ? ms_cell(ms) : Cell());
      row.push_back(ms > 0 && expected > 0
                        ? Cell(ms / expected, fmt::format("{:.2f}", ms / expected))
                        : Cell());
    }
    row.push_back(info.layouts());
    row.push_back(info.algos());
    if (split) row.push_back(pieces(step));
    report.rows.push_back(std::move(row));
  }
  return report;
}

Report full_report(const PlannedReport& r) {
  Report report;
  report.columns = {"layer", "fused", "kind", "x_layout", "y_layout"};
  for (const Pass pass : passes(r))
    for (const char* what : {"algo", "config", "images", "ms", "source"})
      report.columns.push_back(fmt::format("{}_{}", to_string(pass), what));
  report.columns.insert(report.columns.end(), {"other_ms", "convert_ms", "expected_ms"});
  if (r.audit) report.columns.insert(report.columns.end(), {"measured_ms", "measured_mad_ms"});
  const auto exact = [](double value) { return Cell(value, ""); };
  for (std::size_t i = 0; i < r.steps.size(); ++i) {
    const StepInfo& info = r.steps[i];
    const StepPlan& step = r.plan.steps[i];
    std::vector<Cell> row{info.layer, info.suffix, info.kind, to_string(step.x_layout),
                          to_string(step.y_layout)};
    for (const Pass pass : passes(r)) {
      if (const auto& plan = step.passes[std::size_t(pass)])
        row.insert(row.end(), {plan->algo, plan->config.text(), plan->images, exact(plan->ms),
                               plan->measured ? "store" : "prediction"});
      else
        row.resize(row.size() + 5);
    }
    row.insert(row.end(), {exact(step.other_ms), exact(step.convert_ms), exact(expected_ms(step))});
    if (r.audit)
      row.insert(row.end(), {exact(r.audit->step_ms(i)), exact(r.audit->step_mad_ms(i))});
    report.rows.push_back(std::move(row));
  }
  return report;
}

void append_audit(const PlannedReport& r, std::vector<std::string>& notes) {
  const double expected = r.plan.ms(), measured = r.audit->iteration_ms();
  double steps = 0;
  for (std::size_t i = 0; i < r.steps.size(); ++i) steps += r.audit->step_ms(i);
  if (measured > 0)
    notes.push_back(fmt::format(
        "measured   {} ms an iteration, {:.2f}x the expected, {} images/s; {} ms as the sum "
        "of steps",
        show_ms(measured), measured / expected,
        show_images_per_s(1e3 * double(r.plan.batch) / measured), show_ms(steps)));
  constexpr std::size_t most = 10;
  const std::vector<Surprise> all = surprises(r.plan, *r.audit);
  for (std::size_t i = 0; i < std::min(all.size(), most); ++i) {
    const Surprise& s = all[i];
    notes.push_back(fmt::format("otherwise  {}: expected {} ms, took {} ({:.2f}x)",
                                r.steps[s.step].layer, show_ms(s.expected_ms),
                                show_ms(s.measured_ms), s.measured_ms / s.expected_ms));
  }
  if (all.size() > most)
    notes.push_back(fmt::format("           and {} more, less far off", all.size() - most));
  if (all.empty() && measured > 0) notes.push_back("otherwise  no step behaves in the net");
  const MemoryUse& m = r.audit->memory;
  const auto bytes = [](std::size_t count) { return show_bytes(std::int64_t(count)); };
  notes.push_back(
      fmt::format("memory     {}, workspace {} of it", bytes(m.total), bytes(m.workspace)));
  if (const std::string line = unrest(*r.audit); !line.empty()) notes.push_back(line);
  if (r.audit->interrupted) notes.push_back("Stopped early: the audit is of what had run by then.");
}

std::vector<std::string> notes(const PlannedReport& r) {
  double conv = 0, other = 0, convert = 0;
  for (const StepPlan& step : r.plan.steps) {
    for (const auto& pass : step.passes)
      if (pass) conv += pass->ms;
    other += step.other_ms;
    convert += step.convert_ms;
  }
  const double ms = r.plan.ms();
  const bool known = std::all_of(r.plan.steps.begin(), r.plan.steps.end(), measured);
  const bool recurrent = std::any_of(r.steps.begin(), r.steps.end(),
                                     [](const StepInfo& step) { return step.kind == "recurrent"; });
  const char* const planned = recurrent ? "convolutions and recurrent layers" : "convolutions";
  std::vector<std::string> notes;
  notes.push_back(fmt::format(
      "expected   {} ms an iteration, {} images/s: {} {}, other layers {}, "
      "converting layouts {}",
      show_expected(ms, known && other <= 0 && convert <= 0),
      show_images_per_s(1e3 * double(r.plan.batch) / ms), planned, show_expected(conv, known),
      show_expected(other, false), show_expected(convert, false)));
  if (r.unlimited_ms)
    notes.push_back(fmt::format(
        "limit      {}; without a limit {} ms: it costs {:.1f}%",
        r.plan.workspace_max
            ? fmt::format("{} of workspace and packed filters", show_bytes(*r.plan.workspace_max))
        : r.plan.mode == Mode::training
            ? "a sixth of weights and activations, 96 MiB at least, training's default"
            : "little more than weights and activations, inference's default",
        show_ms(*r.unlimited_ms), 100 * (ms / *r.unlimited_ms - 1)));
  notes.push_back(fmt::format("times      expected are those of {} alone, with a {} cache", planned,
                              to_string(r.cache)));
  if (r.cache == CacheMode::hot)
    notes.emplace_back(
        "           in a net they are often 2% to 38% off: the audit measures there; see --cache "
        "cold");
  if (r.audit) append_audit(r, notes);
  return notes;
}

}  // namespace

double expected_ms(const StepPlan& step) {
  double ms = step.other_ms + step.convert_ms;
  for (const auto& pass : step.passes)
    if (pass) ms += pass->ms;
  return ms;
}

std::vector<Surprise> surprises(const NetPlan& plan, const NetTimes& times) {
  double total = 0;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) total += times.step_ms(i);
  std::vector<Surprise> found;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const double expected = expected_ms(plan.steps[i]), measured = times.step_ms(i);
    if (measured <= 0 || expected <= 0) continue;
    // A median absolute deviation is 0.67 standard deviations of a normal distribution.
    const double noise = 4.5 * times.step_mad_ms(i);
    const double off = std::abs(measured - expected);
    if (off > std::max({0.1 * expected, noise, total / 200}))
      found.push_back({i, expected, measured});
  }
  std::stable_sort(found.begin(), found.end(), [](const Surprise& a, const Surprise& b) {
    return std::abs(a.measured_ms - a.expected_ms) > std::abs(b.measured_ms - b.expected_ms);
  });
  return found;
}

std::string render(const PlannedReport& r, Format format) {
  if (format == Format::json) return to_json(r.plan);
  Report report = format == Format::csv ? full_report(r) : reading_report(r);
  report.notes = notes(r);
  report.provenance = r.provenance;
  return render(report, format);
}

}  // namespace convlab
