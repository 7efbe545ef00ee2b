// A net's plan as a table, beside what running it took.
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
  std::optional<NetTimes> audit;       // what running it took
  std::optional<double> unlimited_ms;  // expected of the best plan without the workspace limit
  Provenance provenance;
  bool wide = false;                 // for people: every column, else those that fit a terminal
  CacheMode cache = CacheMode::hot;  // in which expected times of convolutions were measured
};

// A row a step: table and md in short, csv in full. Format::json is the plan's own, to_json.
std::string render(const PlannedReport&, Format);

// A step that takes another time inside the net than alone.
struct Surprise {
  std::size_t step = 0;
  double expected_ms = 0, measured_ms = 0;
};
// Those off by more than a tenth, by more than their samples' spread explains, and by enough to
// matter: a two-hundredth of the iteration. Farthest off first.
std::vector<Surprise> surprises(const nets::NetPlan&, const NetTimes&);

// Of all that a step does in one iteration.
double expected_ms(const nets::StepPlan&);

}  // namespace convlab
