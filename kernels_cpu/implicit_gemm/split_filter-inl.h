// One unit of a SplitFilterGemm, for a policy of tiles (AmxTiles, EmulatedTiles, DotTiles). See
// split_filter.h.
//
//   for each chunk of pixels, for each pair of c, for each tap, for each pair of k:
//     2 x 2 tiles of sums += A B
//
// The first pair of k splits x, and the first pair of c with its first tap splits dy: the next step
// is split while the tiles of this step are multiplied.
//
// Included once by each of the files that compile it, with its instruction set in force.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels_cpu/amx/blocks-inl.h"
#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/amx/products-inl.h"
#include "kernels_cpu/implicit_gemm/pixel_rows.h"
#include "kernels_cpu/implicit_gemm/split.h"
#include "kernels_cpu/implicit_gemm/split_filter.h"
#include "kernels_cpu/implicit_gemm/split_scratch.h"

namespace convlab::cpu {

// The channels of two tiles in a tensor; with blocks of 8 a line is two blocks, of which the second
// may not exist.
template <class S>
struct TilePair {
  const S* tile[2];
  std::int64_t upper[2];  // from the lower half of a line to the upper one; 0 if there is none
};

template <int kBlock, class S>
HWY_INLINE TilePair<S> TilesOf(const TensorDesc& desc, const S* data, std::int64_t pair) {
  TilePair<S> tiles{};
  const std::int64_t plane = desc.channel_step();
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::int64_t block = (pair * split_pair + i * tile_rows) / kBlock;
    tiles.tile[i] = data + block * plane;
    tiles.upper[i] = (block + 1) * kBlock < desc.padded_c() ? plane : 0;
  }
  return tiles;
}

// A pixel's 16 channels; zero where it is padding.
template <int kBlock, class S>
HWY_INLINE void ReadPixel(const S* from, std::int64_t upper, std::int64_t at, Line& line) {
  if (at < 0) {
    line = Line{};
  } else if constexpr (kBlock == tile_rows) {
    LineAt read;
    ReadBlock<kBlock>(from + at, read);
    line = read;
  } else {
    float channels[tile_rows] = {};
    std::copy_n(from + at, kBlock, channels);
    if (upper != 0) std::copy_n(from + at + upper, kBlock, channels + kBlock);
    line = *reinterpret_cast<const LineAt*>(channels);
  }
}

// The terms of two pixels, as pairs of bf16. RowSplitter's SplitRow tells how they are rounded; a
// single term is of what is bf16 already.
template <class Tiles, int kTerms>
HWY_INLINE void SplitPixels(Line& x0, Line& x1, LineBits* terms) {
  if constexpr (kTerms == 1) {
    terms[0] = ((LineBits)x0 >> 16) | ((LineBits)x1 & 0xffff0000u);
  } else {
    for (int term = 0; term + 1 < kTerms; ++term) {
      const LineBits r0 = (LineBits)x0 + 0x8000u, r1 = (LineBits)x1 + 0x8000u;
      terms[term] = (r0 >> 16) | (r1 & 0xffff0000u);
      x0 -= (Line)(r0 & 0xffff0000u);
      x1 -= (Line)(r1 & 0xffff0000u);
    }
    Tiles::round_pairs(x0, x1, terms[kTerms - 1]);
  }
}

