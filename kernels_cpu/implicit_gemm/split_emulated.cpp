// The kernels of split.h on emulated tiles, for blocks of 16 and of 8 channels.
#include "kernels_cpu/amx/emulated_tiles.h"
#include "kernels_cpu/implicit_gemm/split_filter-inl.h"
#include "kernels_cpu/implicit_gemm/split_pixels-inl.h"

namespace convlab::cpu {

std::size_t split_workspace(const SplitGemm& gemm) { return SplitScratch(gemm, nullptr).bytes; }

void run_split_emulated(const SplitGemm& gemm, const PixelOperands<float>& data,
                        std::byte* workspace, std::int64_t thread, PhaseRecorder* recorder) {
  const bool of_16 = channel_block(gemm.pixels.in.layout) == 16;
  const auto run = gemm.math == MathType::bf16x6 ? of_16 ? RunSplitThread<EmulatedTiles, 3, 16>
                                                         : RunSplitThread<EmulatedTiles, 3, 8>
                   : of_16 ? RunSplitThread<EmulatedTiles, 2, 16>
                                                 : RunSplitThread<EmulatedTiles, 2, 8>;
  run(gemm, data, workspace, thread, recorder);
}

std::size_t split_filter_workspace(const SplitFilterGemm& gemm) {
  return SplitFilterScratch(gemm, nullptr).bytes;
}

void run_split_filter_emulated(const SplitFilterGemm& gemm, const SplitFilterOperands& data,
                               std::byte* scratch, float* sums, std::int64_t rectangle,
                               std::int64_t part, PhaseRecorder* recorder) {
  const bool of_16 = channel_block(gemm.pixels.in.layout) == 16;
  const auto run = gemm.math == MathType::bf16x6 ? of_16 ? RunSplitFilterUnit<EmulatedTiles, 3, 16>
                                                         : RunSplitFilterUnit<EmulatedTiles, 3, 8>
                   : of_16 ? RunSplitFilterUnit<EmulatedTiles, 2, 16>
                                                 : RunSplitFilterUnit<EmulatedTiles, 2, 8>;
  run(gemm, data, scratch, sums, rectangle, part, recorder);
}

}  // namespace convlab::cpu
