// The kernels of split.h on AMX.
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/half/stored.h"
#include "kernels_cpu/implicit_gemm/pixel_rows.h"
#include "kernels_cpu/implicit_gemm/split.h"
#include "kernels_cpu/implicit_gemm/split_filter.h"
#include "kernels_cpu/implicit_gemm/split_scratch.h"

// All that these define is compiled for AMX. Everything that they include stands above.
// clang-format off
#include "kernels_cpu/amx/amx_target.h"
HWY_PUSH_ATTRIBUTES(CONVLAB_AMX_TARGET)
#include "kernels_cpu/amx/amx_tiles.h"
#include "kernels_cpu/amx/blocks-inl.h"
#include "kernels_cpu/implicit_gemm/split_pixels-inl.h"
#include "kernels_cpu/implicit_gemm/split_filter-inl.h"
// clang-format on

namespace convlab::cpu {

void run_split_amx(const SplitGemm& gemm, const PixelOperands<float>& data, std::byte* workspace,
                   std::int64_t thread, PhaseRecorder* recorder) {
  if (gemm.math == MathType::bf16x6)
    RunSplitThread<AmxTiles, 3, 16>(gemm, data, workspace, thread, recorder);
  else
    RunSplitThread<AmxTiles, 2, 16>(gemm, data, workspace, thread, recorder);
}
void run_split_amx(const SplitGemm& gemm, const PixelOperands<StoredBf16>& data,
                   std::byte* workspace, std::int64_t thread, PhaseRecorder* recorder) {
  RunSplitThread<AmxTiles, 1, 16>(gemm, data, workspace, thread, recorder);
}

void run_split_filter_amx(const SplitFilterGemm& gemm, const SplitFilterOperands<StoredBf16>& data,
                          std::byte* scratch, float* sums, std::int64_t rectangle,
                          std::int64_t part, PhaseRecorder* recorder) {
  RunSplitFilterUnit<AmxTiles, 1, 16>(gemm, data, scratch, sums, rectangle, part, recorder);
}
void run_split_filter_amx(const SplitFilterGemm& gemm, const SplitFilterOperands<float>& data,
                          std::byte* scratch, float* sums, std::int64_t rectangle,
                          std::int64_t part, PhaseRecorder* recorder) {
  if (gemm.math == MathType::bf16x6)
    RunSplitFilterUnit<AmxTiles, 3, 16>(gemm, data, scratch, sums, rectangle, part, recorder);
  else
    RunSplitFilterUnit<AmxTiles, 2, 16>(gemm, data, scratch, sums, rectangle, part, recorder);
}

}  // namespace convlab::cpu
HWY_POP_ATTRIBUTES