// to[i][j] = from[j][i]. Quarters of lines are put together as they are loaded, so that only
// squares of 4 are left to transpose.
HWY_INLINE void TransposeTile(const LineBits* from, std::byte* to) {
  using Quarter __attribute__((vector_size(16), may_alias)) = std::uint32_t;
  using Half __attribute__((vector_size(32))) = std::uint32_t;
  for (int part = 0; part < 4; ++part) {
    LineBits line[4];
    for (int i = 0; i < 4; ++i) {
      const Quarter* const at = reinterpret_cast<const Quarter*>(from + i) + part;
      const Half low = __builtin_shufflevector(at[0], at[16], 0, 1, 2, 3, 4, 5, 6, 7);
      const Half high = __builtin_shufflevector(at[32], at[48], 0, 1, 2, 3, 4, 5, 6, 7);
      line[i] =
          __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    LineBits low[2], high[2];
    for (int i = 0; i < 2; ++i) {
      low[i] = __builtin_shufflevector(line[2 * i], line[2 * i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8,
                                       24, 9, 25, 12, 28, 13, 29);
      high[i] = __builtin_shufflevector(line[2 * i], line[2 * i + 1], 2, 18, 3, 19, 6, 22, 7, 23,
                                        10, 26, 11, 27, 14, 30, 15, 31);
    }
    LineBitsAt* const out = reinterpret_cast<LineBitsAt*>(to) + 4 * part;
    out[0] = __builtin_shufflevector(low[0], low[1], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12,
                                     13, 28, 29);
    out[1] = __builtin_shufflevector(low[0], low[1], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14,
                                     15, 30, 31);
    out[2] = __builtin_shufflevector(high[0], high[1], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12,
                                     13, 28, 29);
    out[3] = __builtin_shufflevector(high[0], high[1], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27,
                                     14, 15, 30, 31);
  }
}

// The terms of pair i of a step's pixels.
template <class Tiles, int kTerms, int kBlock, class S>
HWY_INLINE void SplitPair(const S* from, std::int64_t upper, const std::int64_t* at, int i,
                          LineBits* terms) {
  Line x0, x1;
  ReadPixel<kBlock>(from, upper, at[2 * i], x0);
  ReadPixel<kBlock>(from, upper, at[2 * i + 1], x1);
  SplitPixels<Tiles, kTerms>(x0, x1, terms);
}

// One step of A: a tile of 16 k, its terms one after the other.
template <class Tiles, int kTerms, int kBlock, class S>
HWY_NOINLINE void SplitDy(const S* from, std::int64_t upper, const std::int64_t* at,
                          std::byte* to) {
  alignas(64) LineBits pairs[kTerms][tile_rows];
  for (int i = 0; i < tile_rows; ++i) {
    LineBits terms[kTerms];
    SplitPair<Tiles, kTerms, kBlock>(from, upper, at, i, terms);
    for (int term = 0; term < kTerms; ++term) pairs[term][i] = terms[term];
  }
  for (int term = 0; term < kTerms; ++term) TransposeTile(pairs[term], to + term * tile_bytes);
}

// One step of B: the terms of a tile of 16 c, `apart` bytes from one another.
template <class Tiles, int kTerms, int kBlock, class S>
HWY_NOINLINE void SplitX(const S* from, std::int64_t upper, const std::int64_t* at, std::byte* to,
                         std::ptrdiff_t apart) {
  for (int i = 0; i < tile_rows; ++i) {
    LineBits terms[kTerms];
    SplitPair<Tiles, kTerms, kBlock>(from, upper, at, i, terms);
    for (int term = 0; term < kTerms; ++term)
      *reinterpret_cast<LineBitsAt*>(to + term * apart + i * 64) = terms[term];
  }
}

// Prefetches so many pixels' lines into L1.
template <class S>
HWY_INLINE void PrefetchPixels(const S* from, const std::int64_t* at) {
  for (std::int64_t i = 0; i < tile_depth; ++i) __builtin_prefetch(from + at[i]);
}

template <class Tiles, int kTerms, int kBlock, class S>
class SplitFilterUnit {
 public:
  SplitFilterUnit(const SplitFilterGemm& gemm, const SplitFilterOperands<S>& data,
                  std::byte* scratch, float* sums, std::int64_t rectangle, PhaseRecorder* recorder)
      : gemm_(gemm),
        grid_(gemm.pixels.grids[0]),
        data_(data.of_group(gemm, rectangle / gemm.rectangles())),
        scratch_(gemm, scratch),
        sums_(sums),
        k_pairs_(gemm.k_pairs_of(rectangle)),
        c_pairs_(gemm.c_pairs_of(rectangle)),
        recorder_(recorder) {}

  void Run(Range steps) {
    const std::int64_t chunks = ceil_div(steps.size(), gemm_.chunk_steps);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const Range own = share(steps.size(), chunk, chunks);
      RunChunk({steps.begin + own.begin, steps.begin + own.end}, chunk == 0, chunk + 1 == chunks);
    }
  }

 private:
  static constexpr std::int64_t kAhead = 2;  // steps

  void RunChunk(Range steps, bool first, bool last) {
    FindPixels(steps);
    steps_ = steps.size();
    adds_ = !first;
    const std::int64_t c_step = k_pairs_.size() * gemm_.pair_sums();
    float* sums = sums_;
    for (std::int64_t c_pair = c_pairs_.begin; c_pair < c_pairs_.end; ++c_pair) {
      {
        const PhaseScope scope(recorder_, 0);
        x_ = TilesOf<kBlock>(gemm_.pixels.in, data_.x, c_pair);
        for (std::int64_t tap = 0; tap < gemm_.taps(); ++tap)
          for (std::int64_t k_pair = k_pairs_.begin; k_pair < k_pairs_.end; ++k_pair)
            RunPair(k_pair, c_pair, tap, sums);
      }
      if (last && gemm_.parts == 1) {
        const PhaseScope scope(recorder_, 1);
        put_filter_sums(gemm_, sums, 0, data_.dw, k_pairs_, c_pair);
      }
      if (!gemm_.sums_at_once()) sums += c_step;
    }
  }

  // The table of these steps' pixels. Those beyond the last one are padding.
  void FindPixels(Range steps) {
    const PixelGemm& pixels = gemm_.pixels;
    const RowTable& rows = scratch_.rows;
    const std::int64_t first = steps.begin * tile_depth;
    const std::int64_t count =
        std::min(pixels.out.n * grid_.h * grid_.w, steps.end * tile_depth) - first;
    fill_rows(pixels, grid_, first, count, rows);
    for (std::int64_t i = count; i < steps.size() * tile_depth; ++i) {
      rows.image[i] = 0;
      rows.out[i] = -1;
      rows.h[i] = std::numeric_limits<std::int32_t>::min() / 2;
      rows.w[i] = rows.pixel[i] = 0;
    }
  }

  void RunPair(std::int64_t k_pair, std::int64_t c_pair, std::int64_t tap, float* sums) {
    const std::int64_t pair = k_pair - k_pairs_.begin;
    a_ = scratch_.a + 2 * pair * a_tile();
    dy_ = TilesOf<kBlock>(gemm_.pixels.out, data_.dy, k_pair);
    tap_ = &grid_.taps[std::size_t(tap)];
    splits_x_ = pair == 0;
    splits_dy_ = c_pair == c_pairs_.begin && tap == 0;
    prefetches_x_ = tap == 0;  // the others find most of it in L2
    float* const to = sums + pair * gemm_.pair_sums() + tap * split_tile_sums;
    const bool two_k = gemm_.k() - k_pair * split_pair > tile_rows;
    const bool two_c = gemm_.c() - c_pair * split_pair > tile_rows;
    if (two_k)
      two_c ? RunTiles<2, 2>(to) : RunTiles<2, 1>(to);
    else
      two_c ? RunTiles<1, 2>(to) : RunTiles<1, 1>(to);
  }

  template <int kRowTiles, int kColTiles>
  struct ReadyPixels {
    SplitFilterUnit& unit;
    HWY_INLINE void Step(std::int64_t step) { unit.Split<kRowTiles, kColTiles>(step); }
  };

  std::ptrdiff_t a_tile() const { return steps_ * kTerms * tile_bytes; }

  template <int kRowTiles, int kColTiles>
  HWY_NOINLINE void RunTiles(float* sums) {
    const std::int64_t tile_sums = gemm_.taps() * split_tile_sums;
    tiles_.template zero<0>();
    if constexpr (kColTiles == 2) tiles_.template zero<1>();
    if constexpr (kRowTiles == 2) tiles_.template zero<2>();
    if constexpr (kRowTiles * kColTiles == 4) tiles_.template zero<3>();
    ReadyPixels<kRowTiles, kColTiles> ready{*this};
    MultiplySteps<kTerms, kRowTiles, kColTiles>(tiles_, a_, a_tile(), scratch_.b, steps_, ready);
    PutSums<0>(sums);
    if constexpr (kColTiles == 2) PutSums<1>(sums + tile_sums);
    if constexpr (kRowTiles == 2) PutSums<2>(sums + 2 * tile_sums);
    if constexpr (kRowTiles * kColTiles == 4) PutSums<3>(sums + 3 * tile_sums);
  }

  // A chunk's sums start from zero and are added to those before. One chain of additions over all
  // pixels would have an error that grows with their number.
  template <int kTile>
  HWY_INLINE void PutSums(float* sums) const {
    if (!adds_) return tiles_.template store<kTile>(sums, 64);
    alignas(64) float own[split_tile_sums];
    tiles_.template store<kTile>(own, 64);
    for (int i = 0; i < split_tile_sums; i += tile_rows)
      *reinterpret_cast<LineAt*>(sums + i) += *reinterpret_cast<const LineAt*>(own + i);
  }

  template <int kRowTiles, int kColTiles>
  HWY_INLINE void Split(std::int64_t step) {
    constexpr std::ptrdiff_t kStepA = kTerms * tile_bytes, kStepB = kStepA * kColTiles;
    // A page has the pixels of two steps: the hardware prefetcher stops there.
    const std::int64_t next = step + kAhead;
    if (splits_dy_)
      for (int i = 0; i < kRowTiles; ++i) {
        if (next < steps_) PrefetchPixels(dy_.tile[i], scratch_.rows.out + next * tile_depth);
        SplitDy<Tiles, kTerms, kBlock>(dy_.tile[i], dy_.upper[i],
                                       scratch_.rows.out + step * tile_depth,
                                       a_ + i * a_tile() + step * kStepA);
      }
    if (splits_x_) {
      std::int64_t at[tile_depth];
      if (prefetches_x_ && next < steps_) {
        FindX(next, at);
        for (int i = 0; i < kColTiles; ++i) PrefetchPixels(x_.tile[i], at);
      }
      FindX(step, at);
      for (int i = 0; i < kColTiles; ++i)
        SplitX<Tiles, kTerms, kBlock>(x_.tile[i], x_.upper[i], at,
                                      scratch_.b + step * kStepB + i * tile_bytes,
                                      kColTiles * tile_bytes);
    }
  }

  // Where the pixels of a step lie in x at this tap; negative for padding.
  HWY_INLINE void FindX(std::int64_t step, std::int64_t* at) const {
    const auto height = static_cast<std::uint32_t>(gemm_.pixels.in.h);
    const auto width = static_cast<std::uint32_t>(gemm_.pixels.in.w);
    const Tap tap = *tap_;
    const std::int32_t delta = tap.dh * static_cast<std::int32_t>(width) + tap.dw;
    const std::int64_t first = step * tile_depth;
    const std::int64_t* const image = scratch_.rows.image + first;
    const std::int32_t *const h = scratch_.rows.h + first, *const w = scratch_.rows.w + first;
    const std::int32_t* const pixel = scratch_.rows.pixel + first;
    for (std::int64_t i = 0; i < tile_depth; ++i) {
      const bool inside = (static_cast<std::uint32_t>(h[i] + tap.dh) < height) &
                          (static_cast<std::uint32_t>(w[i] + tap.dw) < width);
      at[i] = inside ? image[i] + std::int64_t{pixel[i] + delta} * kBlock : -1;
    }
  }

  const SplitFilterGemm& gemm_;
  const PixelGrid& grid_;
  const SplitFilterOperands<S> data_;  // of the group
  const SplitFilterScratch scratch_;
  float* const sums_;
  const Range k_pairs_, c_pairs_;
  PhaseRecorder* const recorder_;
  Tiles tiles_;
  // Of the present chunk:
  std::int64_t steps_ = 0;
  bool adds_ = false;
  // Of the present pairs and tap:
  TilePair<S> x_{}, dy_{};
  std::byte* a_ = nullptr;
  const Tap* tap_ = nullptr;
  bool splits_x_ = false, splits_dy_ = false, prefetches_x_ = false;
};

template <class Tiles, int kTerms, int kBlock, class S>
void RunSplitFilterUnit(const SplitFilterGemm& gemm, const SplitFilterOperands<S>& data,
                        std::byte* scratch, float* sums, std::int64_t rectangle, std::int64_t part,
                        PhaseRecorder* recorder) {
  SplitFilterUnit<Tiles, kTerms, kBlock, S>(gemm, data, scratch, sums, rectangle, recorder)
      .Run(share(gemm.steps, part, gemm.parts));
}

}  // namespace convlab::cpu
