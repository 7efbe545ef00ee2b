// winograd, fused: input transform, product and output transform in one kernel, for 3x3 filters in
// forward and backward_data. Unsplit, only the packed filter takes memory.
//
// A block computes block_k channels of 32 tiles, summed over a part of the input's channels: all of
// them, unless the outputs alone are too few blocks to occupy the card (kernels_cuda/parts.h). The
// output transform is linear, so that parts meet in y, which is smaller than its points.
//
// A block's warps are producers and consumers, which work on kDepth channels at a time,
// double-buffered in shared memory:
// - Producers read windows of the input, transform them to V[point][c][tile], and copy the packed
//   filter's U[point][c][k] with cp.async. They are separate warps, so that the consumers'
//   arithmetic hides their latency and keeps its registers.
// - Each consumer warp owns some points and multiplies block_k x kDepth by kDepth x 32 for each.
//   The accumulators stay in registers until the last channel.
// Then consumers write the points to shared memory, and all warps transform them to outputs.
//
// Shared memory has no bank conflicts: vector g of four tiles of a row lies at g ^ (row % 8), so
// that a warp can store eight channels of four tiles (NHWC) as well as 32 tiles of one channel
// (NCHW).
//
// Lavin & Gray 2015 (arXiv:1509.09308); blocking of F(2,3): Yan et al. 2020 (PPoPP).
#include <fmt/format.h>

#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/parts.h"
#include "kernels_cuda/winograd/transforms.h"
#include "kernels_cuda/winograd/winograd.h"

namespace convlab::cuda {
namespace {

constexpr int kTiles = 32;  // of a block
constexpr int kDepth = 8;   // channels at a time
constexpr int kProducers = 4 * 32;

// F(2,3): 8 warps of 2 points, 64 x 32 each, or 32 x 32 on cards with less shared memory (128 or
// 64 KB a block). F(4,3): 12 warps of 3 points, 32 x 32 each (144 KB). Its next smaller block,
// 16 x 32, takes 108 KB: cards without 144 KB have 99.
template <int M, int K>
struct Blocking {
  static constexpr int T = M + 2, points = T * T;
  static constexpr int block_k = K;
  static constexpr int warps = M == 2 ? 8 : 12;  // of consumers
  static constexpr int warp_points = points / warps;
  static constexpr int threads = warps * 32 + kProducers;
  // A thread's register tile of a product.
  static constexpr int thread_k = 8;
  static constexpr int thread_tiles = block_k * kTiles / 32 / thread_k;

  static constexpr int v_floats = points * kDepth * kTiles;
  static constexpr int u_floats = points * kDepth * block_k;
  static constexpr int stage_floats = v_floats + u_floats;
  static constexpr int m_floats = points * block_k * kTiles;
  static constexpr std::size_t shared_bytes =
      sizeof(float) * (2 * stage_floats > m_floats ? 2 * stage_floats : m_floats);
};

// The offset of an element in rows of kTiles.
__device__ __forceinline__ constexpr int swizzle(int row) { return (row & 7) << 2; }
__device__ __forceinline__ int swizzled(int row, int column) {
  return row * kTiles + (column ^ swizzle(row));
}

struct FusedSizes {
  int in_channels, out_channels;
  int blocks_k;
  int chunks;  // of kDepth input channels
  int tiles;
  int split;                   // parts of the chunks
  std::int64_t part_elements;  // of a part's output
};

// A block's channels of the output, tiles, and chunks.
struct Job {
  int block_k, first_tile, part, end_chunk, chunks;
  __device__ __forceinline__ explicit Job(const FusedSizes& s)
      : block_k(int(blockIdx.x)),
        first_tile(int(blockIdx.y) * kTiles),
        part(int(blockIdx.z)),
        end_chunk(part_start(part + 1, s.chunks, s.split)),
        chunks(end_chunk - part_start(part, s.chunks, s.split)) {}
};

// The address of a tile's window, and a bit for each of its elements that exists.
template <int T>
struct Window {
  std::int64_t offset;
  std::uint64_t inside = 0;

