#include "kernels_cpu/zero_padding.h"

#include <utility>

#include "kernels_cpu/layers/activate.h"

namespace convlab::cpu {
namespace {

class ZeroPaddingPlan final : public ConvPlan {
 public:
  ZeroPaddingPlan(const ConvProblem& p, std::unique_ptr<ConvPlan> plan)
      : dtype_(p.dtype), y_(p.y_desc()), plan_(std::move(plan)) {}

  std::size_t workspace_bytes() const noexcept override { return plan_->workspace_bytes(); }
  std::size_t packed_filter_bytes() const noexcept override { return plan_->packed_filter_bytes(); }
  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    plan_->pack_filter(w, packed, stream);
  }
  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    plan_->run(args, workspace, stream);
    zero_padding_lanes(dtype_, y_, args.out);
  }

 private:
  const DType dtype_;
  const TensorDesc y_;
  const std::unique_ptr<ConvPlan> plan_;
};

}  // namespace

std::unique_ptr<ConvPlan> with_zero_padding(const ConvProblem& p, std::unique_ptr<ConvPlan> plan) {
  const bool clean = !p.epilogue.activation || keeps_zero(*p.epilogue.activation);
  if (clean || p.y_desc().padded_c() == p.k) return plan;
  return std::make_unique<ZeroPaddingPlan>(p, std::move(plan));
}

}  // namespace convlab::cpu
