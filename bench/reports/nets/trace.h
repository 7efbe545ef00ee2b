// A measured net as a timeline in Chrome's trace event format, which ui.perfetto.dev opens.
#pragma once

#include <string>

#include "bench/reports/nets/time_report.h"

namespace convlab {

// JSON with one row for the host (the parts of each iteration), one for the device's stream (the
// steps), with several ranks one for this rank's exchange of gradients, in microseconds, and a
// counter of the memory in use. It covers the first few iterations measured step by step; the gaps
// around steps come from the measurement.
std::string render_trace(const TimedNet&);

}  // namespace convlab
