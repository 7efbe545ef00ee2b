// Forward and backward_data of implicit_gemm: see implicit_gemm.h.
//
// A thread owns a range of rows and a range of panels (tile.cols output channels each), and some
// rows of the panels before and after:
//   for each block of rows, for each chunk of depth:
//     gather the block's tiles of A into L2, unless they are contiguous in the input
//     for each panel: its chunk of B comes into L1 and stays there while
//       for each tile of the block: tile.rows x tile.cols of C += A B
// C is accumulated in the output itself, which a chunk reads and writes once per tile.
#include <hwy/cache_control.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "kernels_cpu/device/thread_padding.h"
#include "kernels_cpu/implicit_gemm/implicit_gemm.h"
#include "kernels_cpu/implicit_gemm/pixel_rows.h"
#include "kernels_cpu/implicit_gemm/plain_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/implicit_gemm/pixels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/gemm/gemm_kernel-inl.h"
#include "kernels_cpu/gemm/quad_tile-inl.h"
#include "kernels_cpu/gemm/tile_output-inl.h"
#include "kernels_cpu/simd/zero_between-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// Carves a thread's workspace up; with a null base it only measures.
template <class T>
struct Scratch {
  RowTable rows;
  const T** groups;  // [tile][group]: where the tile's rows of A start
  T* panel;
  std::size_t bytes;

  Scratch(const PixelGemm& gemm, std::byte* base) {
    const std::size_t count = std::size_t(round_up(gemm.block_rows, 16)) + 16;
    std::size_t at = 0;
    const auto take = [&](std::size_t size) {
      std::byte* const p = base == nullptr ? nullptr : base + at;
      at += (size + 63) / 64 * 64;
      return p;
    };
    rows.image = reinterpret_cast<std::int64_t*>(take(count * sizeof(std::int64_t)));
    rows.out = reinterpret_cast<std::int64_t*>(take(count * sizeof(std::int64_t)));
    rows.h = reinterpret_cast<std::int32_t*>(take(count * sizeof(std::int32_t)));
    rows.w = reinterpret_cast<std::int32_t*>(take(count * sizeof(std::int32_t)));
    rows.pixel = reinterpret_cast<std::int32_t*>(take(count * sizeof(std::int32_t)));
    // The last rows take up to four smaller tiles; kPrefetchGroups more entries are read.
    const std::int64_t tiles = gemm.block_rows / gemm.tile.rows + 4;
    groups = reinterpret_cast<const T**>(
        take(std::size_t(tiles * gemm.chunk + kPrefetchGroups) * sizeof(T*)));
    const std::int64_t elements =
        gemm.plain_in() ? gemm.plain.elements() : gemm.block_rows * gemm.chunk * kBlock;
    panel = reinterpret_cast<T*>(take(std::size_t(elements) * sizeof(T)));
    if (gemm.plain_in()) take(thread_padding_bytes);  // whose rows are read by strides
    bytes = at;
  }
};

std::size_t ThreadWorkspace(const PixelGemm& gemm) {
  return gemm.dtype == DType::f64 ? Scratch<double>(gemm, nullptr).bytes
                                  : Scratch<float>(gemm, nullptr).bytes;
}

// Pixels (h W + w within an image) that one tap reads for kRows rows; -1 is padding. True if they
// are neighbours in memory.
template <int kRows>
HWY_INLINE bool TapPixels(const PixelGemm& gemm, const Tap& tap, const RowTable& rows,
                          std::int64_t first, std::int32_t* pixels) {
  const auto height = static_cast<std::uint32_t>(gemm.in.h);
  const auto width = static_cast<std::uint32_t>(gemm.in.w);
  const std::int32_t delta = tap.dh * static_cast<std::int32_t>(width) + tap.dw;
  const auto inside = [&](std::int64_t i) HWY_ATTR {
    return (static_cast<std::uint32_t>(rows.h[i] + tap.dh) < height) &
           (static_cast<std::uint32_t>(rows.w[i] + tap.dw) < width);
  };
  const std::int64_t last = first + kRows - 1;
  if (gemm.in_step_w == 1 && rows.h[first] == rows.h[last] &&
      rows.image[first] == rows.image[last] && inside(first) && inside(last)) {
    pixels[0] = rows.pixel[first] + delta;  // so are all between
    return true;
  }
  std::int32_t gaps = 0;
  for (int i = 0; i < kRows; ++i) {
    pixels[i] = inside(first + i) ? rows.pixel[first + i] + delta : -1;
    gaps |= pixels[i] ^ (rows.pixel[first] + delta + i);
  }
  return gaps == 0 && pixels[0] >= 0 && rows.image[first] == rows.image[last];
}

