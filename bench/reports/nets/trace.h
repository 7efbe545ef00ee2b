// A measured net as a timeline in Chrome's trace event format, which ui.perfetto.dev opens.
#pragma once

#include <string>

#include "bench/reports/nets/time_report.h"

namespace convlab {

// JSON with one row for the host (the parts of each iteration) and one for the device's stream (the
// steps), in microseconds, and a counter of the memory in use. Of the first few iterations that
// were taken step by step; the pauses around steps belong to the measurement.
std::string render_trace(const TimedNet&);

}  // namespace convlab
