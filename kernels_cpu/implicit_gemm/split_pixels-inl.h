// One thread's part of a SplitGemm, for a policy of tiles (AmxTiles, EmulatedTiles, DotTiles). See
// split.h.
//
//   for each block of rows, for each chunk of depth, for each panel:
//     for each two tiles of rows: 2 x 2 tiles of C += A B, then the epilogue
//
// Where the panel is the first one, the rows of the next step are read, split and stored while the
// tiles of this step are multiplied: a matrix unit's products leave the vector units idle.
//
// Included once by each of the files that compile it, with its instruction set in force.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels_cpu/amx/blocks-inl.h"
#include "kernels_cpu/amx/line.h"
#include "kernels_cpu/amx/products-inl.h"
#include "kernels_cpu/implicit_gemm/pixel_rows.h"
#include "kernels_cpu/implicit_gemm/split.h"
#include "kernels_cpu/implicit_gemm/split_scratch.h"
#include "kernels_cpu/layers/activate.h"

namespace convlab::cpu {

// Splits one row, 32 steps of depth, into its terms, a tile apart. All but the last term are
// rounded to the nearest bf16, ties away from zero, by adding half a unit to the bits. That could
// turn a NaN into something else, but the rest of a NaN is NaN, and the last term is rounded by an
// operation that keeps it.
template <class Tiles, int kTerms>
HWY_INLINE void SplitRow(Line& x0, Line& x1, std::byte* to) {
  for (int term = 0; term + 1 < kTerms; ++term, to += tile_bytes) {
    const LineBits r0 = (LineBits)x0 + 0x8000u, r1 = (LineBits)x1 + 0x8000u;
    *reinterpret_cast<LineHalvesAt*>(to) = __builtin_shufflevector(
        (LineHalves)r0, (LineHalves)r1, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
    x0 -= (Line)(r0 & 0xffff0000u);
    x1 -= (Line)(r1 & 0xffff0000u);
  }
  Tiles::round(x0, x1, to);
}

// Reads and splits the rows of up to two tiles, a step of depth at a time. A step is 32 / kBlock
// groups, each of which is a channel block at one tap.
template <class Tiles, int kTerms, int kBlock, class S>
class RowSplitter {
 public:
  static constexpr int kGroups = int(tile_depth) / kBlock;

  // From group `begin` on, rows [first, first + valid) of the table; the other rows are zero.
  RowSplitter(const SplitGemm& gemm, const PixelGrid& grid, const S* in, const RowTable& rows,
              std::int64_t first, std::int64_t valid, std::int64_t begin)
      : pixels_(gemm.pixels),
        grid_(grid),
        in_(in),
        rows_(rows),
        first_(first),
        valid_(valid),
        blocks_(gemm.channel_blocks()),
        plane_(gemm.pixels.in.channel_step()),
        tap_(begin / blocks_),
        block_(begin % blocks_) {
    std::fill_n(nowhere_, kPairRows, std::int64_t{-1});
    if (tap_ < std::int64_t(grid_.taps.size())) FindTap();
  }

  // One step of kRowTiles tiles, a_tile bytes apart.
  template <int kRowTiles>
  HWY_INLINE void Step(std::byte* to, std::ptrdiff_t a_tile) {
    const S* base[kGroups];
    const std::int64_t* offset[kGroups];
    for (int g = 0; g < kGroups; ++g) NextGroup(base[g], offset[g]);
    for (int tile = 0; tile < kRowTiles; ++tile, to += a_tile)
      for (int i = 0; i < tile_rows; ++i) {
        const int row = tile * int(tile_rows) + i;
        if constexpr (kTerms == 1) {
          Copy(base, offset, row, to + i * 64);
        } else {
          Line x0, x1;
          Read(base, offset, row, x0, x1);
          SplitRow<Tiles, kTerms>(x0, x1, to + i * 64);
        }
      }
  }

 private:
  HWY_INLINE void NextGroup(const S*& base, const std::int64_t*& offset) {
    if (tap_ == std::int64_t(grid_.taps.size())) {  // beyond the depth
      base = in_;
      offset = nowhere_;
      return;
    }
    base = in_ + block_ * plane_;
    offset = offsets_[at_];
    if (++block_ < blocks_) return;
    block_ = 0;
    if (++tap_ == std::int64_t(grid_.taps.size())) return;
    at_ = (at_ + 1) % kTables;  // the groups of this step still use the tables before
    FindTap();
  }

  // Where the pixels that this tap reads lie in the input; negative for padding.
  HWY_NOINLINE void FindTap() {
    const Tap& tap = grid_.taps[std::size_t(tap_)];
    const auto height = static_cast<std::uint32_t>(pixels_.in.h);
    const auto width = static_cast<std::uint32_t>(pixels_.in.w);
    const std::int32_t delta = tap.dh * static_cast<std::int32_t>(width) + tap.dw;
    std::int64_t* const offsets = offsets_[at_];
    const std::int64_t* const image = rows_.image + first_;
    const std::int32_t *const h = rows_.h + first_, *const w = rows_.w + first_;
    const std::int32_t* const pixel = rows_.pixel + first_;
    for (std::int64_t i = 0; i < valid_; ++i) {
      const bool inside = (static_cast<std::uint32_t>(h[i] + tap.dh) < height) &
                          (static_cast<std::uint32_t>(w[i] + tap.dw) < width);
      offsets[i] = inside ? image[i] + std::int64_t{pixel[i] + delta} * kBlock : -1;
    }
    for (std::int64_t i = valid_; i < kPairRows; ++i) offsets[i] = -1;
  }

  static HWY_INLINE void Copy(const S* const* base, const std::int64_t* const* offset, int i,
                              std::byte* to) {
    using Halves = typename BlockOf<kBlock>::HalvesAt;
    for (int g = 0; g < kGroups; ++g, to += sizeof(Halves)) {
      const std::int64_t at = offset[g][i];
      *reinterpret_cast<Halves*>(to) =
          at < 0 ? Halves{} : *reinterpret_cast<const Halves*>(base[g] + at);
    }
  }

  static HWY_INLINE void Read(const S* const* base, const std::int64_t* const* offset, int i,
                              Line& x0, Line& x1) {
    if constexpr (kBlock == 16) {
      const std::int64_t at0 = offset[0][i], at1 = offset[1][i];
      x0 = at0 < 0 ? Line{} : *reinterpret_cast<const LineAt*>(base[0] + at0);
      x1 = at1 < 0 ? Line{} : *reinterpret_cast<const LineAt*>(base[1] + at1);
    } else {
      float row[tile_depth] = {};
      for (int g = 0; g < kGroups; ++g)
        if (offset[g][i] >= 0) std::copy_n(base[g] + offset[g][i], kBlock, row + g * kBlock);
      x0 = *reinterpret_cast<const LineAt*>(row);
      x1 = *reinterpret_cast<const LineAt*>(row + 16);
    }
  }

  static constexpr int kTables = kGroups + 1;
  const PixelGemm& pixels_;
  const PixelGrid& grid_;
  const S* const in_;
  const RowTable rows_;
  const std::int64_t first_, valid_, blocks_, plane_;
  std::int64_t tap_, block_;  // of the next group
  int at_ = 0;                // the table of its tap
  std::int64_t offsets_[kTables][kPairRows];
  std::int64_t nowhere_[kPairRows];
};

// Two tiles of rows of a panel, one chunk of depth.
template <class S>
struct SplitJob {
  std::byte* a;
  std::ptrdiff_t a_tile;  // bytes from one tile of rows to the next
  const std::byte* b;
  std::int64_t steps;
  // A share of the next panel's B, which each step prefetches into L2: so many lines.
  const std::byte* prefetch;
  std::int64_t prefetch_lines;
  OutputEpilogue<S> output;  // from the panel's first channel on
  const float* bias;         // one a column, or null
  std::int64_t plane;        // from one channel block of the output to the next
  std::int64_t columns;      // that exist, padding lanes included
};

// Rows of 16 sums, at `sums`, through the whole epilogue in place. For activations that take a
// function; row i belongs to out_at[i], and `column` is the first. (Tiles names the instruction set
// that this is compiled for.)
template <class Tiles, int kBlock, class S>
HWY_NOINLINE void ActivateTile(const SplitJob<S>& job, float* sums, const std::int64_t* out_at,
                               std::int64_t rows, std::int64_t column) {
  using Part = typename BlockOf<kBlock>::At;
  const OutputEpilogue<S>& output = job.output;
  for (std::int64_t done = 0; done < tile_rows && column + done < job.columns; done += kBlock) {
    const std::int64_t to = (column + done) / kBlock * job.plane;
    for (std::int64_t i = 0; i < rows; ++i) {
      Part& v = *reinterpret_cast<Part*>(sums + i * tile_rows + done);
      if (job.bias != nullptr) AddBlock<kBlock>(job.bias + column + done, v);
      if (output.addend != nullptr) AddBlock<kBlock>(output.addend + to + out_at[i], v);
    }
  }
  activate(*output.activation, sums, rows * tile_rows);
}

// Stores such rows, of which row i goes to out_at[i].
template <class Tiles, int kBlock, class S>
HWY_INLINE void StoreTile(const SplitJob<S>& job, float* sums, const std::int64_t* out_at,
                          std::int64_t rows, std::int64_t column) {
  using Part = typename BlockOf<kBlock>::At;
  using PartBits = typename BlockOf<kBlock>::Bits;
  OutputEpilogue<S> output = job.output;
  const float* bias = job.bias;
  const bool bounded = output.activation == ActivationKind::relu6;
  const bool rectified = bounded || output.activation == ActivationKind::relu;
  if (output.activation && !rectified) {
    ActivateTile<Tiles, kBlock>(job, sums, out_at, rows, column);
    output = {.out = output.out};
    bias = nullptr;
  }
  for (std::int64_t done = 0; done < tile_rows; done += kBlock) {
    if (column + done >= job.columns) return;
    const std::int64_t to = (column + done) / kBlock * job.plane;
    for (std::int64_t i = 0; i < rows; ++i) {
      Part v = *reinterpret_cast<const Part*>(sums + i * tile_rows + done);
      if (bias != nullptr) AddBlock<kBlock>(bias + column + done, v);
      if (output.addend != nullptr) AddBlock<kBlock>(output.addend + to + out_at[i], v);
      if (rectified) v = (Part)((PartBits)v & ~(PartBits)(v < 0));
      if (bounded) {
        const PartBits above = (PartBits)(v > 6);
        v = (Part)(((PartBits)v & ~above) | ((PartBits)(Part{} + 6) & above));
      }
      WriteBlock<kBlock>(v, output.out + to + out_at[i]);
    }
  }
}

// Makes a step ready to be multiplied: splits its rows, if they are not yet, and prefetches.
template <int kTerms, int kRowTiles, bool kSplits, class Splitter, class S>
struct ReadyRows {
  const SplitJob<S>& job;
  Splitter* splitter;

  HWY_INLINE void Step(std::int64_t step) {
    if constexpr (kSplits)
      splitter->template Step<kRowTiles>(job.a + step * kTerms * tile_bytes, job.a_tile);
    const std::byte* const prefetch = job.prefetch + step * job.prefetch_lines * 64;
    for (std::int64_t i = 0; i < job.prefetch_lines; ++i)
      __builtin_prefetch(prefetch + i * 64, 0, 2);
  }
};

template <class Tiles, int kTerms, int kBlock, int kRowTiles, int kColTiles, bool kSplits, class S>
HWY_NOINLINE void RunTiles(Tiles& tiles, const SplitJob<S>& job,
                           RowSplitter<Tiles, kTerms, kBlock, S>* splitter,
                           const std::int64_t* out_at, std::int64_t rows) {
  tiles.template zero<0>();
  if constexpr (kColTiles == 2) tiles.template zero<1>();
  if constexpr (kRowTiles == 2) tiles.template zero<2>();
  if constexpr (kRowTiles * kColTiles == 4) tiles.template zero<3>();
  ReadyRows<kTerms, kRowTiles, kSplits, RowSplitter<Tiles, kTerms, kBlock, S>, S> ready{job,
                                                                                        splitter};
  MultiplySteps<kTerms, kRowTiles, kColTiles>(tiles, job.a, job.a_tile, job.b, job.steps, ready);
  if constexpr (kBlock == tile_rows && std::is_same_v<S, float>) {
    // Rows that are neighbours and take no epilogue go where they belong, without a detour.
    const OutputEpilogue<float>& output = job.output;
    constexpr std::int64_t kLast = kRowTiles * tile_rows - 1;
    if (job.bias == nullptr && output.addend == nullptr && !output.activation && rows > kLast &&
        out_at[kLast] - out_at[0] == kLast * kBlock) {
      float* const to = output.out + out_at[0];
      tiles.template store<0>(to, 64);
      if constexpr (kRowTiles == 2) tiles.template store<2>(to + tile_rows * kBlock, 64);
      if constexpr (kColTiles == 2) tiles.template store<1>(to + job.plane, 64);
      if constexpr (kRowTiles * kColTiles == 4)
        tiles.template store<3>(to + job.plane + tile_rows * kBlock, 64);
      return;
    }
  }
  alignas(64) float sums[4][tile_rows * tile_rows];
  tiles.template store<0>(sums[0], 64);
  if constexpr (kColTiles == 2) tiles.template store<1>(sums[1], 64);
  if constexpr (kRowTiles == 2) tiles.template store<2>(sums[2], 64);
  if constexpr (kRowTiles * kColTiles == 4) tiles.template store<3>(sums[3], 64);
  for (int r = 0; r < kRowTiles; ++r)
    for (int c = 0; c < kColTiles; ++c)
      StoreTile<Tiles, kBlock>(job, sums[2 * r + c], out_at + r * tile_rows,
                               std::min(tile_rows, rows - r * tile_rows), c * tile_rows);
}

template <class Tiles, int kTerms, int kBlock, class S>
class SplitThread {
 public:
  SplitThread(const SplitGemm& gemm, const PixelOperands<S>& data, std::byte* workspace,
              PhaseRecorder* recorder)
      : gemm_(gemm), data_(data), scratch_(gemm, workspace), recorder_(recorder) {}

  void RunBlock(const PixelGrid& grid, Range own, Range panels) {
    if (own.size() <= 0 || panels.size() == 0) return;
    const PhaseScope scope(recorder_, 0);
    const PixelGemm& pixels = gemm_.pixels;
    fill_rows(pixels, grid, own.begin, own.size(), scratch_.rows);
    const std::int64_t steps = gemm_.steps(grid);
    const std::int64_t chunks = std::max<std::int64_t>(1, ceil_div(steps, gemm_.chunk_steps));
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const Range depth = share(steps, chunk, chunks);
      for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
        const std::int64_t channel = panel * split_panel_cols, col_tiles = gemm_.col_tiles(panel);
        const std::int64_t channels = std::min(split_panel_cols, pixels.out.c - channel);
        const std::int64_t out_plane = pixels.out.channel_step();
        alignas(64) float bias[split_panel_cols] = {};
        if (data_.output.bias != nullptr) std::copy_n(data_.output.bias + channel, channels, bias);
        SplitJob<S> job{};
        job.a_tile = depth.size() * kTerms * tile_bytes;
        job.b = reinterpret_cast<const std::byte*>(data_.packed) + grid.filter +
                panel * gemm_.panel_bytes(grid) + depth.begin * kTerms * col_tiles * tile_bytes;
        job.steps = depth.size();
        job.output =
            data_.output.at(channel / kBlock * out_plane, 0).part(chunk == 0, chunk + 1 == chunks);
        job.bias = job.output.bias == nullptr ? nullptr : bias;
        job.plane = out_plane;
        job.columns = round_up(channels, kBlock);
        const bool prefetches = panel + 1 < panels.end && depth.size() > 0;
        const std::int64_t pairs = ceil_div(own.size(), kPairRows);
        const std::int64_t lines =
            gemm_.panel_bytes(grid) / std::max<std::int64_t>(1, steps) / 64;  // a step
        job.prefetch_lines = prefetches ? ceil_div(lines, pairs) : 0;
        job.prefetch = job.b + gemm_.panel_bytes(grid);
        for (std::int64_t first = 0; first < own.size(); first += kPairRows) {
          job.a = scratch_.a + first / tile_rows * job.a_tile;
          RunPair(grid, job, first, std::min<std::int64_t>(kPairRows, own.size() - first),
                  depth.begin, col_tiles, panel == panels.begin);
          job.prefetch += job.steps * job.prefetch_lines * 64;
        }
      }
    }
  }

