// What a command works on: TARGETs x batches x passes.
#pragma once

#include <string>
#include <vector>

#include "autotune/tuner.h"
#include "bench/options/options.h"

namespace convlab {

// Begins as a problem's text does, "mb1ic64...", and no net's name.
bool looks_like_problem(const std::string& target);

// In the order given: each target's problems for each batch, and for each problem every pass. Equal
// layers of a net are one item with a count. With --layer only those of that name. Throws
// InputError for targets that are neither a net, a problem nor a readable @FILE, and for problems
// that do not fit the device's memory, with what they need. Warnings (skipped lines of an @FILE) go
// to stderr.
std::vector<TuneItem> resolve_targets(const CommonOptions&, const DeviceInfo&);

// The least host memory that checking and running this problem takes: the reference in double, and
// the three tensors in their own type.
double required_bytes(const ConvProblem&);

}  // namespace convlab
