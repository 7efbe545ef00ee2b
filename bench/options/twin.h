// One algorithm twice, to try the tuner itself: whoever wins over its twin won by chance.
#pragma once

#include "conv/registry.h"

namespace convlab {

// CONVLAB_TWIN=ALGO[:FACTOR] in the environment appends a second ALGO under the id ALGO.twin, which
// takes FACTOR times as long (1 if left out). Workers inherit it. Throws InputError for a text that
// is none of this, or an id that the registry does not have.
void append_twin(AlgoRegistry&);

}  // namespace convlab