// Finds the rows of A of one tile for groups [begin, end), where group = channel block * taps +
// tap. Rows that are neighbours in the input stay there; others are gathered into panel
// [group][row][kBlock].
template <class T, int kRows>
HWY_NOINLINE void GatherBlocked(const PixelGemm& gemm, const PixelGrid& grid, const T* in,
                                const RowTable& rows, std::int64_t first, std::int64_t begin,
                                std::int64_t end, const T** groups, T* panel) {
  const TagOf<T> d;
  const std::int64_t plane = gemm.in.channel_step();
  const auto taps = std::int64_t(grid.taps.size());
  std::int64_t tap = begin % taps, channels = begin / taps;
  std::int32_t pixels[kRows] = {};
  bool neighbours = TapPixels<kRows>(gemm, grid.taps[std::size_t(tap)], rows, first, pixels);
  if (taps == 1 && neighbours) {  // nothing changes but the channels
    const T* line = in + channels * plane + rows.image[first] + pixels[0] * std::int64_t{kBlock};
    for (std::int64_t g = begin; g < end; ++g, line += plane) *groups++ = line;
    return;
  }
  for (std::int64_t g = begin; g < end; ++g, panel += kRows * kBlock) {
    if (g > begin && taps > 1)
      neighbours = TapPixels<kRows>(gemm, grid.taps[std::size_t(tap)], rows, first, pixels);
    const T* const block = in + channels * plane;
    if (neighbours) {
      *groups++ = block + rows.image[first] + pixels[0] * std::int64_t{kBlock};
    } else {
      *groups++ = panel;
      for (int i = 0; i < kRows; ++i) {
        const T* const line = block + rows.image[first + i] + pixels[i] * std::int64_t{kBlock};
        for (int lane = 0; lane < kBlock; lane += kLanesOf<T>)
          hn::StoreU(pixels[i] < 0 ? hn::Zero(d) : hn::LoadU(d, line + lane), d,
                     panel + i * kBlock + lane);
      }
    }
    if (++tap == taps) tap = 0, ++channels;
  }
}

// Where the groups of the tile that starts at output column `first` lie in that buffer.
template <class T>
void PlainGroups(const PixelGemm& gemm, const T* buffer, std::int64_t first, const T** groups) {
  const std::int64_t per_row = gemm.plain.s / gemm.group_depth;
  for (std::int64_t row = 0; row < gemm.in.c * gemm.plain.r; ++row, buffer += gemm.plain.width)
    for (std::int64_t g = 0; g < per_row; ++g)
      *groups++ = buffer + first * gemm.in_step_w + g * gemm.plain.step_w;
}

// The tiles of a panel of C, one chunk of depth.
template <class T>
struct PanelJob {
  std::int64_t group_depth;   // of a plain input, as is
  std::ptrdiff_t row_stride;  // this; else both are kBlock
  const T* b;
  std::int64_t prefetched;
  std::ptrdiff_t plane;
  std::int64_t groups, last_depth;  // steps of the last group
  TileOutputOf<T> output;
  std::int64_t channels;  // of the panel
};

// And what differs from tile to tile, as arguments: values just stored to memory would delay the
// tile's first loads.
//   a: where the rows of each group lie, and of kPrefetchGroups to come;
//   row_out: where its rows go;
//   prefetch: what is prefetched on the side, or null. TileKind::blocked: the next panel's B.
//          prefetches_rows: of the rows as far on in the next block, the first of `prefetched`
//          groups, the others `plane` floats apart.
template <class T>
using GroupsOfA = const T* const*;

enum class TileKind { plain, blocked, prefetches_rows };  // of the input

