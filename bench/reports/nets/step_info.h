// A plan's steps in words and numbers: what each is, and the work its phases cannot do without.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "conv/registry.h"
#include "nets/net.h"

namespace convlab {

struct PhaseInfo {
  double eff_flops = 0;   // direct-equivalent: convolutions and fully connected layers
  double exec_flops = 0;  // what the algorithm really executes
  double bytes = 0;       // of every tensor that must be read or written, once each
  const nets::PassPlan* plan = nullptr;  // of a convolution
  ConvProblem problem;                   // of a convolution, in this pass and the step's layouts
};

struct StepInfo {
  std::string layer;   // "layer1.0.conv1"
  std::string suffix;  // what is fused to it: "+bn+add+relu"
  std::string kind;    // "convolution", "batch norm", "pooling", ...
  const nets::StepPlan* plan = nullptr;
  std::array<PhaseInfo, 4> phases{};  // by Phase

  std::string layouts() const;  // "nchw>nchw16c"
  // Of the passes in order: "winograd", or "winograd/direct/im2col" where they differ.
  std::string algos() const;
};

// In the plan's order, pointing into it. The plan is for this graph, and its algorithms are known.
std::vector<StepInfo> describe_steps(const nets::Graph&, const nets::NetPlan&, const AlgoRegistry&,
                                     Device&);

std::int64_t batch_of(const nets::Graph&);

}  // namespace convlab
