#include "bench/reports/roofline/roofline_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/reports/algo_marks.h"
#include "bench/reports/gnuplot.h"
#include "conv/text/counted.h"
#include "conv/types/math_type.h"

namespace convlab {
namespace {

Cell percent_cell(double percent) { return {percent, fmt::format("{:.0f}", percent)}; }
Cell ratio_cell(double value) { return {value, fmt::format("{:.1f}", value)}; }

const RooflineLevel* limiting_level(const RooflinePoint& p) {
  for (const RooflineLevel& level : p.levels)
    if (level.level == p.limit) return &level;
  return p.levels.empty() ? nullptr : &p.levels.back();
}

// FLOPs per byte at the level where a point is drawn: the limiting level, else the farthest.
double intensity(const RooflinePoint& p) {
  const RooflineLevel* level = limiting_level(p);
  return level ? level->flops_per_byte : 0;
}

struct Panel {
  bool backward;  // forward comes first
  std::string pass, dtype;
  int threads;
  auto operator<=>(const Panel&) const = default;
};

std::map<Panel, std::vector<const RooflinePoint*>> panels(const RooflineReport& report) {
  std::map<Panel, std::vector<const RooflinePoint*>> found;
  for (const RooflinePoint& p : report.points)
    if (p.status != "above roof" && intensity(p) > 0)
      found[{p.pass != "fwd", p.pass, p.dtype, int(p.threads)}].push_back(&p);
  return found;
}

// The time that the chosen would need at their roofs, in percent of their measured time.
double percent_of_roofs(const std::vector<const RooflinePoint*>& chosen) {
  double ms = 0, headroom_ms = 0;
  for (const RooflinePoint* p : chosen) {
    ms += double(p->count) * p->ms;
    headroom_ms += double(p->count) * p->headroom_ms;
  }
  return ms > 0 ? 100 * (1 - headroom_ms / ms) : 0;
}

// "winograd is chosen in 17 of 33"; ties go to the first by name.
std::string most_chosen(const std::vector<const RooflinePoint*>& chosen) {
  std::map<std::string, int> times;
  for (const RooflinePoint* p : chosen) ++times[p->algo];
  const auto most = std::max_element(times.begin(), times.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return fmt::format("{} is chosen in {} of {}", most->first, most->second, chosen.size());
}

std::string panel_title(const Panel& panel, const std::vector<const RooflinePoint*>& points) {
  std::string title =
      fmt::format("{} {}, {}", panel.pass, panel.dtype, counted(panel.threads, "thread"));
  std::vector<const RooflinePoint*> chosen;
  for (const RooflinePoint* p : points)
    if (p->chosen) chosen.push_back(p);
  if (!chosen.empty())
    title +=
        fmt::format(": {}, at {:.0f}% of the roofs", most_chosen(chosen), percent_of_roofs(chosen));
  return title;
}

// One panel's plot command with its data in line.
std::string plot_panel(const Panel& panel, const std::vector<const RooflinePoint*>& points,
                       const std::vector<Roof>& roofs, ChartKind kind) {
  std::map<std::string, std::vector<const RooflinePoint*>> by_algo;
  double least = 0.1, most = 1000, lowest = 1e9;
  for (const RooflinePoint* p : points) {
    by_algo[p->algo].push_back(p);
    least = std::min(least, intensity(*p) / 2);
    most = std::max(most, intensity(*p) * 2);
    lowest = std::min(lowest, p->attained_gflops / 3);
  }
  // A CPU computes the 16-bit types in f32. A card has peaks of its own for them.
  const bool computed_in_f32 =
      peak_of(roofs, panel.threads, panel.dtype) <= 0 && size_of(parse_dtype(panel.dtype)) == 2;
  // The matrix unit's as well where a point is of its products.
  std::vector<std::string> units{panel.dtype};
  if (computed_in_f32) units = {std::string(to_string(DType::f32))};
  if (std::any_of(points.begin(), points.end(), [](const RooflinePoint* p) {
        return multiplies_bf16(math_type(Config::parse(p->config)));
      }))
    units.emplace_back(bf16_tiles);
  const auto peak_gflops = [&](const std::string& unit) {
    return peak_of(roofs, panel.threads, unit) / 1e9;
  };
  double peak = 0;  // the highest
  for (const std::string& unit : units) peak = std::max(peak, peak_gflops(unit));
  std::string script =
      fmt::format("{}set xrange [{}:{}]\nset yrange [{}:{}]\n",
                  chart_titles(panel_title(panel, points), "executed GFLOP/s", kind), least, most,
                  lowest, peak > 0 ? peak * 2 : 1e5);
  std::vector<std::string> plots;
  int level_number = 0;
  for (const char* level : memory_levels) {
    ++level_number;
    const double bandwidth = bandwidth_of(roofs, panel.threads, level) / 1e9;
    if (bandwidth <= 0) continue;
    const std::string slope = fmt::format("{}*x", bandwidth);
    // The line type is for terminals, the dashes for SVG.
    plots.push_back(fmt::format(
        "({}) with lines lt {} lc rgb '#707070' dt {} title {}",
        peak > 0 ? fmt::format("{0} < {1} ? {0} : 1/0", slope, peak) : slope, level_number,
        level_number, gnuplot_quoted(fmt::format("{} {:.0f} GB/s", level, bandwidth))));
  }
  for (const std::string& unit : units)
    if (const double gflops = peak_gflops(unit); gflops > 0)
      plots.push_back(
          fmt::format("{} with lines lt {} lc rgb 'black' lw 1.5 title {}", gflops, ++level_number,
                      gnuplot_quoted(fmt::format("{} peak {:.0f} GFLOP/s", unit, gflops))));
  std::string data;
  for (const auto& group : by_algo) {
    plots.push_back(fmt::format("'-' using 1:2 with points {} title {}",
                                algo_mark(group.first, kind), gnuplot_quoted(group.first)));
    for (const RooflinePoint* p : group.second)
      data += fmt::format("{} {}\n", intensity(*p), p->attained_gflops);
    data += "e\n";
  }
  return fmt::format("{}plot {}\n{}", script, fmt::join(plots, ", "), data);
}

std::string chart_script(const RooflineReport& report, const std::string& terminal,
                         ChartKind kind) {
  const auto parts = panels(report);
  std::string script = fmt::format(
      "{}set logscale xy\nset xlabel 'executed FLOPs per byte'\nset key outside right\n"
      "set samples 1000\nset multiplot layout {},1{}\n",
      terminal, parts.size(),
      kind == ChartKind::picture ? " title " + gnuplot_quoted(roofline_headline(report)) : "");
  for (const auto& part : parts) script += plot_panel(part.first, part.second, report.roofs, kind);
  return script + "unset multiplot\n";
}

}  // namespace

std::string roofline_headline(const RooflineReport& report) {
  std::vector<const RooflinePoint*> chosen;
  const RooflinePoint* dearest = nullptr;
  double ms = 0, headroom_ms = 0;
  const auto headroom = [](const RooflinePoint* p) { return double(p->count) * p->headroom_ms; };
  for (const RooflinePoint& p : report.points) {
    if (!p.chosen) continue;
    chosen.push_back(&p);
    ms += double(p.count) * p.ms;
    headroom_ms += headroom(&p);
    if (!dearest || headroom(&p) > headroom(dearest)) dearest = &p;
  }
  if (chosen.empty())
    return report.points.empty() ? "No point was measured" : "Nothing is chosen yet";
  const std::string text = fmt::format("{} cases; {:.3g} of {:.3g} ms could be saved at the roofs",
                                       most_chosen(chosen), std::max(headroom_ms, 0.0), ms);
  return headroom(dearest) > 0
             ? fmt::format("{}, most in {} {}", text, dearest->layer, dearest->pass)
             : text;
}

Report roofline_table(const RooflineReport& report) {
  Report table;
  table.columns = {"layer",       "batch",       "pass",      "algo",   "config",      "layouts",
                   "ms",          "exec_gflops", "flop/byte", "limit",  "roof_gflops", "%_of_roof",
                   "headroom_ms", "workspace",   "chosen",    "status", "verdict"};
  for (const RooflinePoint& p : report.points)
    table.rows.push_back({p.layer, p.batch, p.pass, p.algo, p.config, p.layouts, ms_cell(p.ms),
                          gflops_cell(p.attained_gflops), ratio_cell(intensity(p)), p.limit,
                          gflops_cell(p.attainable_gflops), percent_cell(p.percent_of_roof),
                          ms_cell(p.headroom_ms), bytes_cell(p.workspace_bytes),
                          p.chosen ? "*" : "", p.status, p.verdict});
  table.notes = report.notes;
  table.provenance.fields = report.provenance;
  return table;
}

void add_roofs(Report& report, const std::string& isa, const std::vector<Roof>& roofs) {
  report.columns = {"isa", "threads", "level", "what", "G/s", "unit", "noise_%", "source", "date"};
  for (const Roof& roof : roofs) {
    const bool compute = roof.level == "registers";
    report.rows.push_back(
        {isa, std::int64_t(roof.threads), roof.level, roof.what,
         Cell(roof.per_second / 1e9, fmt::format("{:.1f}", roof.per_second / 1e9)),
         compute ? "GFLOP/s" : "GB/s",
         roof.measured ? Cell(100 * roof.noise, fmt::format("{:.1f}", 100 * roof.noise)) : Cell(),
         roof.measured ? "measured" : "clocks and units", roof.date});
  }
}

std::optional<std::string> roofline_svg(const RooflineReport& report) {
  const auto count = panels(report).size();
  if (count == 0) return "";
  return gnuplot(chart_script(
      report,
      fmt::format("set terminal svg size 900,{} dynamic noenhanced background rgb 'white'\n",
                  420 * count),
      ChartKind::picture));
}

std::optional<std::string> roofline_chart(const RooflineReport& report) {
  const auto count = panels(report).size();
  if (count == 0) return "";
  const std::optional<std::string> chart = gnuplot(
      chart_script(report, fmt::format("set terminal dumb 100,{} nofeed noenhanced\n", 28 * count),
                   ChartKind::text));
  if (!chart) return {};
  return roofline_headline(report) + "\n" + *chart;
}

}  // namespace convlab
