// Enters one algorithm twice, to test the tuner itself: a win over the twin is due to chance.
#pragma once

#include "conv/registry.h"

namespace convlab {

// CONVLAB_TWIN=ALGO[:FACTOR] in the environment appends a second ALGO under the id ALGO.twin, which
// takes FACTOR times as long (1 if left out). Workers inherit it. Throws InputError for malformed
// text or an id that the registry lacks.
void append_twin(AlgoRegistry&);

}  // namespace convlab
