// An algorithm that wraps another one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "conv/algo.h"

namespace convlab {

// Forwards every call to `algo`, which must outlive it. Subclasses override what they change.
class ForwardingAlgo : public ConvAlgo {
 public:
  explicit ForwardingAlgo(const ConvAlgo& algo) : algo_(algo) {}

  const AlgoInfo& info() const noexcept override { return algo_.info(); }
  std::optional<Refusal> refuse(const ConvProblem& p, Device& d) const override {
    return algo_.refuse(p, d);
  }
  std::vector<Config> configs(const ConvProblem& p, Device& d) const override {
    return algo_.configs(p, d);
  }
  bool deterministic(const ConvProblem& p, const Config& c) const override {
    return algo_.deterministic(p, c);
  }
  WorkEstimate work(const ConvProblem& p, const Config& c, Device& d) const override {
    return algo_.work(p, c, d);
  }
  std::unique_ptr<ConvPlan> plan(const ConvProblem& p, const Config& c, Device& d) const override {
    return algo_.plan(p, c, d);
  }

 private:
  const ConvAlgo& algo_;
};

}  // namespace convlab