  __device__ Window(const TileWindows& w, int tile) {
    const int column = tile % w.tiles_w * w.step - w.pad_w;
    const int row = tile / w.tiles_w % w.tiles_h * w.step - w.pad_h;
    const int image = tile / w.tiles_w / w.tiles_h;
    offset = image * w.image_step + std::int64_t(row) * w.row_step +
             std::int64_t(column) * w.column_step;
    for (int r = 0; r < T; ++r)
      for (int s = 0; s < T; ++s)
        if (image < w.images && unsigned(row + r) < unsigned(w.h) &&
            unsigned(column + s) < unsigned(w.w))
          inside |= std::uint64_t(1) << (r * T + s);
  }
};

// A producer thread's share of every chunk: two windows, and some of the filter. Neighbouring
// threads take neighbouring tiles in NCHW, neighbouring channels of a tile in NHWC.
template <int M, int K, bool kChannelsLast>
struct Producer {
  using B = Blocking<M, K>;
  static_assert(kTiles * kDepth == 2 * kProducers);
  static constexpr int second_tile = kChannelsLast ? kProducers / kDepth : 0;
  static constexpr int second_channel = kChannelsLast ? 0 : kProducers / kTiles;

  const float* data;
  const float* filter;  // this thread's share
  int channels;         // up to the end of the part
  int channel_step, row_step, column_step, thread, tile, channel;
  Window<B::T> first, second;
  float x[B::T][B::T];  // of the first

  __device__ __forceinline__ Producer(const TileWindows& in, const float* input, const float* u,
                                      const FusedSizes& sizes, const Job& job, int producer)
      : data(input),
        filter(u + std::int64_t(job.block_k) * sizes.chunks * B::u_floats + producer * 4),
        channels(min(sizes.in_channels, job.end_chunk * kDepth)),
        channel_step(kChannelsLast ? 1 : in.channel_step),
        row_step(in.row_step),
        column_step(kChannelsLast ? in.column_step : 1),
        thread(producer),
        tile(kChannelsLast ? thread / kDepth : thread % kTiles),
        channel(kChannelsLast ? thread % kDepth : thread / kTiles),
        first(in, job.first_tile + tile),
        second(in, job.first_tile + tile + second_tile) {
    load(first, (job.end_chunk - job.chunks) * kDepth + channel, x);
  }

  __device__ __forceinline__ void load(const Window<B::T>& window, int c,
                                       float (&to)[B::T][B::T]) const {
    const std::uint64_t inside = c < channels ? window.inside : 0;
    const float* row = data + window.offset + std::int64_t(c) * channel_step;
#pragma unroll
    for (int r = 0; r < B::T; ++r, row += row_step)
#pragma unroll
      for (int s = 0; s < B::T; ++s)
        to[r][s] = inside >> (r * B::T + s) & 1 ? load_global<float>(row + s * column_step) : 0.f;
  }

  __device__ __forceinline__ void transform(const float (&from)[B::T][B::T], float* v) const {
    float y[B::T][B::T];
    nested<typename Transforms<M, 3>::Input>(from, y);
#pragma unroll
    for (int r = 0; r < B::T; ++r)
#pragma unroll
      for (int s = 0; s < B::T; ++s) store_shared(v + (r * B::T + s) * kDepth * kTiles, y[r][s]);
  }

  // One window is loaded while the other is transformed. This order also needs no more registers
  // than the consumers have.
  __device__ __forceinline__ void produce(int chunk, float* v, float* u) {
    float x2[B::T][B::T];
    load(second, chunk * kDepth + channel + second_channel, x2);
    transform(x, v + swizzled(channel, tile));
    const float* const from = filter + std::int64_t(chunk) * B::u_floats;
    static_assert(B::u_floats % (kProducers * 4) == 0);
#pragma unroll
    for (int i = 0; i < B::u_floats; i += kProducers * 4)
      cp_async<16>(u + thread * 4 + i, from + i);
    cp_async_commit();
    load(first, (chunk + 1) * kDepth + channel, x);
    transform(x2, v + swizzled(channel + second_channel, tile + second_tile));
    cp_async_wait<0>();
  }
};

// Multiply-adds in f32. A lane's accumulators are thread_k x thread_tiles for each of its warp's
// points. The bits of a lane's number are interleaved (tile, k, tile, k, tile): lanes that differ
// in one of the two lowest bits read the same vector, so that a 16-byte load takes two accesses,
// not four.
template <int M, int K>
struct FmaConsumer {
  using B = Blocking<M, K>;
  int point, lane_k, lane_tile;
  float sum[B::warp_points][B::thread_k][B::thread_tiles];

