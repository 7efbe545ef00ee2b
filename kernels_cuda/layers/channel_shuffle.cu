// Channel shuffle: a transposition of the channels as a matrix of groups by channels of a group.
#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

// The channel is the middle index, or the inner one. Threads take neighbouring targets.
template <class T>
__global__ void shuffle(Rows rows, bool inner, std::int64_t groups, const T* from, T* to) {
  const std::int64_t each = (inner ? rows.inner : rows.middle) / groups;
  for_each_in_rows(rows, [&](std::int64_t outer, std::int64_t middle, std::int64_t i) {
    const std::int64_t target = inner ? i : middle;
    const std::int64_t source = target % groups * each + target / groups;
    const std::int64_t row = outer * rows.middle;
    to[(row + middle) * rows.inner + i] =
        from[(row + (inner ? middle : source)) * rows.inner + (inner ? source : i)];
  });
}

}  // namespace

void CudaLayerOps::shuffle_channels(DType dtype, const TensorDesc& desc, std::int64_t groups,
                                    const void* from, void* to, Stream& stream) const {
  validate(dtype, "shuffle_channels");
  validate_groups(desc, groups);
  require_plain(desc, "shuffle_channels");
  const std::int64_t plane = desc.h * desc.w;
  const bool inner = channels_inner(desc);
  const Rows rows = inner ? Rows{1, desc.n * plane, desc.c} : Rows{desc.n, desc.c, plane};
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowLaunch shape = row_launch(rows, multiprocessors_);
    launch(shuffle<T>, shape.grid, shape.block, 0, stream, rows, inner, groups,
           static_cast<const T*>(from), static_cast<T*>(to));
  });
}

}  // namespace convlab::cuda
