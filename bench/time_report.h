// A net's times as tables.
#pragma once

#include <string>

#include "bench/net_timing.h"
#include "bench/report.h"
#include "bench/step_info.h"

namespace convlab {

struct TimedNet {
  const Graph& graph;
  const NetPlan& plan;
  const std::vector<StepInfo>& steps;
  const NetTimes& times;
  Provenance provenance;
};

// table, md: steps, then kinds of layers, then the iteration and memory as notes. csv: a row a
// step, the rest as comments. json: {"provenance", "net", "steps", "kinds", "iteration", "memory",
// "notes"}.
std::string render(const TimedNet&, Format);

}  // namespace convlab
