// The part of cuDNN's plans that both interfaces share: filters are rearranged if cuDNN wants
// another order. In the workspace cuDNN's part comes before the rearranged gradient.
#pragma once

#include "kernels_cuda/cudnn/calls.h"
#include "kernels_cuda/cudnn/rules.h"

namespace convlab::cuda {

class CudnnPlan : public ConvPlan {
 public:
  std::size_t workspace_bytes() const noexcept override { return workspace_.total_bytes; }
  std::size_t packed_filter_bytes() const noexcept override;
  void pack_filter(ConstSpan w, Span packed, Stream&) const override;
  void run(const ConvArgs&, Workspace, Stream&) const override;

 protected:
  explicit CudnnPlan(const ConvProblem& p) : p_(p) {}
  // With filters in cuDNN's order; the stream's device is current.
  virtual void queue(const ConvArgs&, Workspace, CudaStream&) const = 0;

  const ConvProblem p_;
  CudnnWorkspace workspace_;  // set by the derived class's constructor
};

}  // namespace convlab::cuda