template <class T, int kRows, int kVecs, TileKind kKind>
HWY_NOINLINE void RunTile(const PanelJob<T>& job, GroupsOfA<T> a, const std::int64_t* row_out,
                          const T* prefetch) {
  TileOf<Elements<T>, kRows, kVecs> tile;
  tile.SetZero();
  constexpr std::int64_t kVec = kLanesOf<T>, kCols = kVecs * kVec;
  if constexpr (kKind == TileKind::plain) {  // copied just before
    tile.MultiplyAdd(a, job.row_stride, {job.b, kCols, kVec}, job.groups, job.group_depth);
    job.output.Store(tile, row_out);
    return;
  }
  // Stores wait in the core's schedulers for their accumulators. Those of a large tile would leave
  // no room for the next tile's multiply-adds, so its two halves end one after the other.
  constexpr int kHalf = kRows * kVecs >= 24 ? kRows / 2 : kRows;
  const std::int64_t whole = !kStraight && job.groups > 0 ? job.groups - 1 : job.groups;
  if constexpr (kKind == TileKind::prefetches_rows) {
    const std::int64_t done = std::min(job.prefetched, whole);
    tile.template MultiplyAddPrefetching<kBlock>(a, {job.b, kCols, kVec}, done, prefetch,
                                                 job.plane);
    tile.template MultiplyAddPrefetching<kBlock>(
        a + done, {job.b + done * kBlock * kCols, kCols, kVec}, whole - done);
  } else {
    tile.template MultiplyAddPrefetching<kBlock, 0, kRows, kCols>(a, {job.b, kCols, kVec}, whole,
                                                                  prefetch, kBlock * kCols);
  }
  a += whole;
  const PanelBOf<T> b{job.b + whole * kBlock * kCols, kCols, kVec};
  const bool last = whole < job.groups;
  if (last) tile.template MultiplyAddLast<kBlock, 0, kHalf>(a, b, job.last_depth);
  job.output.template StoreRows<0, kHalf, true>(tile, row_out);
  if constexpr (kHalf < kRows) {
    if (last) tile.template MultiplyAddLast<kBlock, kHalf, kRows>(a, b, job.last_depth);
    job.output.template StoreRows<kHalf, kRows, true>(tile, row_out);
  }
}

// Rows from kFirst on of a panel of 24 columns, four rows at a time: 24 accumulators, six vectors
// of B and one of A.
template <int kRows, int kFirst = 0>
HWY_NOINLINE void RunFours(const PanelJob<float>& job, GroupsOfA<float> a,
                           const std::int64_t* row_out, const float* prefetch) {
  constexpr int kLeft = kRows - kFirst, kParts = (kLeft + 3) / 4;
  constexpr int kOwn = (kLeft + kParts - 1) / kParts, kFours = 6;
  constexpr std::ptrdiff_t kAt = kFirst * kBlock;
  QuadTile<kOwn, kFours> tile;
  tile.SetZero();
  const float* b = job.b;
  const auto multiply = [&](std::int64_t begin, std::int64_t end, auto&& prefetch) HWY_ATTR {
    for (std::int64_t g = begin; g < end; ++g, b += kBlock * 4 * kFours) {
      prefetch(g);
      tile.MultiplyAddGroupPrefetching(a[g] + kAt, b, a[g + kPrefetchGroups] + kAt);
    }
  };
  const std::int64_t whole = std::max<std::int64_t>(job.groups - 1, 0);
  const std::int64_t prefetched = prefetch == nullptr ? 0 : std::min(job.prefetched, whole);
  multiply(0, prefetched, [&](std::int64_t g) HWY_ATTR {
    for (int i = 0; i < kOwn; ++i)
      __builtin_prefetch(prefetch + g * job.plane + kAt + i * kBlock, 0, 2);
  });
  multiply(prefetched, whole, [](std::int64_t) {});
  if (job.groups > 0) tile.MultiplyAdd(a[whole] + kAt, b, job.last_depth);
  auto rows = tile.Columns24();
  job.output.StoreRows<0, kOwn, true>(rows, row_out + kFirst);
  if constexpr (kFirst + kOwn < kRows) RunFours<kRows, kFirst + kOwn>(job, a, row_out, prefetch);
}

// The same into plain NCHW, channel by channel; at most 4 channels, which the smallest panel holds.
template <class T, int kRows>
HWY_NOINLINE void RunTileToPlain(PanelJob<T> job, GroupsOfA<T> a, const std::int64_t* row_out) {
  constexpr int kVecs = kLanesOf<T> == kBlock ? 1 : kTileVecsOf<T>, kCols = kTileColsOf<T>;
  alignas(64) T values[kRows * kCols];
  std::int64_t rows[kRows];
  const TileOutputOf<T> to = job.output;
  for (int i = 0; i < kRows; ++i) rows[i] = i * kCols;
  job.output = {{.out = values}, kBlock};
  RunTile<T, kRows, kVecs, TileKind::blocked>(job, a, rows, nullptr);
  for (std::int64_t c = 0; c < job.channels; ++c)
    for (int i = 0; i < kRows; ++i)
      to.epilogue.store(row_out[i] + c * to.plane, c, values[i * kCols + c]);
}

