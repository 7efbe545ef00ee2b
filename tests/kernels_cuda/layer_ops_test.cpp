// The tests of tests/conv/layer_ops on CUDA's kernels executed on the CPU. There a "number of
// threads" selects a schedule: in order for one, else shuffled.
#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/kernel.h"
#include "tests/conv/layer_ops/layer_lab.h"

namespace convlab {

const LayerBackend& layer_backend() {
  static const LayerBackend backend{{{"cuda",
                                      [](int threads) {
                                        on_cpu::config.seed = unsigned(threads - 1);
                                        return make_cuda_device();
                                      }}},
                                    {Layout::nchw, Layout::nhwc},
                                    {}};
  return backend;
}

namespace {

// Row lengths suit whole packs, but pointers are one element past the alignment that packs need.
TEST(CudaLayerOps, TakePointersAlignedToAnElement) {
  for_each_setting([](const LayerLab& lab) {
    const TensorDesc desc = lab.desc(2, 8, 4, 4);
    const Values x = random_values(257, 1), bias = random_values(9, 2);
    auto from = lab.array(x), shift = lab.array(bias), to = lab.array(257);
    const auto size = static_cast<std::size_t>(size_of(lab.dtype()));
    lab.ops().bias_forward(lab.dtype(), desc, from.data() + size, shift.data() + size,
                           to.data() + size, {}, lab.stream());
    lab.ops().add(lab.dtype(), desc, from.data() + size, to.data() + size, to.data() + size,
                  lab.stream());
    const Values y = to.values();
    for (std::int64_t n = 0; n < 2; ++n)
      for (std::int64_t c = 0; c < 8; ++c)
        for (std::int64_t p = 0; p < 16; ++p) {
          const auto at = static_cast<std::size_t>(1 + desc.offset(n, c, p / 4, p % 4));
          ASSERT_NEAR(y[at], 2 * x[at] + bias[static_cast<std::size_t>(1 + c)], lab.tolerance());
        }
  });
}

TEST(CudaLayerOps, RefuseBlockedLayouts) {
  const LayerLab lab(1, DType::f32, Layout::nchw16c);
  const TensorDesc desc = lab.desc(1, 16, 2, 2), plain{1, 16, 2, 2, Layout::nchw};
  Stream& stream = lab.stream();
  EXPECT_THROW(lab.ops().add(DType::f32, desc, nullptr, nullptr, nullptr, stream), InputError);
  EXPECT_THROW(lab.ops().convert_layout(DType::f32, plain, nullptr, desc, nullptr, stream),
               InputError);
  EXPECT_THROW(lab.ops().bias_backward(DType::f32, desc, nullptr, nullptr, {}, stream), InputError);
  EXPECT_THROW(lab.ops().pool_forward(DType::f32, global_average_pool(desc), nullptr, nullptr,
                                      nullptr, stream),
               InputError);
  EXPECT_THROW(lab.ops().lrn_forward(DType::f32, {desc}, nullptr, nullptr, {}, stream), InputError);
}

}  // namespace
}  // namespace convlab
