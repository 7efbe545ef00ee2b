// The kernels of split.h on emulated tiles, for blocks of 16 and of 8 channels.
#include "kernels_cpu/amx/emulated_tiles.h"
#include "kernels_cpu/implicit_gemm/split_filter-inl.h"
#include "kernels_cpu/implicit_gemm/split_pixels-inl.h"

namespace convlab::cpu {

std::size_t split_workspace(const SplitGemm& gemm) { return SplitScratch(gemm, nullptr).bytes; }

void run_split_emulated(const SplitGemm& gemm, const PixelOperands<float>& data,
                        std::byte* workspace, std::int64_t thread, PhaseRecorder* recorder) {
  const bool of_16 = channel_block(gemm.pixels.in.layout) == 16;
  const auto run = gemm.math == MathType::bf16x6 ? of_16
                                                       ? RunSplitThread<EmulatedTiles, 3, 16, float>
                                                       : RunSplitThread<EmulatedTiles, 3, 8, float>
                   : of_16 ? RunSplitThread<EmulatedTiles, 2, 16, float>
                                                 : RunSplitThread<EmulatedTiles, 2, 8, float>;
  run(gemm, data, workspace, thread, recorder);
}
void run_split_emulated(const SplitGemm& gemm, const PixelOperands<StoredBf16>& data,
                        std::byte* workspace, std::int64_t thread, PhaseRecorder* recorder) {
  const bool of_16 = channel_block(gemm.pixels.in.layout) == 16;
  const auto run = of_16 ? RunSplitThread<EmulatedTiles, 1, 16, StoredBf16>
                         : RunSplitThread<EmulatedTiles, 1, 8, StoredBf16>;
  run(gemm, data, workspace, thread, recorder);
}

std::size_t split_filter_workspace(const SplitFilterGemm& gemm) {
  return SplitFilterScratch(gemm, nullptr).bytes;
}

void run_split_filter_emulated(const SplitFilterGemm& gemm,
                               const SplitFilterOperands<StoredBf16>& data, std::byte* scratch,
                               float* sums, std::int64_t rectangle, std::int64_t part,
                               PhaseRecorder* recorder) {
  const bool of_16 = channel_block(gemm.pixels.in.layout) == 16;
  const auto run = of_16 ? RunSplitFilterUnit<EmulatedTiles, 1, 16, StoredBf16>
                         : RunSplitFilterUnit<EmulatedTiles, 1, 8, StoredBf16>;
  run(gemm, data, scratch, sums, rectangle, part, recorder);
}
void run_split_filter_emulated(const SplitFilterGemm& gemm, const SplitFilterOperands<float>& data,
                               std::byte* scratch, float* sums, std::int64_t rectangle,
                               std::int64_t part, PhaseRecorder* recorder) {
  const bool of_16 = channel_block(gemm.pixels.in.layout) == 16;
  const auto run = gemm.math == MathType::bf16x6
                       ? of_16 ? RunSplitFilterUnit<EmulatedTiles, 3, 16, float>
                               : RunSplitFilterUnit<EmulatedTiles, 3, 8, float>
                   : of_16 ? RunSplitFilterUnit<EmulatedTiles, 2, 16, float>
                           : RunSplitFilterUnit<EmulatedTiles, 2, 8, float>;
  run(gemm, data, scratch, sums, rectangle, part, recorder);
}

}  // namespace convlab::cpu
