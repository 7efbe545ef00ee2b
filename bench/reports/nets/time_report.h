// A net's times as tables.
#pragma once

#include <string>

#include "bench/reports/nets/net_timing.h"
#include "bench/reports/nets/step_info.h"
#include "bench/reports/report.h"

namespace convlab {

// The version of `convlab_time` that is written, and that diff reads.
inline constexpr int time_format = 1;

struct TimedNet {
  const nets::Graph& graph;
  const nets::NetPlan& plan;
  const std::vector<StepInfo>& steps;
  const NetTimes& times;
  Provenance provenance;
  bool wide = false;  // for people: every column, else those that fit a terminal
};

struct Profile;

// table, md: steps, then kinds of layers, then the iteration and memory as notes, then the profile.
// csv: one row per step, the rest as comments; with a profile, one row per kernel. json:
// convlab_time of FORMATS.md.
std::string render(const TimedNet&, Format, const Profile* = nullptr);

}  // namespace convlab
