// Breaks a timed net's iterations down routine by routine, and shows which steps have the most to
// gain from tuning.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/reports/nets/time_report.h"
#include "bench/reports/report.h"

namespace convlab {

struct Profile {
  // Time(%), Time, Calls, Avg, Min, Max, Name as in nvprof, in ms over all observed iterations,
  // most expensive first. A kernel is a phase of an algorithm in a pass ("winograd fwd product"),
  // or the work of another kind of layer in a phase. Its times are exclusive.
  Report kernels;
  // By layer, with Inclusive and Exclusive: the latter is time that no recorded kernel accounts
  // for.
  Report layers;
  // The kernels by the names under which a card ran them, vendors' included; no rows if none were
  // recorded.
  Report as_ran;
  // Steps, by how much shorter an iteration would be if they ran at this machine's ceilings.
  Report next;
  std::vector<std::string> notes;
};

Report kernel_run_table(const std::vector<KernelRun>&);

// Runs each of the plan's convolutions alone to split its time among its phases.
Profile profile_net(const TimedNet&, const nets::NetAlgos&, Device&);

std::string render(const Profile&, Format);  // table, md
nlohmann::ordered_json to_json(const Profile&);

}  // namespace convlab
