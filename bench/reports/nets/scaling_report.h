// Simulated scaling of a net as tables, charts and a timeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/reports/gnuplot.h"
#include "bench/reports/report.h"
#include "conv/problem.h"
#include "nets/scaling/simulation.h"

namespace convlab {

// The version of `convlab_scaling` that is written.
inline constexpr int scaling_format = 1;

// What the ranks' own iterations took, on random data.
struct MeasuredExchange {
  nets::Strategy strategy = nets::Strategy::overlapped;
  std::int64_t bucket_bytes = 0;
  double iteration_s = 0, exchange_s = 0, exposed_s = 0;  // medians
};

// A number of workers under one strategy.
struct ScalingPoint {
  nets::Scenario scenario;  // with the bucket that was used
  nets::Simulation simulation;
  // Images/s over those of one worker alone, and that over the number of workers.
  double speedup = 1, efficiency = 1;
  std::optional<std::int64_t> hiding_batch;  // as nets::hiding_batch
  std::optional<MeasuredExchange> measured;  // of as many ranks under mpirun
};

struct ScalingTable {
  std::string net;
  DType dtype = DType::f32;
  nets::WorkerTimes worker;
  nets::Network network;
  bool network_measured = false;
  nets::Contention contention;
  std::vector<nets::Strategy> strategies;
  std::vector<ScalingPoint> points;  // by workers, then strategies
  Provenance provenance;
  std::vector<std::string> notes;  // about the worker's times

  const ScalingPoint& last() const { return points.back(); }
};

// bucket_bytes: nullopt for the best of each point.
ScalingPoint scaling_point(const nets::WorkerTimes&, const nets::Scenario&,
                           std::optional<std::int64_t> bucket_bytes);

// table, md, csv: a row a point; with measured points, table and md begin with a table of these.
// json: convlab_scaling of FORMATS.md.
std::string render(const ScalingTable&, Format);

// Scripts for gnuplot: efficiency over the number of workers.
std::string text_chart_script(const ScalingTable&, int columns);
std::string svg_chart_script(const ScalingTable&);

// The simulated iterations with the most workers, for ui.perfetto.dev: a process for each strategy
// and rank, of which the first few are shown since all are equal, with a row for each lane.
std::string render_trace(const ScalingTable&);

}  // namespace convlab