// For a panel of at most kVecs vectors.
template <class T, int kRows, int kVecs, TileKind kKind>
HWY_INLINE void DispatchVecs(const PanelJob<T>& job, GroupsOfA<T> a, const std::int64_t* row_out,
                             const T* prefetch) {
  if constexpr (kLanesOf<T> == kBlock && kVecs == 2) {
    if (job.channels <= kBlock) return RunTile<T, kRows, 1, kKind>(job, a, row_out, prefetch);
  }
  if constexpr (std::is_same_v<T, float> && kLanes == 16 && kVecs == 2 &&
                kKind != TileKind::plain) {
    if (job.channels <= 24)
      return RunFours<kRows>(job, a, row_out, prefetch);  // PixelGemm::in_fours
  }
  RunTile<T, kRows, kVecs, kKind>(job, a, row_out, prefetch);
}
template <class T, int kRows, int kMostRows, int kVecs>
HWY_INLINE void DispatchTile(const PanelJob<T>& job, GroupsOfA<T> a, const std::int64_t* row_out,
                             const T* prefetch, bool plain_in, bool plain_out) {
  constexpr bool kLarge = kRows >= std::min(kMostRows, kTileRows);
  if (plain_out)
    RunTileToPlain<T, kRows>(job, a, row_out);
  else if (plain_in)
    DispatchVecs<T, kRows, kVecs, TileKind::plain>(job, a, row_out, nullptr);
  else if (kLarge && job.prefetched > 0)
    DispatchVecs<T, kRows, kVecs, kLarge ? TileKind::prefetches_rows : TileKind::blocked>(
        job, a, row_out, prefetch);
  else
    DispatchVecs<T, kRows, kVecs, TileKind::blocked>(job, a, row_out,
                                                     job.prefetched == 0 ? prefetch : nullptr);
}

// In tiles of at most kMostRows rows by kVecs vectors: gemm.tile.
template <class T, int kMostRows, int kVecs>
void RunBlock(const PixelGemm& gemm, const PixelGrid& grid, const PixelOperands<T>& data,
              const Scratch<T>& scratch, Range own_rows, Range panels, PhaseRecorder* recorder) {
  const std::int64_t begin = own_rows.begin, end = own_rows.end;
  if (begin >= end || panels.size() == 0) return;
  constexpr int kCols = kVecs * kLanesOf<T>;
  const bool plain_in = gemm.plain_in(), plain_out = !is_blocked(gemm.out.layout);
  const std::int64_t groups = gemm.depth_groups(grid);
  const std::int64_t out_plane = gemm.out.channel_step();
  const RowTable& rows = scratch.rows;
  fill_rows(gemm, grid, begin, end - begin, rows);

  // The first panel reads the block from memory; the others would leave memory idle. So each
  // prefetches a share of the next block's groups.
  const std::int64_t image_pixels = grid.h * grid.w;
  const auto next_rows = [&](std::int64_t first) {
    const std::int64_t row = end + first;
    const std::int64_t image = row / image_pixels, pixel = row % image_pixels;
    return data.in + image * gemm.in.image_step() + pixel * kBlock;
  };
  // Lanes that pad the last channel block are zero. With several taps each tap's depth would end
  // so.
  const std::int64_t last_depth =
      grid.taps.size() == 1 ? gemm.in.c - (gemm.in.c - 1) / kBlock * kBlock : kBlock;
  const std::int64_t chunks = std::max<std::int64_t>(1, ceil_div(groups, gemm.chunk));
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Range gathered = share(groups, chunk, chunks);
    if (groups > 0) {
      const PhaseScope scope(recorder, 0);
      if (plain_in)
        copy_plain_rows(gemm.plain, data.in + rows.image[0], rows.h[0] + grid.taps[0].dh,
                        rows.w[0] + grid.taps[0].dw, scratch.panel);
      const T** tile_groups = scratch.groups;
      ForEachTile<kMostRows>(end - begin, [&](auto n, std::int64_t first) HWY_ATTR {
        if (plain_in)
          PlainGroups(gemm, scratch.panel, first, tile_groups);
        else
          GatherBlocked<T, n.value>(gemm, grid, data.in, rows, first, gathered.begin, gathered.end,
                                    tile_groups, scratch.panel + first * gemm.chunk * kBlock);
        tile_groups += gathered.size();
      });
      // After the last tile comes the first one again, for the next panel.
      for (int i = 0; i < kPrefetchGroups; ++i) tile_groups[i] = scratch.groups[i];
    }
    const PhaseScope scope(recorder, 1);
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const std::int64_t channel = panel * kCols;
      const std::int64_t channels = std::min<std::int64_t>(kCols, gemm.out.c - channel);
      alignas(64) T bias[kCols] = {};
      if (data.output.bias != nullptr) std::copy_n(data.output.bias + channel, channels, bias);
      const std::int64_t out_at = channel / channel_block(gemm.out.layout) * out_plane;
      PanelJob<T> job{};
      job.b = data.packed + grid.filter + panel * groups * gemm.group_depth * kCols +
              gathered.begin * gemm.group_depth * gemm.packed_cols(channels);
      job.groups = gathered.size();
      job.last_depth = gathered.end == groups ? last_depth : kBlock;
      job.group_depth = gemm.group_depth;
      job.row_stride = gemm.in_step_w;
      job.channels = channels;
      job.plane = gemm.in.channel_step();
      job.output = {
          data.output.at(out_at, 0).with_biases(bias).part(chunk == 0, chunk + 1 == chunks),
          out_plane};
      if (gemm.zeros_between && chunk == 0)
        ZeroBetween(gemm.out, gemm.out_step_h, gemm.out_step_w, {begin / grid.w, end / grid.w},
                    ceil_div(channels, kBlock), data.output.out + out_at, data.output.non_temporal);
      const Range prefetched =
          share(gemm.prefetch_rows ? groups : 0, panel - panels.begin, panels.size());
      job.prefetched = prefetched.size();
      GroupsOfA<T> tile_a = scratch.groups;
      ForEachTile<kMostRows>(end - begin, [&](auto n, std::int64_t first) HWY_ATTR {
        const T* prefetch = nullptr;
        if (job.prefetched > 0)
          prefetch = next_rows(first) + prefetched.begin * job.plane;
        else if (first + n.value == end - begin && panel + 1 < panels.end)  // the last tile
          prefetch = job.b + groups * gemm.group_depth * kCols;
        DispatchTile<T, n.value, kMostRows, kVecs>(job, tile_a, rows.out + first, prefetch,
                                                   plain_in, plain_out);
        tile_a += gathered.size();
      });
    }
  }
}

