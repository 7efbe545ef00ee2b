// implicit_gemm on CUDA cores: f32 products, fused multiply-adds.
//
// A thread owns 8 x 8 elements of the block's tile as 2 x 2 quads, a warp 32 x 64. A step along the
// depth takes 4 vector loads from shared memory for 64 multiply-adds. cp.async copies slices of 8
// steps into a ring of four stages, with one barrier a slice. The largest tile has 16 warps a
// multiprocessor, the others 12, and these hide the latency of the table's entries. So a slice is
// looked up and copied in one go, before the sums' factors take registers too.
#include "conv/error.h"
#include "kernels_cuda/implicit_gemm/implicit_gemm.h"

namespace convlab::cuda::implicit_gemm {
namespace {

template <int rows_, int columns_>
struct FmaTile {
  static constexpr int rows = rows_, columns = columns_;
  static constexpr int depth = 8, stages = 4;
  static constexpr int threads = rows * columns / 64;
  // 128 registers a thread double the blocks of the largest tile. Small ones would gain 4 warps,
  // and take more instructions or spill.
  static constexpr int blocks = rows * columns == 128 * 128 ? 2 : 384 / threads;
  static constexpr int row_pitch = rows + 4, column_pitch = columns + 4;
  static constexpr int stage = depth * (row_pitch + column_pitch);
  static constexpr int shared_bytes = stages * stage * int(sizeof(float));
  static_assert(rows / 2 * column_pitch <= stages * stage);  // half of the product is staged
};

// The quads' products of one step: sums[i][j] += a[i] b[j].
__device__ __forceinline__ void multiply(float (&sums)[8][8], const float4 (&a)[2],
                                         const float4 (&b)[2]) {
  const float x[8]{a[0].x, a[0].y, a[0].z, a[0].w, a[1].x, a[1].y, a[1].z, a[1].w};
  const float y[8]{b[0].x, b[0].y, b[0].z, b[0].w, b[1].x, b[1].y, b[1].z, b[1].w};
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
}

template <class Tile, class A, class B, class Output>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    multiply_tiles(A a, B b, StridePhases phases, Output out, TileCounts tiles) {
  SHARED_DYN(float, shared);
  const Block block(phases, tiles);
  const StridePhase phase = phases.phase[block.phase];
  if (block.unit >= phase.planes.units) return;
  const Job job(phases, block);
  Slices<B::in_planes> slices(job, phase);
  const int first_row = (out.channels_are_rows ? block.channels : block.others) * Tile::rows;
  const int first_column = (out.channels_are_rows ? block.others : block.channels) * Tile::columns;
  Loader<A, Tile::rows, Tile::depth, Tile::threads, DepthMajor<Tile::row_pitch>> load_a(
      a, phase, block, slices.first_term(), first_row);
  Loader<B, Tile::columns, Tile::depth, Tile::threads, DepthMajor<Tile::column_pitch>> load_b(
      b, phase, block, slices.first_term(), first_column);

  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  // Neighbours share their columns, the next pairs their rows: so a vector load from either operand
  // takes two passes, one for each half of the warp (access_counts.cpp).
  const int row = warp % (Tile::rows / 32) * 32 + (lane / 16 * 2 + lane % 2) * 4;
  const int column = warp / (Tile::rows / 32) * 64 + lane / 2 % 8 * 4;
  float sums[8][8]{};

  // A slice lies in stage slice % stages.
  const auto stage_of = [&](int slice) {
    return shared + unsigned(slice) % Tile::stages * Tile::stage;
  };
  constexpr int b_tile = Tile::depth * Tile::row_pitch;
  const auto fetch = [&](int slice) {
    if (slice < job.end_slice) {
      load_a.issue(slices.next(slice), stage_of(slice));
      load_b.issue(slices.next(slice), stage_of(slice) + b_tile);
      if (slices.advance()) load_a.next_plane(), load_b.next_plane();
    }
    cp_async_commit();
  };
  for (int i = 0; i < Tile::stages - 1; ++i) fetch(job.first_slice + i);
  for (int slice = job.first_slice; slice < job.end_slice; ++slice) {
    cp_async_wait<Tile::stages - 2>();
    __syncthreads();  // this slice has arrived, and all threads are done with the last one
    fetch(slice + Tile::stages - 1);
    const float* const tile_a = stage_of(slice) + row;
    const float* const tile_b = stage_of(slice) + b_tile + column;
#pragma unroll
    for (int k = 0; k < Tile::depth; ++k) {
      const float4 x[2]{load_shared<float4>(tile_a + k * Tile::row_pitch),
                        load_shared<float4>(tile_a + k * Tile::row_pitch + 16)};
      const float4 y[2]{load_shared<float4>(tile_b + k * Tile::column_pitch),
                        load_shared<float4>(tile_b + k * Tile::column_pitch + 32)};
      multiply(sums, x, y);
    }
  }

  // The upper quads, then the lower ones, through shared memory: lanes write along the columns. The
  // stride phase is read again, so that it takes no registers in the loop.
  cp_async_wait<0>();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float* const to = shared + (row / 32 * 16 + row % 32 + i) * Tile::column_pitch + column;
      const float* const from = sums[half * 4 + i];
      store_shared(to, make_float4(from[0], from[1], from[2], from[3]));
      store_shared(to + 32, make_float4(from[4], from[5], from[6], from[7]));
    }
    __syncthreads();
    write_rows<Tile::threads, Tile::columns, Tile::column_pitch>(
        shared, Tile::rows / 2, out, phases.phase[block.phase], block, first_row, first_column,
        [&](int i) { return i / 16 * 32 + half * 16 + i % 16; });
  }
}

