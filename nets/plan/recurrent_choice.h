// Chooses the algorithm of each pass of a recurrent layer, within limits. Times are measured where
// the tuning store has any of the pass; else predicted ones decide.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "autotune/measure/ceilings.h"
#include "nets/algos.h"
#include "nets/plan/choose.h"

namespace convlab::nets {

struct RecurrentChoice {
  std::array<std::optional<PassPlan>, 3> passes;  // by Pass: forward, in training all
  std::vector<Pass> untuned;                      // those that go by predictions or an open race
  double ms = 0;                                  // of all
  std::int64_t workspace = 0;                     // the maximum, packed weights included
};

// A choice whose workspaces and packed weights keep to the limit, in bytes; nullopt if there is
// none. In a pass of which the store has times only measured candidates count. Passes share what
// forward saves, so an algorithm with a format of its own (RecurrentAlgo::own_format) does all of a
// training step or nothing: it is chosen for the sum of its measured passes, or where no others
// take the problem. Where nothing is measured, own algorithms come before vendors', whose work is a
// guess. `net_bytes`: of all values and parameters of the net, which decide what is in cache.
// Without a store, all is predicted. Predictions leave dx out if `forward` has no input_gradient;
// measured times always have it.
std::optional<RecurrentChoice> choose_recurrent(const RecurrentProblem& forward,
                                                const std::vector<const RecurrentAlgo*>&,
                                                const ChooseOptions&, std::int64_t workspace_max,
                                                double net_bytes, Device&, const Ceilings&,
                                                const Store*);

}  // namespace convlab::nets
