// The 16-bit types by algorithms of f32, beside what an algorithm has for them itself. Internal.
//
// x, w and dy are widened to f32, which is exact, and the result is rounded once, from f32 sums
// after the epilogue. A part of the batch at a time: its f32 copies then stay in the caches, and
// take little workspace. The filter is widened when it is packed. The sums of backward_filter stay
// in f32 until the last part.
#pragma once

#include <memory>
#include <vector>

#include "conv/forwarding_algo.h"

namespace convlab::cpu {

// Adds f16 and bf16 to an algorithm, whose id it keeps. A problem in bf16 that the algorithm takes
// has its configs too, first, told by math=bf16.
class ThroughF32 : public ForwardingAlgo {
 public:
  explicit ThroughF32(std::unique_ptr<ConvAlgo> algo)
      : ForwardingAlgo(*algo), owned_(std::move(algo)) {}

  std::optional<Refusal> refuse(const ConvProblem&, Device&) const override;
  std::vector<Config> configs(const ConvProblem&, Device&) const override;
  bool deterministic(const ConvProblem&, const Config&) const override;
  WorkEstimate work(const ConvProblem&, const Config&, Device&) const override;
  std::unique_ptr<ConvPlan> plan(const ConvProblem&, const Config&, Device&) const override;

 private:
  // In 16 bits, without copies.
  bool takes_itself(const ConvProblem&, Device&) const;
  bool by_itself(const ConvProblem&, const Config&, Device&) const;

  std::unique_ptr<ConvAlgo> owned_;
};

// The f32 problem of one part of the batch; N over its n parts in all.
ConvProblem part_in_f32(const ConvProblem&, const DeviceInfo&);

}  // namespace convlab::cpu
