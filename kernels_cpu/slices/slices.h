// Convolutions with depth by algorithms of two dimensions.
//
//   y[z] = sum over t of conv2d(x[z * stride_d - pad_d + t * dilation_d], w[:, :, t])
//
// Depth stands before the height in every layout. So a slice of one depth is an image whose
// channels (nchw) or channel blocks are D * H * W pixels apart, and the slices that a tap t joins,
// z and z * stride_d - pad_d + t * dilation_d, are two batches whose images are 1 and stride_d
// slices apart. Both are views (Steps, in conv/types/layout.h): no tensor is copied. The sums over
// t accumulate in the output, and backward_data goes the same way from y to x.
//
// Filters are packed a slice at a time; backward_filter makes a slice at a time and puts it into
// place. Filters of T x 1 x 1 taps need no slices (conv/two_dimensional.h). Internal.
#pragma once

#include <memory>
#include <vector>

#include "conv/forwarding_algo.h"

namespace convlab::cpu {

// The tensors that an algorithm takes as views: all, or none, and then only slices that are whole
// tensors themselves.
enum class Views : std::uint8_t { all, none };

// One convolution in two dimensions of a tap with a batch of slices.
struct SliceCall {
  ConvProblem problem;
  std::int64_t tap = 0;
  std::int64_t x_at = 0, y_at = 0;  // its first image, in elements
};

// In the order in which they run. Forward and backward_data: the first that writes an output slice
// does not accumulate (unless the problem does) and has its bias and residual, and the last has its
// activation: unlike a user's problem, it may accumulate through that. backward_filter: tap by tap.
std::vector<SliceCall> slice_calls(const ConvProblem&, Views);

// The convolution of one slice, whether or not a tap joins it with another.
ConvProblem single_slice(const ConvProblem&);

// The slices of the output to which no tap contributes; not for backward_filter.
std::vector<std::int64_t> untouched_slices(const ConvProblem&);

// Adds depth to an algorithm, whose id it keeps.
class BySlices : public ForwardingAlgo {
 public:
  BySlices(std::unique_ptr<ConvAlgo> algo, Views views)
      : ForwardingAlgo(*algo), owned_(std::move(algo)), views_(views) {}

  std::optional<Refusal> refuse(const ConvProblem&, Device&) const override;
  // Those of the largest batch. Smaller ones that do not have a config use their default.
  std::vector<Config> configs(const ConvProblem&, Device&) const override;
  bool deterministic(const ConvProblem&, const Config&) const override;
  WorkEstimate work(const ConvProblem&, const Config&, Device&) const override;
  std::unique_ptr<ConvPlan> plan(const ConvProblem&, const Config&, Device&) const override;

 private:
  Config config_of(const ConvProblem& slice, const Config&, Device&) const;

  std::unique_ptr<ConvAlgo> owned_;
  Views views_;
};

}  // namespace convlab::cpu
