// Where a timed net's iterations spend their time, routine by routine, and where the next hour of
// tuning pays.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/reports/nets/time_report.h"
#include "bench/reports/report.h"

namespace convlab {

struct Profile {
  // Time(%), Time, Calls, Avg, Min, Max, Name, as nvprof has them, in ms over all observed
  // iterations, dearest first. A kernel is a phase of an algorithm in a pass ("winograd fwd
  // product"), or what another kind of layer does in a phase; its times are exclusive.
  Report kernels;
  // By layer, with Inclusive and Exclusive: the second is what no recorded kernel accounts for.
  Report layers;
  // The same of the kernels by the names under which a card ran them, vendors' among them; without
  // rows where nobody recorded them.
  Report as_ran;
  // Steps by how much shorter an iteration were if they ran at this machine's ceilings.
  Report next;
  std::vector<std::string> notes;
};

Report kernel_run_table(const std::vector<KernelRun>&);

// Runs each of the plan's convolutions alone to learn how its time divides among its phases.
Profile profile_net(const TimedNet&, const AlgoRegistry&, Device&);

std::string render(const Profile&, Format);  // table, md
nlohmann::ordered_json to_json(const Profile&);

}  // namespace convlab