template <class T>
void RunThread(const PixelGemm& gemm, const PixelOperands<T>& data, std::byte* workspace,
               std::int64_t thread, PhaseRecorder* recorder) {
  const Scratch<T> scratch(gemm, workspace + std::size_t(thread) * gemm.thread_bytes);
  auto run_block = RunBlock<T, kTileRows, kTileVecsOf<T>>;
  if constexpr (kLanes == 16) {
    constexpr int kVec = kLanesOf<T>;
    if constexpr (kVec == kBlock) {
      // Twice the rows, so that each vector of B is used as often as in a tile of two.
      if (gemm.tile.cols == kVec) run_block = RunBlock<T, 2 * kTileRows, 1>;
      if (gemm.tile.cols == 3 * kVec) run_block = RunBlock<T, 8, 3>;
    }
    if (gemm.tile.cols == 4 * kVec) run_block = RunBlock<T, 6, 4>;
  }
  for_each_block(gemm, thread, [&](const PixelGrid& grid, Range rows, Range panels) HWY_ATTR {
    run_block(gemm, grid, data, scratch, rows, panels, recorder);
  });
  if (data.output.non_temporal) hwy::FlushStream();
}

void RunThreadF32(const PixelGemm& gemm, const PixelOperands<float>& data, std::byte* workspace,
                  std::int64_t thread, PhaseRecorder* recorder) {
  RunThread(gemm, data, workspace, thread, recorder);
}
void RunThreadF64(const PixelGemm& gemm, const PixelOperands<double>& data, std::byte* workspace,
                  std::int64_t thread, PhaseRecorder* recorder) {
  RunThread(gemm, data, workspace, thread, recorder);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(ThreadWorkspace);
HWY_EXPORT(RunThreadF32);
HWY_EXPORT(RunThreadF64);

std::size_t thread_workspace(const PixelGemm& gemm) {
  return HWY_DYNAMIC_DISPATCH(ThreadWorkspace)(gemm);
}

void run_thread(const PixelGemm& gemm, const PixelOperands<float>& data, std::byte* workspace,
                std::int64_t thread, PhaseRecorder* recorder) {
  HWY_DYNAMIC_DISPATCH(RunThreadF32)(gemm, data, workspace, thread, recorder);
}
void run_thread(const PixelGemm& gemm, const PixelOperands<double>& data, std::byte* workspace,
                std::int64_t thread, PhaseRecorder* recorder) {
  HWY_DYNAMIC_DISPATCH(RunThreadF64)(gemm, data, workspace, thread, recorder);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
