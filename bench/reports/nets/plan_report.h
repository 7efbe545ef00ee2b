// A net's plan as a table, beside measured times.
#pragma once

#include <optional>
#include <string>

#include "bench/reports/nets/net_timing.h"
#include "bench/reports/nets/step_info.h"
#include "bench/reports/report.h"

namespace convlab {

struct PlannedReport {
  const nets::Graph& graph;
  const nets::NetPlan& plan;
  const std::vector<StepInfo>& steps;
  std::optional<NetTimes> audit;       // measured times of a run
  std::optional<double> unlimited_ms;  // expected for the best plan without the workspace limit
  Provenance provenance;
  bool wide = false;                 // for people: every column, else those that fit a terminal
  CacheMode cache = CacheMode::hot;  // cache mode of the convolutions' expected times
};

// One row per step: table and md in short, csv in full. Format::json is the plan's own, to_json.
std::string render(const PlannedReport&, Format);

// A step whose time inside the net differs from its time alone.
struct Surprise {
  std::size_t step = 0;
  double expected_ms = 0, measured_ms = 0;
};
// Steps off by more than a tenth, by more than their samples' spread explains, and by at least
// 1/200 of the iteration. Farthest off first.
std::vector<Surprise> surprises(const nets::NetPlan&, const NetTimes&);

// The expected time of everything a step does in one iteration.
double expected_ms(const nets::StepPlan&);

}  // namespace convlab