  __device__ __forceinline__ FmaConsumer(int warp, int lane) {
    point = warp * B::warp_points;
    lane_k = (lane >> 1 & 1) | (lane >> 2 & 2) | (K == 64 ? lane >> 2 & 4 : 0);
    lane_tile = (lane & 1) | (lane >> 1 & 2) | (K == 32 ? lane >> 2 & 4 : 0);
#pragma unroll
    for (int p = 0; p < B::warp_points; ++p)
#pragma unroll
      for (int i = 0; i < B::thread_k; ++i)
#pragma unroll
        for (int j = 0; j < B::thread_tiles; ++j) sum[p][i][j] = 0;
  }

  // The offset of a pair of channels in the packed filter of a point.
  static __device__ int filter_place(int c, int k) { return c * B::block_k + k; }

  // Fours of k are half a block apart, fours of tiles half of 32.
  __device__ int k(int i) const { return i / 4 * (B::block_k / 2) + lane_k * 4 + i % 4; }
  __device__ int tile(int j) const { return j / 4 * (kTiles / 2) + lane_tile * 4 + j % 4; }

  // The swizzle includes the start of the point's V, so that no address outlives its use.
  __device__ __forceinline__ void consume(const float* shared, int stage) {
    const int v = stage + point * kDepth * kTiles + lane_tile * 4;
    const float* const u = shared + stage + B::v_floats + point * kDepth * B::block_k + lane_k * 4;
#pragma unroll
    for (int c = 0; c < kDepth; ++c)
#pragma unroll
      for (int p = 0; p < B::warp_points; ++p) {
        float a[B::thread_k], b[B::thread_tiles];
#pragma unroll
        for (int i = 0; i < B::thread_k; i += 4) {
          const float4 four =
              load_shared<float4>(u + (p * kDepth + c) * B::block_k + i / 4 * (B::block_k / 2));
          a[i] = four.x, a[i + 1] = four.y, a[i + 2] = four.z, a[i + 3] = four.w;
        }
#pragma unroll
        for (int j = 0; j < B::thread_tiles; j += 4) {
          const int at = (v + p * kDepth * kTiles + j / 4 * (kTiles / 2)) ^ swizzle(c);
          const float4 four = load_shared<float4>(shared + at + c * kTiles);
          b[j] = four.x, b[j + 1] = four.y, b[j + 2] = four.z, b[j + 3] = four.w;
        }
#pragma unroll
        for (int i = 0; i < B::thread_k; ++i)
#pragma unroll
          for (int j = 0; j < B::thread_tiles; ++j) sum[p][i][j] += a[i] * b[j];
      }
  }

  // To m[point][k][tile].
  __device__ __forceinline__ void store(float* m, int, int) const {
#pragma unroll
    for (int p = 0; p < B::warp_points; ++p)
#pragma unroll
      for (int i = 0; i < B::thread_k; ++i)
#pragma unroll
        for (int j = 0; j < B::thread_tiles; j += 4) {
          const float* const s = sum[p][i] + j;
          store_shared(m + (point + p) * B::block_k * kTiles + swizzled(k(i), tile(j)),
                       make_float4(s[0], s[1], s[2], s[3]));
        }
  }
};

// Tensor cores. 3xTF32 (x = big + small, without small * small) is as accurate as f32.
//
// Rows of an mma are tiles, columns are k. The order of the channels in its sum, and of the tiles
// in its rows, is free. Index t + 4 i is channel 2 t + i, and rows g and g + 8 are tiles 2 g
// and 2 g + 1, so that operands are loaded as pairs, without bank conflicts. The filter is packed
// in the order of lanes.
template <int M, int K, MathType kMath>
struct TensorConsumer {
  using B = Blocking<M, K>;
  static constexpr int products = kMath == MathType::tf32x3 ? 3 : 1;
  static constexpr int rows = kTiles / 16, columns = B::block_k / 8;  // mma tiles of 16 x 8
  int at_v, at_u;
  float sum[B::warp_points][rows][columns][4];

