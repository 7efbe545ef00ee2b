// Activations of one value, for the reference and for the few elements that no vector holds.
#pragma once

#include "conv/types/activation.h"

namespace convlab {

// NaN is propagated.
double activated(ActivationKind, double);
float activated(ActivationKind, float);

}  // namespace convlab
