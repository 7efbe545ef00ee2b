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
  ConvProblem base;
  std::vector<Axis> axes;          // one or more
  std::vector<SweepPoint> points;  // as sweep_points gives them
  std::vector<Pass> passes;
  // Of points[i] in passes[j]: i * passes.size() + j. No candidates: not reached.
  std::vector<LayerResult> layers;
  bool predicted = false;  // --mode heuristic
  bool complete = true;
  bool wide = false;          // for people: every column, else those that fit a terminal
  Disturbances disturbances;  // of the device that saw most of them
  Provenance provenance;
};

// table, md: the winner of every point, along the first axis who wins where, and what a plan tuned
// at one value costs at the others. csv: a row for each point, pass and algorithm. json:
// FORMATS.md's convlab_sweep.
std::string render(const Sweep&, Format);

// Scripts for gnuplot: eff_gflops over the first axis, a chart for each pass and each combination
// of the other axes. The text is about `columns` wide.
std::string text_chart_script(const Sweep&, int columns);
std::string svg_chart_script(const Sweep&);

}  // namespace convlab