  __device__ __forceinline__ TensorConsumer(int warp, int lane)
      : at_v(warp * B::warp_points * kDepth * kTiles + swizzled(lane % 4 * 2, lane / 4 * 2)),
        at_u(B::v_floats + warp * B::warp_points * kDepth * B::block_k + lane * 2) {
#pragma unroll
    for (int p = 0; p < B::warp_points; ++p)
#pragma unroll
      for (int m = 0; m < rows; ++m)
#pragma unroll
        for (int n = 0; n < columns; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[p][m][n][i] = 0;
  }

  static __device__ int filter_place(int c, int k) {
    return (k / 8 * 32 + k % 8 * 4 + c / 2) * 2 + c % 2;
  }

  __device__ __forceinline__ void consume(const float* shared, int stage) {
#pragma unroll
    for (int p = 0; p < B::warp_points; ++p) {
      unsigned big[rows][4], small[rows][4];
#pragma unroll
      for (int m = 0; m < rows; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          // swizzled(2 t + i, 2 g + 16 m)
          const int at = (stage + at_v + (p * kDepth + i) * kTiles) ^ (m * 16 + i * 4);
          const float2 two = load_shared<float2>(shared + at);
          to_factors(two.x, big[m][2 * i], small[m][2 * i]);
          to_factors(two.y, big[m][2 * i + 1], small[m][2 * i + 1]);
        }
#pragma unroll
      for (int n = 0; n < columns; ++n) {
        const float2 two = load_shared<float2>(shared + stage + at_u + (p * columns + n) * 64);
        unsigned u_big[2], u_small[2];
        to_factors(two.x, u_big[0], u_small[0]);
        to_factors(two.y, u_big[1], u_small[1]);
#pragma unroll
        for (int product = 3 - products; product < 3; ++product)
#pragma unroll
          for (int m = 0; m < rows; ++m) {
            float* const to = sum[p][m][n];
            mma_m16n8k8_tf32(to, product == 0 ? small[m] : big[m], product == 1 ? u_small : u_big,
                             to);
          }
      }
    }
  }

  // To m[point][k][tile].
  __device__ __forceinline__ void store(float* m, int warp, int lane) const {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int p = 0; p < B::warp_points; ++p)
#pragma unroll
      for (int row = 0; row < rows; ++row)
#pragma unroll
        for (int n = 0; n < columns; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            store_shared(m + (warp * B::warp_points + p) * B::block_k * kTiles +
                             swizzled(n * 8 + 2 * t + i, row * 16 + 2 * g),
                         make_float2(sum[p][row][n][i], sum[p][row][n][2 + i]));
  }

 private:
  // For 3xTF32 truncated, in two instructions; split_tf32() rounds, in eight. The tensor core drops
  // the bits beyond small's 11 by itself, so that the error is below 2^-20 of x.
  static __device__ __forceinline__ void to_factors(float x, unsigned& big, unsigned& small) {
    if constexpr (products == 3) {
      big = __float_as_uint(x) & 0xffffe000u;
      small = __float_as_uint(x - __uint_as_float(big));
    } else {
      big = to_tf32(x);
    }
  }
};

template <int M, int K, MathType kMath>
using Consumer =
    std::conditional_t<kMath == MathType::f32, FmaConsumer<M, K>, TensorConsumer<M, K, kMath>>;

// A^T m A for the block's channels and tiles, by all its threads.
template <int M, int K>
__device__ __forceinline__ void transform_outputs(const float* m, const TileWindows& out,
                                                  const TileOutput<float>& output,
                                                  const FusedSizes& sizes, const Job& job) {
  using B = Blocking<M, K>;
  const bool channels_last = out.channel_step == 1;
  for (int i = threadIdx.x; i < B::block_k * kTiles; i += B::threads) {
    // A warp takes eight channels of four tiles, or 32 tiles of one channel.
    const int low = i % kDepth, high = i / kDepth;
    const int k = channels_last ? high / kTiles * kDepth + low : i / kTiles;
    const int t = channels_last ? high % kTiles : i % kTiles;
    const int channel = job.block_k * B::block_k + k, tile = job.first_tile + t;
    if (channel >= sizes.out_channels || tile >= sizes.tiles) continue;
    float x[B::T][B::T], y[M][M];
#pragma unroll
    for (int r = 0; r < B::T; ++r)
#pragma unroll
      for (int s = 0; s < B::T; ++s)
        x[r][s] = load_shared<float>(m + (r * B::T + s) * B::block_k * kTiles + swizzled(k, t));
    nested<typename Transforms<M, 3>::Output>(x, y);
    const int column = tile % out.tiles_w * M, row = tile / out.tiles_w % out.tiles_h * M;
    const int image = tile / out.tiles_w / out.tiles_h;
    const std::int64_t offset = job.part * sizes.part_elements + image * out.image_step +
                                std::int64_t(channel) * out.channel_step +
                                std::int64_t(row) * out.row_step +
                                std::int64_t(column) * out.column_step;
    store_tile(out, output, offset, channel, out.h - row, out.w - column, y);
  }
}

// G g G^T to [block of K][chunk of C][point][c, k in the consumer's order], so that a block copies
// contiguous memory. The channels that pad blocks and chunks are zero.
template <int M, int K, MathType kMath>
__global__ void __launch_bounds__(256)
    pack_fused(TileWindows from, const float* filter, FusedSizes sizes, float* packed) {
  using B = Blocking<M, K>;
  using Code = typename Transforms<M, 3>::Filter;
  const unsigned i = blockIdx.x * 256u + threadIdx.x;
  const unsigned filled_k = unsigned(sizes.blocks_k) * B::block_k;
  const unsigned k = i % filled_k, c = i / filled_k;
  if (c >= unsigned(sizes.chunks) * kDepth) return;
  const bool exists = int(k) < sizes.out_channels && int(c) < sizes.in_channels;
  const float* const taps =
      filter + std::int64_t(k) * from.image_step + std::int64_t(c) * from.channel_step;
  float x[3][3], y[B::T][B::T];
#pragma unroll
  for (int r = 0; r < 3; ++r)
#pragma unroll
    for (int s = 0; s < 3; ++s)
      x[r][s] = exists ? taps[r * from.row_step + s * from.column_step] : 0.f;
  nested<Code>(x, y);
  float* const to = packed +
                    (std::int64_t(k / B::block_k) * sizes.chunks + c / kDepth) * B::u_floats +
                    Consumer<M, K, kMath>::filter_place(int(c % kDepth), int(k % B::block_k));
#pragma unroll
  for (int r = 0; r < B::T; ++r)
#pragma unroll
    for (int s = 0; s < B::T; ++s) to[(r * B::T + s) * kDepth * B::block_k] = y[r][s];
}

// The barrier of producers and consumers: one source line for both, as kernel.h requires.
__device__ __forceinline__ void barrier() { __syncthreads(); }

template <int M, int K, MathType kMath, bool kChannelsLast>
__global__ void __launch_bounds__(Blocking<M, K>::threads, 1)
    winograd_fused(TileWindows in, const float* data, const float* packed, TileWindows out,
                   TileOutput<float> output, FusedSizes sizes) {
  using B = Blocking<M, K>;
  SHARED_DYN(float, shared);
  const Job job(sizes);
  const auto stage = [](int left) { return left % 2 * B::stage_floats; };  // chunks left
  const int warp = int(threadIdx.x) / 32;
  if (warp < B::warps) {
    Consumer<M, K, kMath> consumer(warp, lane_id());
    barrier();
    for (int left = job.chunks; left > 0; --left) {
      consumer.consume(shared, stage(left));
      barrier();
    }
    consumer.store(shared, warp, lane_id());
  } else {
    Producer<M, K, kChannelsLast> producer(in, data, packed, sizes, job,
                                           int(threadIdx.x) - B::warps * 32);
    for (int left = job.chunks; left > 0; --left) {
      float* const v = shared + stage(left);
      producer.produce(job.end_chunk - left, v, v + B::v_floats);
      barrier();
    }
    barrier();
  }
  barrier();
  transform_outputs<M, K>(shared, out, output, sizes, job);
}

// ---- The plan ----

template <int K>
FusedSizes fused_sizes(const WinogradFused& run) {
  const WinogradShape& s = run.shape;
  return {int(s.in.c),    int(s.out.c),   int(ceil_div(s.out.c, K)), int(ceil_div(s.in.c, kDepth)),
          int(s.tiles()), int(run.split), s.out.elements()};
}

// Neighbouring blocks share their tiles.
dim3 fused_grid(const FusedSizes& s) {
  return dim3(unsigned(s.blocks_k), unsigned(ceil_div(s.tiles, kTiles)), unsigned(s.split));
}

template <int M, int K, MathType kMath>
class FusedPlan : public ConvPlan {
  using B = Blocking<M, K>;