  void RunPair(const PixelGrid& grid, const SplitJob<S>& job, std::int64_t first, std::int64_t rows,
               std::int64_t begin, std::int64_t col_tiles, bool splits) {
    if (splits) {
      RowSplitter<Tiles, kTerms, kBlock, S> splitter(gemm_, grid, data_.in, scratch_.rows, first,
                                                     rows, begin * (tile_depth / kBlock));
      Dispatch<true>(job, &splitter, scratch_.rows.out + first, rows, col_tiles);
    } else {
      Dispatch<false>(job, nullptr, scratch_.rows.out + first, rows, col_tiles);
    }
  }

 private:
  template <bool kSplits>
  void Dispatch(const SplitJob<S>& job, RowSplitter<Tiles, kTerms, kBlock, S>* splitter,
                const std::int64_t* out_at, std::int64_t rows, std::int64_t col_tiles) {
    if (rows > tile_rows)
      col_tiles == 2
          ? RunTiles<Tiles, kTerms, kBlock, 2, 2, kSplits>(tiles_, job, splitter, out_at, rows)
          : RunTiles<Tiles, kTerms, kBlock, 2, 1, kSplits>(tiles_, job, splitter, out_at, rows);
    else
      col_tiles == 2
          ? RunTiles<Tiles, kTerms, kBlock, 1, 2, kSplits>(tiles_, job, splitter, out_at, rows)
          : RunTiles<Tiles, kTerms, kBlock, 1, 1, kSplits>(tiles_, job, splitter, out_at, rows);
  }

  const SplitGemm& gemm_;
  const PixelOperands<S>& data_;
  const SplitScratch scratch_;
  PhaseRecorder* const recorder_;
  Tiles tiles_;
};

template <class Tiles, int kTerms, int kBlock, class S>
void RunSplitThread(const SplitGemm& gemm, const PixelOperands<S>& data, std::byte* workspace,
                    std::int64_t thread, PhaseRecorder* recorder) {
  SplitThread<Tiles, kTerms, kBlock, S> own(
      gemm, data, workspace + std::size_t(thread) * gemm.pixels.thread_bytes, recorder);
  for_each_block(gemm.pixels, thread, [&](const PixelGrid& grid, Range rows, Range panels) {
    own.RunBlock(grid, rows, panels);
  });
}

}  // namespace convlab::cpu
