// Algorithms of two dimensions, given problems with depth.
#pragma once

#include <memory>
#include <optional>

#include "conv/forwarding_algo.h"

namespace convlab {

// A problem of two dimensions with the same sums over the same memory in every layout, if there is
// one: filters of T x 1 x 1 taps see an image as D rows of H * W pixels. Problems without depth are
// returned as they are.
std::optional<ConvProblem> without_depth(const ConvProblem&);

std::optional<Refusal> refuse_depth(const ConvProblem&);

// Forwards problems without depth where there is one, and others as they are: for algorithms that
// take depth, and compute a slice at a time.
class FlatWherePossible : public ForwardingAlgo {
 public:
  explicit FlatWherePossible(std::unique_ptr<ConvAlgo> algo)
      : ForwardingAlgo(*algo), owned_(std::move(algo)) {}

  std::optional<Refusal> refuse(const ConvProblem&, Device&) const override;
  std::vector<Config> configs(const ConvProblem&, Device&) const override;
  bool deterministic(const ConvProblem&, const Config&) const override;
  WorkEstimate work(const ConvProblem&, const Config&, Device&) const override;
  std::unique_ptr<ConvPlan> plan(const ConvProblem&, const Config&, Device&) const override;

 private:
  std::unique_ptr<ConvAlgo> owned_;
};

// For algorithms without depth: refuses problems that have one.
class TwoDimensional final : public FlatWherePossible {
 public:
  using FlatWherePossible::FlatWherePossible;
  std::optional<Refusal> refuse(const ConvProblem&, Device&) const override;
};

}  // namespace convlab