 public:
  explicit FusedPlan(const WinogradFused& run) : shape_(run.shape), sizes_(fused_sizes<K>(run)) {}

  std::size_t workspace_bytes() const noexcept override {
    return split() ? sizeof(float) * std::size_t(sizes_.split * sizes_.part_elements) : 0;
  }
  std::size_t packed_filter_bytes() const noexcept override {
    return sizeof(float) * std::size_t(sizes_.blocks_k) * sizes_.chunks * B::u_floats;
  }

  void pack_filter(ConstSpan w, Span packed, Stream& stream) const override {
    const std::int64_t threads =
        std::int64_t(sizes_.blocks_k) * B::block_k * sizes_.chunks * kDepth;
    launch(pack_fused<M, K, kMath>, dim3(unsigned(ceil_div(threads, 256))), 256, 0, stream,
           filter_windows(shape_), first_tap<float>(shape_, w), sizes_,
           reinterpret_cast<float*>(packed.data()));
  }

  void run(const ConvArgs& args, Workspace workspace, Stream& stream) const override {
    const auto output = images_epilogue<float>(shape_, args, 0);
    OutputEpilogue<float> partial;
    partial.out = reinterpret_cast<float*>(workspace.data());
    run_phase(args.phases, 0, stream, [&] {
      launch(shape_.in.layout == Layout::nhwc ? winograd_fused<M, K, kMath, true>
                                              : winograd_fused<M, K, kMath, false>,
             fused_grid(sizes_), B::threads, B::shared_bytes, stream,
             in_windows(shape_, shape_.in.n), in_image<float>(shape_, args, 0),
             static_cast<const float*>(args.w), out_windows(shape_, shape_.out.n),
             tile_output<M>(shape_, split() ? partial : output), sizes_);
    });
    if (!split()) return;
    run_phase(args.phases, 1, stream, [&] {
      const TensorDesc& y = shape_.out;
      add_parts(partial.out, sizes_.split, sizes_.part_elements, int(y.c),
                y.layout == Layout::nhwc ? 1 : int(y.h * y.w), output, stream);
    });
  }

