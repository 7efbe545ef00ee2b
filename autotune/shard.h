// Divides a tuning run's problems among machines.
#pragma once

#include <cstdint>
#include <vector>

#include "autotune/measure/ceilings.h"
#include "autotune/tuning_entry.h"
#include "conv/device.h"

namespace convlab {

// Round rates of such a device, the same on equal machines, as measured ceilings are not: what is
// predicted by them divides a run alike on all of them.
Ceilings nominal_ceilings(const DeviceInfo&);

// Roughly the seconds that tuning this problem takes: its reference, and checking, screening and
// racing the candidates that predictions do not prune. Its candidates are predicted or refused.
double tuning_cost_s(const TuningEntry&, double prune_factor);

// The shard of each cost, from 0: the most expensive first, each to the shard that has least so far
// (Graham 1969: at most 4/3 of the best balance). Equal costs in the given order.
std::vector<std::int64_t> balanced_shards(const std::vector<double>& costs, std::int64_t shards);

}  // namespace convlab
