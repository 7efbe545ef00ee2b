// Filters as KCRS and as KRSC.
#pragma once

#include "conv/device.h"
#include "conv/problem.h"

namespace convlab::cuda {

// The problem's filter, from one to the other. Queued on the stream.
void kcrs_to_krsc(const ConvProblem&, const void* kcrs, void* krsc, Stream&);
void krsc_to_kcrs(const ConvProblem&, const void* krsc, void* kcrs, Stream&);

}  // namespace convlab::cuda