 private:
  bool split() const { return sizes_.split > 1; }

  WinogradShape shape_;
  FusedSizes sizes_;
};

// What a run does, in whole blocks, padding included. A block's pipeline fills for about as long as
// a chunk takes.
template <int M, int K>
struct FusedCost {
  using B = Blocking<M, K>;
  using Code = Transforms<M, 3>;
  const FusedSizes sizes;
  const double blocks, multiprocessors;
  const MathType math;

  FusedCost(const WinogradFused& run, const DeviceInfo& card)
      : sizes(fused_sizes<K>(run)),
        blocks(double(run.blocks(card))),
        multiprocessors(card.threads),
        math(run.math) {}

  double chunk_flops() const {
    const double products = math == MathType::tf32x3 ? 3 : 1;
    return kDepth * kTiles *
           (2.0 * B::points * B::block_k * products + nested_flops<typename Code::Input>);
  }
  double output_flops() const { return nested_flops<typename Code::Output> * kTiles * B::block_k; }
  double chunks() const { return double(fused_grid(sizes).x) * fused_grid(sizes).y * sizes.chunks; }
  double flops() const { return chunks() * chunk_flops() + blocks * output_flops(); }
  double bytes_read() const {
    return 4 * chunks() * kDepth * (kTiles * (M + 2.0) * M + B::points * B::block_k);
  }

