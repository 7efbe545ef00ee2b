#include "kernels_cuda/cudnn/plan.h"

#include "kernels_cuda/cudnn/filter_layout.h"

namespace convlab::cuda {

std::size_t CudnnPlan::packed_filter_bytes() const noexcept {
  return p_.pass != Pass::backward_filter && rearranges_filter(p_) ? std::size_t(p_.filter_bytes())
                                                                   : 0;
}

void CudnnPlan::pack_filter(ConstSpan w, Span packed, Stream& stream) const {
  kcrs_to_krsc(p_, w.data(), packed.data(), stream);
}

void CudnnPlan::run(const ConvArgs& args, Workspace workspace, Stream& stream) const {
  run_phase(args.phases, 0, stream, [&] {
    CudaStream& cuda = cuda_stream(stream);
    cuda.native();
    if (p_.pass != Pass::backward_filter || !rearranges_filter(p_))
      return queue(args, workspace, cuda);
    ConvArgs in_order = args;
    in_order.out = workspace.data() + workspace_.filter_at;
    if (p_.accumulate) kcrs_to_krsc(p_, args.out, in_order.out, stream);
    queue(in_order, workspace, cuda);
    krsc_to_kcrs(p_, in_order.out, args.out, stream);
  });
}

}  // namespace convlab::cuda
