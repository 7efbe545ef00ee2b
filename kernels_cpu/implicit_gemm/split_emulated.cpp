// The kernels of split.h on emulated units, for blocks of 16 and of 8 channels.
#include "kernels_cpu/amx/emulated_tiles.h"
#include "kernels_cpu/avx512_bf16/dot_tiles-inl.h"
#include "kernels_cpu/avx512_bf16/emulated_dots.h"
#include "kernels_cpu/implicit_gemm/split_filter-inl.h"
#include "kernels_cpu/implicit_gemm/split_pixels-inl.h"

namespace convlab::cpu {
namespace {

template <class Tiles>
void run_bf16(const SplitGemm& gemm, const PixelOperands<StoredBf16>& data, std::byte* workspace,
              std::int64_t thread, PhaseRecorder* recorder) {
  const bool of_16 = channel_block(gemm.pixels.in.layout) == 16;
  const auto run =
      of_16 ? RunSplitThread<Tiles, 1, 16, StoredBf16> : RunSplitThread<Tiles, 1, 8, StoredBf16>;
  run(gemm, data, workspace, thread, recorder);
}

template <class Tiles>
void run_bf16(const SplitFilterGemm& gemm, const SplitFilterOperands<StoredBf16>& data,
              std::byte* scratch, float* sums, std::int64_t rectangle, std::int64_t part,
              PhaseRecorder* recorder) {
  const bool of_16 = channel_block(gemm.pixels.in.layout) == 16;
  const auto run = of_16 ? RunSplitFilterUnit<Tiles, 1, 16, StoredBf16>
                         : RunSplitFilterUnit<Tiles, 1, 8, StoredBf16>;
  run(gemm, data, scratch, sums, rectangle, part, recorder);
}

}  // namespace

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
  run_bf16<EmulatedTiles>(gemm, data, workspace, thread, recorder);
}
void run_split_emulated_dots(const SplitGemm& gemm, const PixelOperands<StoredBf16>& data,
                             std::byte* workspace, std::int64_t thread, PhaseRecorder* recorder) {
  run_bf16<DotTiles<EmulatedDots>>(gemm, data, workspace, thread, recorder);
}

std::size_t split_filter_workspace(const SplitFilterGemm& gemm) {
  return SplitFilterScratch(gemm, nullptr).bytes;
}

void run_split_filter_emulated(const SplitFilterGemm& gemm,
                               const SplitFilterOperands<StoredBf16>& data, std::byte* scratch,
                               float* sums, std::int64_t rectangle, std::int64_t part,
                               PhaseRecorder* recorder) {
  run_bf16<EmulatedTiles>(gemm, data, scratch, sums, rectangle, part, recorder);
}
void run_split_filter_emulated_dots(const SplitFilterGemm& gemm,
                                    const SplitFilterOperands<StoredBf16>& data, std::byte* scratch,
                                    float* sums, std::int64_t rectangle, std::int64_t part,
                                    PhaseRecorder* recorder) {
  run_bf16<DotTiles<EmulatedDots>>(gemm, data, scratch, sums, rectangle, part, recorder);
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