template <class Tile, class A, class B, class Output>
void launch_tiles(const Product& p, const A& a, const B& b, const Output& out, Stream& stream) {
  launch(multiply_tiles<Tile, A, B, Output>, grid_of(p), Tile::threads, Tile::shared_bytes, stream,
         a, b, p.phases, out, tile_counts(p));
}

// Packed filters have `filter_pitch` channels of the output for each step along the depth.
template <class Tile>
void multiply_by_filter(const Product& p, Stream& stream) {
  using Filter = Operand<float, Steps, Steps, Lanes::along_rows, Check::none, 4>;
  const Filter filter{
      static_cast<const float*>(p.other_data), {1}, {p.filter_pitch}, 0, 0, filter_origin(p)};
  const WindowPixels pixels = window_pixels(p);
  const auto* const image = static_cast<const float*>(p.gathered_data);
  if (p.channels_last) {
    using Columns = Operand<float, WindowPixels, TapTable, Lanes::along_depth, Check::inside, 1>;
    launch_tiles<Tile>(
        p, Columns{image, pixels, {p.taps}, p.gathered.height, p.gathered.width, image_origin(p)},
        filter, pixels_by_channels<float>(p), stream);
  } else {
    using Columns = Operand<float, WindowPixels, TapTable, Lanes::along_rows, Check::inside, 1>;
    launch_tiles<Tile>(
        p, filter,
        Columns{image, pixels, {p.taps}, p.gathered.height, p.gathered.width, image_origin(p)},
        channels_by_pixels<float>(p), stream);
  }
}

template <class Tile, Lanes lanes, int vector>
void multiply_pixels(const Product& p, Stream& stream) {
  using Dy = Operand<float, Channels, PlainPixels, lanes, Check::exists, vector>;
  using X = Operand<float, WindowTaps, WindowPixels, lanes, Check::inside, vector>;
  launch_tiles<Tile>(p,
                     Dy{static_cast<const float*>(p.other_data),
                        {p.dy.channels, p.dy.channel},
                        {p.dy.image, p.dy.column},
                        0,
                        0,
                        dy_origin(p)},
                     X{static_cast<const float*>(p.gathered_data), window_taps(p), window_pixels(p),
                       p.gathered.height, p.gathered.width, x_origin(p)},
                     gradient<float>(p), stream);
}

template <class Tile>
void multiply(const Product& p, Stream& stream) {
  if (p.problem.pass != Pass::backward_filter)
    multiply_by_filter<Tile>(p, stream);
  else if (!p.channels_last)
    multiply_pixels<Tile, Lanes::along_depth, 1>(p, stream);
  else if (p.dy.channels % 4 == 0 && p.gathered.channels % 4 == 0)
    multiply_pixels<Tile, Lanes::along_rows, 4>(p, stream);
  else
    multiply_pixels<Tile, Lanes::along_rows, 1>(p, stream);
}

// visit(FmaTile<...>())
template <class Visit>
void with_tile(const Tile& tile, const Visit& visit) {
  const auto is = [&](int rows, int columns) {
    return tile.rows == rows && tile.columns == columns;
  };
  if (is(128, 128)) return visit(FmaTile<128, 128>());
  if (is(128, 64)) return visit(FmaTile<128, 64>());
  if (is(64, 128)) return visit(FmaTile<64, 128>());
  if (is(64, 64)) return visit(FmaTile<64, 64>());
  throw Error("implicit_gemm: no such tile");
}

}  // namespace

void multiply_fma(const Product& p, Stream& stream) {
  with_tile(p.tile, [&](auto tile) { multiply<decltype(tile)>(p, stream); });
}

std::int64_t fma_shared_bytes(const Product& p) {
  std::int64_t bytes = 0;
  with_tile(p.tile, [&](auto tile) { bytes = decltype(tile)::shared_bytes; });
  return bytes;
}

}  // namespace convlab::cuda::implicit_gemm
