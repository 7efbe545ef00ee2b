// Kernels that only cards with less shared memory than sm_80 run: fused winograd in smaller blocks.
#include <fmt/format.h>

#include "kernels_cuda/on_cpu/device.h"
#include "tests/kernels_cuda/one_algo.h"

namespace convlab {
namespace {

TEST(CudaSmallBlocks, FuseWinogradIn64Kilobytes) {
  DeviceInfo info = on_cpu::default_card();
  info.block_shared_bytes = 99 << 10;
  const auto card = on_cpu::make_card(info);
  const auto stream = card->make_stream();
  for (const Pass pass : {Pass::forward, Pass::backward_data})
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      // Channels of two blocks, ragged; chunks of the input's, ragged.
      const ConvProblem p = problem("mb2ic37ih9iw7oc41kh3ph1", pass, layout);
      const ReferenceCase reference(p, 11);
      for (const char* math : {"f32", "tf32", "tf32x3"}) {
        const Config config{{"tile", 2}, {"schedule", "fused"}, {"math", math}, {"split", 1}};
        const double bound = std::string_view(math) == "tf32" ? 5e-3 : 2e-6;
        const CheckResult verdict =
            check_candidate(cuda_algo("winograd"), p, config, reference, *card, *stream, bound);
        EXPECT_EQ(verdict.status, Status::ok) << fmt::format("{} {} {}: {}", math, to_string(pass),
                                                             to_string(layout), verdict.reason);
      }
    }
}

}  // namespace
}  // namespace convlab
