#include "bench/roofline_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "bench/gnuplot.h"

namespace convlab {
namespace {

Cell percent_cell(double percent) { return {percent, fmt::format("{:.0f}", percent)}; }
Cell ratio_cell(double value) { return {value, fmt::format("{:.1f}", value)}; }

const RooflineLevel* limiting_level(const RooflinePoint& p) {
  for (const RooflineLevel& level : p.levels)
    if (level.level == p.limit) return &level;
  return p.levels.empty() ? nullptr : &p.levels.back();
}

// FLOPs per byte at the level where a point is drawn: the one that limits it, else the farthest.
double intensity(const RooflinePoint& p) {
  const RooflineLevel* level = limiting_level(p);
  return level ? level->flops_per_byte : 0;
}

// Okabe and Ito's, which the colour-blind can tell apart, as on the page.
constexpr std::array colours{"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                             "#d55e00", "#56b4e9", "#b3a400", "#8a6fd1"};

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

// One panel's plot command with its data in line.
std::string plot_panel(const Panel& panel, const std::vector<const RooflinePoint*>& points,
                       const std::vector<Roof>& roofs) {
  std::map<std::string, std::vector<const RooflinePoint*>> by_algo;
  double least = 0.1, most = 1000, lowest = 1e9;
  for (const RooflinePoint* p : points) {
    by_algo[p->algo].push_back(p);
    least = std::min(least, intensity(*p) / 2);
    most = std::max(most, intensity(*p) * 2);
    lowest = std::min(lowest, p->attained_gflops / 3);
  }
  const double peak = peak_of(roofs, panel.threads, panel.dtype) / 1e9;
  std::string script =
      fmt::format("set title {}\nset xrange [{}:{}]\nset yrange [{}:{}]\n",
                  // A terminal has no room for the axis' own label.
                  gnuplot_quoted(fmt::format("GFLOP/s, {} {}, {} threads", panel.pass, panel.dtype,
                                             panel.threads)),
                  least, most, lowest, peak > 0 ? peak * 2 : 1e5);
  std::vector<std::string> plots;
  int dashes = 0;
  for (const char* level : memory_levels) {
    ++dashes;
    const double bandwidth = bandwidth_of(roofs, panel.threads, level) / 1e9;
    if (bandwidth <= 0) continue;
    const std::string slope = fmt::format("{}*x", bandwidth);
    plots.push_back(
        fmt::format("({}) with lines lc rgb '#707070' dt {} title {}",
                    peak > 0 ? fmt::format("{0} < {1} ? {0} : 1/0", slope, peak) : slope, dashes,
                    gnuplot_quoted(fmt::format("{} {:.0f} GB/s", level, bandwidth))));
  }
  if (peak > 0)
    plots.push_back(
        fmt::format("{} with lines lc rgb 'black' lw 1.5 title {}", peak,
                    gnuplot_quoted(fmt::format("{} peak {:.0f} GFLOP/s", panel.dtype, peak))));
  std::string data;
  int colour = 0;
  for (const auto& group : by_algo) {
    ++colour;
    plots.push_back(fmt::format("'-' using 1:2 with points lc rgb '{}' pt {} title {}",
                                colours[std::size_t(colour - 1) % colours.size()], colour + 3,
                                gnuplot_quoted(group.first)));
    for (const RooflinePoint* p : group.second)
      data += fmt::format("{} {}\n", intensity(*p), p->attained_gflops);
    data += "e\n";
  }
  return fmt::format("{}plot {}\n{}", script, fmt::join(plots, ", "), data);
}

std::string chart_script(const RooflineReport& report, const std::string& terminal) {
  std::string script = terminal +
                       "set logscale xy\nset xlabel 'executed FLOPs per byte'\n"
                       "set key outside right\nset samples 1000\n";
  const auto parts = panels(report);
  if (parts.size() > 1) script += fmt::format("set multiplot layout {},1\n", parts.size());
  for (const auto& part : parts) script += plot_panel(part.first, part.second, report.roofs);
  return script + (parts.size() > 1 ? "unset multiplot\n" : "");
}

}  // namespace

Report roofline_table(const RooflineReport& report) {
  Report table;
  table.columns = {"layer",       "batch",       "pass",      "algo",  "config",      "layouts",
                   "ms",          "exec_gflops", "flop/byte", "limit", "roof_gflops", "%_of_roof",
                   "headroom_ms", "workspace",   "chosen",    "status"};
  for (const RooflinePoint& p : report.points)
    table.rows.push_back({p.layer, p.batch, p.pass, p.algo, p.config, p.layouts, ms_cell(p.ms),
                          gflops_cell(p.attained_gflops), ratio_cell(intensity(p)), p.limit,
                          gflops_cell(p.attainable_gflops), percent_cell(p.percent_of_roof),
                          ms_cell(p.headroom_ms), bytes_cell(p.workspace_bytes),
                          p.chosen ? "*" : "", p.status});
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
                  420 * count)));
}

std::optional<std::string> roofline_chart(const RooflineReport& report) {
  const auto count = panels(report).size();
  if (count == 0) return "";
  return gnuplot(chart_script(
      report, fmt::format("set terminal dumb 100,{} nofeed noenhanced\n", 28 * count)));
}

}  // namespace convlab
