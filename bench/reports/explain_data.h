// Why one algorithm won a layer: everything known of its rivals, in numbers and sentences.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "autotune/tuner.h"
#include "bench/reports/roofline/roofline_data.h"

namespace convlab {

// Version of the JSON form (bench/FORMATS.md).
inline constexpr int explain_format = 1;

struct ExplainedCandidate {
  const Candidate* candidate = nullptr;
  // Its time over the chosen's, as in the layer's verdict; low and high are 0 if the two did not
  // run in the same processes.
  std::array<double, 3> ratio{};
  double flops = 0, percent_of_roof = 0;
  std::string why;  // it won, lost, or was not in the running
};

struct Explanation {
  const LayerResult* layer = nullptr;
  std::vector<ExplainedCandidate> candidates;  // best first
  std::vector<RooflinePhase> phases;           // of the chosen
  // Work done before a run: packing the filter, converting activations from and to NCHW.
  std::vector<RooflinePhase> beforehand;
  std::vector<std::string> verdict;  // sentences: the limits, then the batch
};

// Compares the candidates with the chosen one. Runs nothing but the chosen's phases.
Explanation explain(const LayerResult&, const Algos&, Device&, const std::vector<Roof>&);

// Limits in `options` that, if moved, would change the verdict; one sentence each.
std::vector<std::string> limits_that_decide(const LayerResult&, const TuneOptions&);

// What reading U at each step of a recurrent layer takes from each level of memory, beside what the
// private caches hold. Empty for backward_filter, which is one product over all steps.
std::string recurrent_roofs(const RecurrentProblem&, const DeviceInfo&, const std::vector<Roof>&);

// The winner at a batch, and the source: "measured", "predicted", "UNSURE".
struct BatchWinner {
  std::int64_t batch = 1;
  std::string algo, how;
};
// Ascending: "By batch: winograd at 1 (measured), im2col at 2 to 256 (predicted)."; `batch` is the
// layer's own.
std::string winners_by_batch(const std::vector<BatchWinner>&, std::int64_t batch);

}  // namespace convlab
