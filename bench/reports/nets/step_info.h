// A plan's steps in words and numbers: each step's kind, and the least work of its phases.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "nets/algos.h"
#include "nets/net.h"

namespace convlab {

struct PhaseInfo {
  double eff_flops = 0;   // direct-equivalent: convolutions, fully connected and recurrent layers
  double exec_flops = 0;  // executed by the algorithm
  double bytes = 0;       // of every tensor that must be read or written, once each
  const nets::PassPlan* plan = nullptr;  // of a convolution or recurrent layer
  std::optional<ConvProblem> problem;    // of a convolution, in this pass and the step's layouts
};

struct StepInfo {
  std::string layer;   // "layer1.0.conv1"
  std::string suffix;  // the operations fused to it: "+bn+add+relu"
  std::string kind;    // "convolution", "batch norm", "pooling", ...
  const nets::StepPlan* plan = nullptr;
  std::array<PhaseInfo, 4> phases{};  // by Phase

  std::string layouts() const;  // "nchw>nchw16c"
  // Algorithms of the passes in order: "winograd", or "winograd/direct/im2col" if they differ.
  std::string algos() const;
};

// In the plan's order, pointing into the plan. The plan must be for this graph, and its algorithms
// known.
std::vector<StepInfo> describe_steps(const nets::Graph&, const nets::NetPlan&,
                                     const nets::NetAlgos&, Device&);

std::int64_t batch_of(const nets::Graph&);

}  // namespace convlab
