// A sweep as tables, JSON and charts.
#pragma once

#include <string>
#include <vector>

#include "autotune/tuner.h"
#include "bench/reports/report.h"
#include "bench/reports/sweep_axes.h"

namespace convlab {

// The version of `convlab_sweep` that is written, and that diff reads.
inline constexpr int sweep_format = 1;

struct Sweep {
  LayerProblem base;
  std::vector<Axis> axes;          // one or more
  std::vector<SweepPoint> points;  // as sweep_points gives them
  std::vector<Pass> passes;
  // points[i] in passes[j] is at i * passes.size() + j. No candidates: not reached.
  std::vector<LayerResult> layers;
  bool predicted = false;  // --mode heuristic
  bool complete = true;
  bool wide = false;          // for people: every column, else those that fit a terminal
  Disturbances disturbances;  // of the device that saw most of them
  Provenance provenance;
};

// table, md: the winner of every point, the winners along the first axis, and the cost of using a
// plan tuned at one value at the others. csv: one row per point, pass and algorithm. json:
// convlab_sweep of FORMATS.md.
std::string render(const Sweep&, Format);

// Scripts for gnuplot: eff_gflops over the first axis, one chart for each pass and each combination
// of the other axes. The text chart is about `columns` wide.
std::string text_chart_script(const Sweep&, int columns);
std::string svg_chart_script(const Sweep&);

}  // namespace convlab