  // FLOPs a clock of a multiprocessor at the peak of CUDA cores, and the share of it that a block
  // reaches, roughly.
  static constexpr double peak = 2 * 128;
  double share() const { return math == MathType::f32 ? 0.35 : math == MathType::tf32 ? 0.5 : 1.4; }
  // A multiprocessor holds one block at a time.
  double cycles() const {
    const double waves = std::ceil(blocks / multiprocessors);
    const double longest = double(ceil_div(sizes.chunks, sizes.split));
    return waves * ((longest + 1) * chunk_flops() + output_flops()) / (peak * share());
  }
  double efficiency() const { return flops() / (peak * multiprocessors * cycles()); }
};

template <int n>
using Int = std::integral_constant<int, n>;

// visit(M, K) with the largest block that the card has shared memory for, else the smallest.
template <class Visit>
auto with_blocking(const WinogradShape& s, const DeviceInfo& card, const Visit& visit) {
  if (s.m == 4) return visit(Int<4>(), Int<32>());
  if (fits_block(Blocking<2, 64>::shared_bytes, card)) return visit(Int<2>(), Int<64>());
  return visit(Int<2>(), Int<32>());
}

}  // namespace

bool WinogradFused::takes(const WinogradShape& s) {
  return s.dtype == DType::f32 && s.r == 3 && (s.m == 2 || s.m == 4) &&
         s.pass != Pass::backward_filter &&
         ceil_div(s.tiles(), kTiles) <= 65535;  // a grid's height
}

std::int64_t WinogradFused::most_parts() const {
  return std::min<std::int64_t>(ceil_div(shape.in.c, kDepth), 1024);
}

std::int64_t WinogradFused::shared_bytes(const DeviceInfo& card) const {
  return with_blocking(
      shape, card, [](auto m, auto k) { return std::int64_t(Blocking<m(), k()>::shared_bytes); });
}

std::int64_t WinogradFused::blocks(const DeviceInfo& card) const {
  return with_blocking(shape, card, [&](auto, auto k) {
    const dim3 grid = fused_grid(fused_sizes<k()>(*this));
    return std::int64_t(grid.x) * grid.y * grid.z;
  });
}

double WinogradFused::cycles(const DeviceInfo& card) const {
  return with_blocking(shape, card, [&](auto m, auto k) {
    const double adding = split == 1 ? 0 : adding_cycles(split, shape.out.elements());
    return FusedCost<m(), k()>(*this, card).cycles() + adding;
  });
}

// Blocks read their windows and their share of the filter mostly from L2.
WorkEstimate WinogradFused::work(const DeviceInfo& card) const {
  PhaseWork fused{.name = "fused"};
  with_blocking(shape, card, [&](auto m, auto k) {
    const FusedCost<m(), k()> cost(*this, card);
    fused.flops = cost.flops();
    fused.bytes_read = cost.bytes_read();
    fused.efficiency = cost.efficiency();
  });
  WorkEstimate work{{fused}};
  const double outputs = double(shape.out.elements());
  if (split > 1) {
    const double partial = double(split) * outputs;
    work.phases[0].bytes_written = 4 * partial;
    work.phases.push_back({.name = "add_parts", .flops = partial, .bytes_read = 4 * partial});
  }
  PhaseWork& last = work.phases.back();
  last.bytes_written = 4 * outputs;
  if (shape.accumulate || shape.epilogue.residual) last.bytes_read += 4 * outputs;
  return work;
}

std::unique_ptr<ConvPlan> WinogradFused::plan(const DeviceInfo& card) const {
  return with_blocking(shape, card, [&](auto m, auto k) -> std::unique_ptr<ConvPlan> {
    if (math == MathType::f32) return std::make_unique<FusedPlan<m(), k(), MathType::f32>>(*this);
    if (math == MathType::tf32) return std::make_unique<FusedPlan<m(), k(), MathType::tf32>>(*this);
    return std::make_unique<FusedPlan<m(), k(), MathType::tf32x3>>(*this);
  });
}

}  // namespace convlab::cuda
