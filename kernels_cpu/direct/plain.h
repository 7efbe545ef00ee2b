// The loops under plain.cpp. Internal.
#pragma once

#include "conv/algo.h"

namespace convlab::cpu {

// One thread's part of any problem with x and y in one layout, f32 or f64.
void plain_loops(const ConvProblem&, const ConvArgs&, int thread, int threads);

}  // namespace convlab::cpu
