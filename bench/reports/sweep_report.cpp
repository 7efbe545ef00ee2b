#include "bench/reports/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "autotune/measure/measure.h"
#include "autotune/race/race.h"
#include "autotune/race/runner.h"
#include "bench/reports/algo_marks.h"
#include "bench/reports/gnuplot.h"
#include "bench/reports/tune_cells.h"
#include "bench/reports/tune_report.h"
#include "conv/text/counted.h"

namespace convlab {
namespace {

using Json = nlohmann::ordered_json;

// One pass along the first axis, with the other axes fixed.
struct Line {
  Pass pass = Pass::forward;
  std::vector<std::string> others;     // values of the other axes
  std::vector<const LayerResult*> at;  // by value of the first axis; null if not known
  std::vector<const SweepPoint*> points;
};

std::vector<Line> lines(const Sweep& s) {
  const std::size_t values = s.axes.front().values.size(), combinations = s.points.size() / values;
  std::vector<Line> lines;
  for (std::size_t j = 0; j < s.passes.size(); ++j)
    for (std::size_t c = 0; c < combinations; ++c) {
      Line line;
      line.pass = s.passes[j];
      line.others.assign(s.points[c].values.begin() + 1, s.points[c].values.end());
      for (std::size_t v = 0; v < values; ++v) {
        const std::size_t i = v * combinations + c;
        const LayerResult& layer = s.layers[i * s.passes.size() + j];
        const bool known =
            layer.chosen && (s.predicted || !layer.candidates[*layer.chosen].predicted);
        line.at.push_back(known ? &layer : nullptr);
        line.points.push_back(&s.points[i]);
      }
      lines.push_back(std::move(line));
    }
  return lines;
}

std::size_t known_values(const Line& line) {
  return line.at.size() - std::size_t(std::ranges::count(line.at, nullptr));
}

// "fwd", "fwd dtype=f64"
std::string show(const Sweep& s, const Line& line) {
  std::string text(to_string(line.pass));
  for (std::size_t i = 0; i < line.others.size(); ++i)
    text += fmt::format(" {}={}", s.axes[i + 1].name, line.others[i]);
  return text;
}

const Candidate& chosen(const LayerResult& layer) { return layer.candidates[*layer.chosen]; }

// Costs as in the tuner: packing the filter is part of a training step.
double cost(const Sweep& s, Pass pass, const Candidate& c) {
  const bool training = s.passes != std::vector{Pass::forward};
  return cost_ms(c, training && pass != Pass::backward_filter);
}

bool has_time(const Candidate& c) {
  return (c.status == Status::ok || c.status == Status::dropped) && c.ms > 0;
}

// The fastest of one algorithm's candidates; those that ran come before predicted ones.
const Candidate* best_of(const Sweep& s, Pass pass, const LayerResult& layer,
                         const std::string& algo) {
  const Candidate* best = nullptr;
  for (const Candidate& c : layer.candidates) {
    if (c.algo != algo || !has_time(c)) continue;
    if (!best ||
        std::pair(c.predicted, cost(s, pass, c)) < std::pair(best->predicted, cost(s, pass, *best)))
      best = &c;
  }
  return best;
}

// ---- Winners along an axis ----

struct Segment {
  std::size_t from = 0, to = 0;  // values of the first axis
  std::string algo;
};

// A point whose choice ties with the algorithm that won before it starts no new segment.
std::vector<Segment> segments(const Sweep& s, const Line& line) {
  std::vector<Segment> segments;
  for (std::size_t v = 0; v < line.at.size(); ++v) {
    if (!line.at[v]) continue;
    const Candidate& winner = chosen(*line.at[v]);
    bool same = false;
    if (!segments.empty() && segments.back().to + 1 == v) {
      const std::string& before = segments.back().algo;
      const Candidate* other = best_of(s, line.pass, *line.at[v], before);
      same = winner.algo == before ||
             (line.at[v]->verdict == Verdict::tie && other && !other->predicted &&
              cost(s, line.pass, *other) <= (1 + tie_margin) * cost(s, line.pass, winner));
    }
    if (same)
      segments.back().to = v;
    else
      segments.push_back({v, v, winner.algo});
  }
  return segments;
}

// ---- The cost of using a plan tuned at one value at another ----

struct Regret {
  double ratio = 0;        // 0: cannot run there
  bool predicted = false;  // never ran there
};

// Beyond this many values, a table of all pairs is too large to read.
constexpr std::size_t most_regrets = 32;

// The same configuration if the problem offers it, else the algorithm's best there.
Regret regret(const Sweep& s, const Line& line, std::size_t tuned, std::size_t used) {
  const Candidate& plan = chosen(*line.at[tuned]);
  const LayerResult& there = *line.at[used];
  const Candidate* it = nullptr;
  for (const Candidate& c : there.candidates)
    if (candidate_key(c) == candidate_key(plan) && has_time(c)) it = &c;
  if (!it) it = best_of(s, line.pass, there, plan.algo);
  if (!it) return {};
  return {cost(s, line.pass, *it) / cost(s, line.pass, chosen(there)), it->predicted};
}

std::string show(const Regret& r) {
  if (r.ratio <= 0) return "-";
  return fmt::format("{}{:.2f}", r.predicted ? "~" : "", r.ratio);
}

// The most expensive measured mistake in a sentence; in a predicted sweep, the most expensive
// predicted one.
std::string worst_regret(const Sweep& s, const Line& line) {
  const Axis& axis = s.axes.front();
  const std::string where = show(s, line) + (s.predicted ? ", as predicted" : "");
  if (known_values(line) < 2)
    return fmt::format("{}: too few results to compare plans along {}.", where, axis.name);
  double worst = 1 + tie_margin;
  std::string text;
  int unknown = 0;  // pairs whose plan has no time at the other value
  for (std::size_t i = 0; i < line.at.size(); ++i)
    for (std::size_t j = 0; j < line.at.size(); ++j) {
      if (!line.at[i] || !line.at[j]) continue;
      const Regret r = regret(s, line, i, j);
      const bool known = r.ratio > 0 && (!r.predicted || s.predicted);
      unknown += !known;
      if (!known || r.ratio <= worst) continue;
      worst = r.ratio;
      const Candidate &plan = chosen(*line.at[i]), &best = chosen(*line.at[j]);
      // If both use one algorithm, the configs or layouts differ.
      const bool choices = plan.algo == best.algo;
      text =
          fmt::format("{}: the plan tuned at {}={} ({}) costs {}x at {}={}, where {} wins.", where,
                      axis.name, axis.values[i], choices ? show_choice(plan) : plan.algo, show(r),
                      axis.name, axis.values[j], choices ? show_choice(best) : best.algo);
    }
  if (!text.empty()) return text;
  if (unknown > 0)
    return fmt::format("{}: no plan costs more elsewhere, as far as it was measured there.", where);
  return fmt::format("{}: one plan does for every {} {}.", where, axis.name,
                     s.predicted ? "here" : "that was measured");
}

// ---- Tables ----

std::vector<std::string> axis_columns(const Sweep& s, std::vector<std::string> more) {
  std::vector<std::string> columns{"pass"};
  for (const Axis& axis : s.axes) columns.push_back(axis.name);
  columns.insert(columns.end(), more.begin(), more.end());
  return columns;
}

std::vector<Cell> axis_cells(const Line& line, const SweepPoint& point) {
  std::vector<Cell> cells{to_string(line.pass)};
  for (const std::string& value : point.values) cells.emplace_back(value);
  return cells;
}

Report winners(const Sweep& s, bool wide) {
  Report report;
  report.width = wide ? 0 : terminal_width;
  report.columns = wide ? axis_columns(s, {"algo", "config", "layouts", "ms", "eff_gflops",
                                           "verdict", "next best"})
                        : axis_columns(s, {"algo", "ms", "verdict", "next best"});
  for (const Line& line : lines(s))
    for (std::size_t v = 0; v < line.at.size(); ++v) {
      if (!line.at[v]) continue;
      const Candidate& c = chosen(*line.at[v]);
      std::vector<Cell> row = axis_cells(line, *line.points[v]);
      row.emplace_back(c.algo);
      if (wide) row.insert(row.end(), {c.config.text(), show_layouts(c)});
      row.push_back(time_cell(c));
      if (wide) row.push_back(gflops_cell(c.eff_gflops));
      row.insert(row.end(), {to_string(line.at[v]->verdict), show_next_best(*line.at[v], wide)});
      report.rows.push_back(std::move(row));
    }
  return report;
}

Report crossovers(const Sweep& s) {
  Report report;
  report.width = s.wide ? 0 : terminal_width;
  report.columns = {"pass"};
  for (std::size_t i = 1; i < s.axes.size(); ++i) report.columns.push_back(s.axes[i].name);
  report.columns.insert(report.columns.end(), {s.axes.front().name, "wins"});
  const std::vector<std::string>& values = s.axes.front().values;
  for (const Line& line : lines(s))
    for (const Segment& segment : segments(s, line)) {
      std::vector<Cell> row{to_string(line.pass)};
      for (const std::string& other : line.others) row.emplace_back(other);
      row.emplace_back(segment.from == segment.to
                           ? values[segment.from]
                           : fmt::format("{} .. {}", values[segment.from], values[segment.to]));
      row.emplace_back(segment.algo);
      report.rows.push_back(std::move(row));
    }
  return report;
}

// One row per value that a plan was tuned at, one column per value where it is used.
Report regrets(const Sweep& s) {
  Report report;
  const Axis& axis = s.axes.front();
  report.columns = {"plan tuned at"};
  for (const std::string& value : axis.values)
    report.columns.push_back(fmt::format("at {}={}", axis.name, value));
  for (const Line& line : lines(s))
    for (std::size_t i = 0; i < line.at.size(); ++i) {
      if (!line.at[i]) continue;
      std::vector<Cell> row{fmt::format("{} {}={} {}", show(s, line), axis.name, axis.values[i],
                                        chosen(*line.at[i]).algo)};
      for (std::size_t j = 0; j < line.at.size(); ++j) {
        if (!line.at[j]) {
          row.emplace_back();
          continue;
        }
        const Regret r = regret(s, line, i, j);
        row.push_back(r.ratio > 0 ? Cell(r.ratio, show(r)) : Cell("-"));
      }
      report.rows.push_back(std::move(row));
    }
  return report;
}

std::vector<std::string> notes(const Sweep& s) {
  std::vector<std::string> notes;
  if (s.base.transposed) notes.push_back(transposed_note(s.base));
  std::ptrdiff_t without = 0;
  for (const Line& line : lines(s)) {
    notes.push_back(worst_regret(s, line));
    without += std::count(line.at.begin(), line.at.end(), nullptr);
  }
  if (without > 0)
    notes.push_back(fmt::format("{} no result: not reached, or nothing works there.",
                                counted(without, "point has", "points have")));
  if (!s.complete) notes.emplace_back("Stopped early: the same command goes on from here.");
  std::size_t known = 0, unsure = 0;
  for (const Line& line : lines(s))
    for (const LayerResult* layer : line.at) {
      known += layer != nullptr;
      unsure += layer && layer->verdict == Verdict::unsure;
    }
  if (const std::string note = unsure_note(unsure, known, s.disturbances, true); !note.empty())
    notes.push_back(note);
  return notes;
}

// Every algorithm's best at every point.
Report full_report(const Sweep& s) {
  Report report;
  report.columns = axis_columns(s, {"problem", "epilogue", "algo", "config", "x_layout", "y_layout",
                                    "status", "predicted", "chosen", "ms", "mad_ms", "pack_ms",
                                    "eff_gflops", "exec_gflops", "rel_error", "workspace_bytes"});
  const auto exact = [](double value) { return Cell(value, ""); };
  for (const Line& line : lines(s))
    for (std::size_t v = 0; v < line.at.size(); ++v) {
      if (!line.at[v]) continue;
      const LayerResult& layer = *line.at[v];
      std::vector<std::string> done;
      for (const Candidate& candidate : layer.candidates) {
        const bool first = std::find(done.begin(), done.end(), candidate.algo) == done.end();
        const Candidate* const c = first ? best_of(s, line.pass, layer, candidate.algo) : nullptr;
        if (!c) continue;
        done.push_back(c->algo);
        const auto measured = [&](Cell cell) { return c->predicted ? Cell() : std::move(cell); };
        std::vector<Cell> row = axis_cells(line, *line.points[v]);
        row.insert(row.end(),
                   {line.points[v]->layer.text(), extras_of(layer.layer.problem), c->algo,
                    c->config.text(), show_layout(*c, c->x_layout), show_layout(*c, c->y_layout),
                    to_string(c->status), std::int64_t(c->predicted),
                    std::int64_t(c == &chosen(layer)), exact(c->ms), measured(exact(c->mad_ms)),
                    measured(exact(c->pack_ms)), exact(c->eff_gflops), exact(c->exec_gflops),
                    measured(exact(c->rel_error)), measured(c->workspace_bytes)});
        report.rows.push_back(std::move(row));
      }
    }
  return report;
}

// ---- JSON ----

Json point_json(const Sweep& s, const SweepPoint& point) {
  Json json = Json::object();
  for (std::size_t i = 0; i < s.axes.size(); ++i) {
    const bool number = s.axes[i].name != "dtype" && s.axes[i].name != "layout";
    json[s.axes[i].name] = number ? Json(std::stoll(point.values[i])) : Json(point.values[i]);
  }
  return json;
}

std::string render_json(const Sweep& s) {
  Json json{{"convlab_sweep", sweep_format},
            {"provenance", Json::object()},
            {"problem", s.base.text()},
            {"axes", Json::array()},
            {"layers", Json::array()},
            {"crossovers", Json::array()},
            {"regrets", Json::array()},
            {"complete", s.complete},
            {"notes", notes(s)}};
  for (const auto& [name, value] : s.provenance.fields) json["provenance"][name] = value;
  for (const Axis& axis : s.axes)
    json["axes"].push_back({{"name", axis.name}, {"values", axis.values}});
  for (const Line& line : lines(s)) {
    const auto place = [&](std::size_t v) { return point_json(s, *line.points[v]); };
    for (std::size_t v = 0; v < line.at.size(); ++v)
      if (line.at[v]) {
        Json layer = layer_json(*line.at[v]);
        layer["point"] = place(v);
        json["layers"].push_back(std::move(layer));
      }
    for (const Segment& segment : segments(s, line))
      json["crossovers"].push_back({{"pass", to_string(line.pass)},
                                    {"from", place(segment.from)},
                                    {"to", place(segment.to)},
                                    {"algo", segment.algo}});
    for (std::size_t i = 0; i < line.at.size() && line.at.size() <= most_regrets; ++i)
      for (std::size_t j = 0; j < line.at.size(); ++j) {
        if (!line.at[i] || !line.at[j] || i == j) continue;
        const Regret r = regret(s, line, i, j);
        json["regrets"].push_back({{"pass", to_string(line.pass)},
                                   {"tuned_at", place(i)},
                                   {"used_at", place(j)},
                                   {"ratio", r.ratio > 0 ? Json(r.ratio) : Json()},
                                   {"predicted", r.predicted}});
      }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// ---- Charts ----

// "; 5 of 7 values have no result; 2 are UNSURE": exceptions to the finding.
std::string reservations(const Line& line) {
  const std::size_t all = line.at.size(), known = known_values(line);
  const auto unsure = std::ranges::count_if(
      line.at, [](const LayerResult* at) { return at && at->verdict == Verdict::unsure; });
  std::string text;
  if (known < all) text += fmt::format("; {} of {} values have no result", all - known, all);
  if (unsure > 0) text += fmt::format("; {} of {} UNSURE", unsure, known);
  return text;
}

// The finding, as in "fwd: direct wins up to n=2, then fft".
std::string headline(const Sweep& s, const Line& line) {
  const std::string wins = s.predicted ? "is predicted to win" : "wins";
  const Axis& axis = s.axes.front();
  const std::vector<Segment> found = segments(s, line);
  std::string text = show(s, line) + ": ";
  if (found.empty()) return text + "no result";
  const std::string but = reservations(line);
  if (std::ranges::all_of(found, [&](auto& f) { return f.algo == found.front().algo; }))
    return text + fmt::format("{} {} {}{}", found.front().algo, wins,
                              known_values(line) < line.at.size() ? "where there is a result"
                                                                  : "throughout",
                              but);
  // A line with more changes is summarised by the algorithm that wins most of it.
  if (found.size() > 3) {
    std::map<std::string, std::size_t> points;
    for (const Segment& segment : found) points[segment.algo] += segment.to + 1 - segment.from;
    const auto most = std::max_element(points.begin(), points.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    return text + fmt::format("{} {} at {} of {} values of {}{}", most->first, wins, most->second,
                              known_values(line), axis.name, but);
  }
  for (const Segment& segment : found)
    text += &segment == &found.front()
                ? fmt::format("{} {} up to {}={}", segment.algo, wins, axis.name,
                              axis.values[segment.to])
                : fmt::format(", {} from {}", segment.algo, axis.values[segment.from]);
  return text + but;
}

// Algorithms by how close they come to the best anywhere on the line, closest first.
std::vector<std::string> leading_algos(const Sweep& s, const Line& line) {
  std::map<std::string, double> nearness;
  for (const LayerResult* layer : line.at)
    for (const Candidate& c : layer ? layer->candidates : std::vector<Candidate>())
      if (has_time(c) && (!c.predicted || s.predicted)) {
        double& best = nearness[c.algo];
        best = std::max(best, cost(s, line.pass, chosen(*layer)) / cost(s, line.pass, c));
      }
  std::vector<std::string> algos;
  for (const auto& [algo, ratio] : nearness) algos.push_back(algo);
  std::stable_sort(algos.begin(), algos.end(), [&](const std::string& a, const std::string& b) {
    return nearness[a] > nearness[b];
  });
  return algos;
}

// One chart of at most `most` algorithms. Values are spaced evenly, whatever they are.
std::string line_script(const Sweep& s, const Line& line, ChartKind kind, std::size_t most) {
  std::vector<std::string> algos = leading_algos(s, line);
  if (algos.empty()) return "";
  const std::size_t left_out = algos.size() - std::min(algos.size(), most);
  algos.resize(algos.size() - left_out);
  std::string script = "$data << EOD\n";
  for (std::size_t v = 0; v < line.at.size(); ++v) {
    script += fmt::format("{} {}", v, s.axes.front().values[v]);
    for (const std::string& algo : algos) {
      const Candidate* c = line.at[v] ? best_of(s, line.pass, *line.at[v], algo) : nullptr;
      script += c && (!c->predicted || s.predicted) ? fmt::format(" {:.6g}", c->eff_gflops) : " ?";
    }
    script += "\n";
  }
  script += fmt::format(
      "EOD\nset datafile missing '?'\n{}set xlabel {}\nset yrange [0:*]\n"
      "set xrange [-0.3:{}]\nplot ",
      chart_titles(headline(s, line), "eff GFLOP/s", kind),
      gnuplot_quoted(
          fmt::format("{} of {}{}", s.axes.front().name, s.base.text(),
                      left_out > 0 ? fmt::format("; {} slower ones left out", left_out) : "")),
      double(line.at.size()) - 0.7);
  for (std::size_t i = 0; i < algos.size(); ++i)
    script +=
        fmt::format("{}$data using 1:{}:xtic(2) with linespoints lw 2 {} title {}",
                    i > 0 ? ", " : "", i + 3, algo_mark(algos[i], kind), gnuplot_quoted(algos[i]));
  return script + "\n";
}

}  // namespace

std::string render(const Sweep& sweep, Format format) {
  if (format == Format::json) return render_json(sweep);
  if (format == Format::csv) {
    Report report = full_report(sweep);
    report.notes = notes(sweep);
    report.provenance = sweep.provenance;
    return render(report, format);
  }
  const bool wide = sweep.wide || format == Format::md;
  std::vector<Report> reports{winners(sweep, wide), crossovers(sweep)};
  if (sweep.axes.front().values.size() <= most_regrets) {
    Report costs = regrets(sweep);
    costs.width = wide ? 0 : terminal_width;
    // A table of numbers cannot be narrowed. Its most expensive entry is in the notes anyway.
    if (fits(costs)) {
      costs.notes = {"Times over the best there; - cannot run there, ~ predicted."};
      reports.push_back(std::move(costs));
    } else {
      reports.back().notes = {"What each plan costs at the other values: --wide."};
    }
  }
  for (std::string& note : notes(sweep)) reports.back().notes.push_back(std::move(note));
  reports.back().provenance = sweep.provenance;
  std::string text;
  for (const Report& report : reports) text += (text.empty() ? "" : "\n") + render(report, format);
  return text;
}

std::string text_chart_script(const Sweep& sweep, int columns) {
  std::string script =
      fmt::format("set terminal dumb {} 22 noenhanced\nset key outside\n", columns);
  for (const Line& line : lines(sweep)) script += line_script(sweep, line, ChartKind::text, 5);
  return script;
}

std::string svg_chart_script(const Sweep& sweep) {
  const std::vector<Line> all = lines(sweep);
  std::string script = fmt::format(
      "set terminal svg size 900,{} noenhanced font 'sans-serif,13' background '#ffffff'\n"
      "set key outside\nset grid ytics\nset multiplot layout {},1\n",
      360 * all.size(), all.size());
  for (const Line& line : all) script += line_script(sweep, line, ChartKind::picture, 12);
  return script + "unset multiplot\n";
}

}  // namespace convlab
