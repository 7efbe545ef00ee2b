// One convolution and pass as a plan specifies it: the whole batch at once, or some images at a
// time.
#pragma once

#include <memory>
#include <vector>

#include "conv/registry.h"
#include "nets/plan/plan.h"

namespace convlab::nets {

// Not a sum over images of 16 bits, which would be rounded after each part.
bool may_be_in_parts(const ConvProblem&);

class BatchedConv {
 public:
  // Why the algorithm does not take the problem in parts of plan.images.
  static std::optional<Refusal> refuse(const ConvAlgo&, const ConvProblem& whole, const PassPlan&,
                                       Device&);
  // refuse() must accept the problem. backward_filter accumulates over the parts.
  BatchedConv(const ConvAlgo&, const ConvProblem& whole, const PassPlan&, Device&);

  std::size_t workspace_bytes() const;
  std::size_t packed_bytes() const;  // 0: run takes w as KCRS

  void pack(ConstSpan w, std::byte* packed, Stream&) const;
  // args cover the whole batch; packed was written by pack().
  void run(const ConvArgs&, const std::byte* packed, Workspace, Stream&) const;

 private:
  struct Part {
    ConvProblem problem;
    std::unique_ptr<ConvPlan> plan;
    std::size_t packed_offset = 0;
  };
  struct Run {
    std::size_t part;
    std::int64_t image;  // the first one
  };
  std::vector<Part> parts_;  // distinct ones
  std::vector<Run> runs_;
};

}  // namespace convlab::nets
