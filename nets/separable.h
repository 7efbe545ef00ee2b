// Depthwise separable convolutions among a graph's steps: in inference one step may compute the
// depthwise convolution, with its activation, and the pointwise convolution behind it
// (conv/optional/separable_device.h).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "conv/optional/separable_device.h"
#include "nets/plan/plan.h"
#include "nets/steps.h"

namespace convlab::nets {

// In a plan, the algorithm of the forward pass of a step that is joined like this (PassPlan::algo).
inline constexpr std::string_view separable_algo = "separable";

// Steps that one step can replace, since nothing else reads their values.
struct SeparableSteps {
  std::size_t depthwise = 0, pointwise = 0;  // indices among the steps
  Step joined;                               // takes the place of `pointwise`
};
std::vector<SeparableSteps> separable_steps(const Graph&, const std::vector<Step>&);

// What a joined step computes, in one layout; a device may refuse it.
SeparableProblem separable_problem(const Graph&, const Step& joined, DType, Layout);

// The steps of a plan: steps_of(graph, mode), with those joined that the plan has so.
std::vector<Step> steps_of(const Graph&, const NetPlan&);

}  // namespace convlab::nets
