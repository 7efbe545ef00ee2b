// The candidates of a problem and their predicted times, before anything is measured. Both tuning a
// layer and planning a net start here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autotune/algos.h"
#include "autotune/measure/ceilings.h"
#include "autotune/result.h"
#include "conv/registry.h"

namespace convlab {

// The layout pairs to try: each layout of this device, or the given one, for both x and y; also x
// in NCHW with y blocked if x has too few channels to fill a block, as a net's image has.
std::vector<Layouts> layout_pairs(const ConvProblem&, std::optional<Layout>, const DeviceInfo&);

// The algorithms that `algos` (all if empty) names and `exclude` does not, in the registry's order.
// A name is an id, a family, or "vendor" (is_named). To get exactly one of a family: `algos`
// {"im2col"} with `exclude` {"im2col_blocked"}. Throws InputError for a name that matches nothing,
// except "vendor".
std::vector<const ConvAlgo*> admitted_algos(const AlgoRegistry&, DeviceKind,
                                            const std::vector<std::string>& algos,
                                            const std::vector<std::string>& exclude);

// The same of algorithms of both kinds.
std::vector<AlgoRef> admitted_algos(const std::vector<AlgoRef>& known,
                                    const std::vector<std::string>& algos,
                                    const std::vector<std::string>& exclude);

// Neither measured nor predicted. The problem has the candidate's layouts.
Candidate new_candidate(const AlgoRef&, const Problem&, CacheMode, const DeviceInfo&);
// With ms and pack_ms predicted. The problem has the candidate's layouts and is not refused.
Candidate predicted_candidate(const AlgoRef&, const Problem&, Config, CacheMode, Device&,
                              const Ceilings&);
// The problem in the candidate's layouts.
Problem as_run(const Problem&, const Candidate&);

// Sets eff_gflops and exec_gflops by its time, if it has one. The problem has its layouts.
void set_rates(Candidate&, const Problem&, const AlgoRef&, Device&);

// Applies the caller's limits to a row of the store, which was recorded under other limits: it may
// become inaccurate or refused. Returns false if the row tells nothing under these limits.
bool apply_limits(Candidate& row, double max_error, std::optional<std::int64_t> workspace_max);

}  // namespace convlab
