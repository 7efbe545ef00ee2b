// The kernels of split.h by AVX512_BF16's dot products.
#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/amx/terms.h"
#include "kernels_cpu/half/stored.h"
#include "kernels_cpu/implicit_gemm/pixel_rows.h"
#include "kernels_cpu/implicit_gemm/split.h"
#include "kernels_cpu/implicit_gemm/split_filter.h"
#include "kernels_cpu/implicit_gemm/split_scratch.h"

// All that these define is compiled for that. Everything that they include stands above.
// clang-format off
#include "kernels_cpu/avx512_bf16/dot_target.h"
HWY_PUSH_ATTRIBUTES(CONVLAB_AVX512_BF16_TARGET)
#include "kernels_cpu/avx512_bf16/vector_dots.h"
#include "kernels_cpu/avx512_bf16/dot_tiles-inl.h"
#include "kernels_cpu/amx/blocks-inl.h"
#include "kernels_cpu/implicit_gemm/split_pixels-inl.h"
#include "kernels_cpu/implicit_gemm/split_filter-inl.h"
// clang-format on

namespace convlab::cpu {

void run_split_dots(const SplitGemm& gemm, const PixelOperands<StoredBf16>& data,
                    std::byte* workspace, std::int64_t thread, PhaseRecorder* recorder) {
  RunSplitThread<DotTiles<VectorDots>, 1, 16>(gemm, data, workspace, thread, recorder);
}

void run_split_filter_dots(const SplitFilterGemm& gemm, const SplitFilterOperands<StoredBf16>& data,
                           std::byte* scratch, float* sums, std::int64_t rectangle,
                           std::int64_t part, PhaseRecorder* recorder) {
  RunSplitFilterUnit<DotTiles<VectorDots>, 1, 16>(gemm, data, scratch, sums, rectangle, part,
                                                  recorder);
}

}  // namespace convlab::cpu
HWY_POP_ATTRIBUTES
