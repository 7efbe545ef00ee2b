// How a net runs on one machine: the layouts between its steps and the algorithm of every
// convolution, recurrent layer and pass. A plain value, kept as a JSON file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conv/config.h"
#include "conv/device.h"
#include "conv/problem.h"
#include "nets/steps.h"

namespace convlab::nets {

// Format of the JSON form; raise it when a field is added, removed or redefined.
inline constexpr int plan_format = 2;

// One convolution or recurrent layer in one pass.
struct PassPlan {
  std::string algo;
  Config config;
  std::int64_t images = 0;  // per run; 0: the whole batch, which recurrent layers always take.
                            // Fewer need less workspace
  double ms = 0;            // expected for the whole batch, packing of the filter included
  bool measured = false;    // ms comes from the tuning store; else from the work estimate
  // In inference: packs the filter for each run and keeps the plain one.
  bool packs_each_run = false;

  friend bool operator==(const PassPlan&, const PassPlan&) = default;
};

struct StepPlan {
  std::string layer;               // the name of the step's node
  Layout x_layout = Layout::nchw;  // of its inputs and of their gradients
  Layout y_layout = Layout::nchw;  // of its value and of that value's gradient,
                                   // and of a convolution's residual
  std::array<std::optional<PassPlan>, 3>
      passes;             // by Pass; for a convolution or recurrent layer, those that are needed
  double other_ms = 0;    // expected for everything except those, all phases together
  double convert_ms = 0;  // expected for converting inputs to x_layout and gradients back

  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

struct NetPlan {
  std::string net;
  std::int64_t batch = 1;
  Mode mode = Mode::training;
  DType dtype = DType::f32;
  bool deterministic = false;
  std::optional<std::int64_t> workspace_max;  // the limit it was made for
  int threads = 1;
  std::string machine;  // plan_machine: "AMD EPYC 9R45, avx512"
  // One for each of steps_of(graph, mode), in that order. A pointwise convolution's step whose
  // algorithm is `separable` also stands for the depthwise one before it (nets/separable.h).
  std::vector<StepPlan> steps;

  double ms() const;  // expected for one iteration

  friend bool operator==(const NetPlan&, const NetPlan&) = default;
};

// The device's name and ISA. A plan's times hold for these and its number of threads.
std::string plan_machine(const DeviceInfo&);

// Empty if the plan fits; otherwise the other net, batch, machine or number of threads that it was
// made for: "the plan is for threads 2, not 4".
std::string plan_misfit(const NetPlan&, const Graph&, const DeviceInfo&);
// Throws InputError, one line, on a misfit.
void require_plan_fits(const NetPlan&, const Graph&, const DeviceInfo&);

// Every field, versioned. Reading throws InputError, naming file and field, for any other file.
std::string to_json(const NetPlan&);
NetPlan plan_from_json(const std::string& text, const std::string& source);

}  // namespace convlab::nets
