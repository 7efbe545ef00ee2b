// One worker's times, the input of simulated scaling: measured here, or read from what `convlab
// time` measured elsewhere.
#pragma once

#include <string>
#include <vector>

#include "autotune/result.h"
#include "bench/reports/nets/net_timing.h"
#include "conv/problem.h"
#include "nets/graph.h"
#include "nets/scaling/simulation.h"

namespace convlab {

// A layer is a step of the plan. Its forward and backward are scaled so that all layers add up to
// undisturbed iterations: pauses around the steps slow them down, and the loss is no step. io_s is
// 0, since `time` makes its batches at random.
nets::WorkerTimes worker_times(const nets::Graph&, DType, const NetTimes&);

struct TimedWorker {
  std::string net;
  DType dtype = DType::f32;
  nets::WorkerTimes worker;
  Provenance provenance;  // the file's
};
// Reads the JSON of `convlab time`. Throws InputError, in one line that names the file, for another
// file, times of inference or of several streams, an interrupted run, and steps that this build's
// net does not have.
TimedWorker read_timed_worker(const std::string& path);

}  // namespace convlab
