// The kernels of direct for backward_filter: dw[k, (c, r, s)] sums dy[k, pixel] x[c, pixel, r, s]
// over the pixels of all images. The pixels may be split into parts, a block for each
// (kernels_cuda/parts.h). With depth a block sums for one tap in depth, which relates each slice of
// dy to one of x.
//
// Staged: for a tile of pixels, a box of x with a halo serves all taps of its channels. The lanes
// of a warp are consecutive (c, r, s). The box's pitch and plane spread their reads of x over the
// banks. They read the same values of dy, several pixels at a time.
#include <algorithm>

#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/direct/direct.h"
#include "kernels_cuda/parts.h"

namespace convlab::cuda {
namespace {

// The destination of sums: dw itself if the pixels are not split.
template <class T>
struct Sums {
  Accumulator<T>* partial;  // [part][dw], or null
  std::int64_t elements;    // of dw
  OutputEpilogue<T> epilogue;

  __device__ void store(int part, std::int64_t at, Accumulator<T> sum) const {
    if (partial)
      partial[part * elements + at] = sum;
    else
      epilogue.store(at, 0, sum);
  }
};

// The most pixels of a tile, and the pitch of dy's planes in shared memory: each starts 4 banks
// after the one before.
template <class A>
constexpr int max_area = int(512 / sizeof(A));
template <class A>
constexpr int gradient_plane = max_area<A> + 4;

// With stride 1 in W, offsets of neighbouring pixels are constants.
template <class T, bool UnitStride>
__global__ void __launch_bounds__(256, 2)
    sum_products(DirectFilter d, const T* x, const T* dy, Sums<T> sums) {
  using A = Accumulator<T>;
  constexpr int K = DirectFilter::filters_per_thread, J = DirectFilter::columns,
                step = Quad<A>::size;
  SHARED_DYN(A, shared);
  const int taps = d.r * d.s, all_columns = d.channels * taps, tile_k = d.warps * K;
  const int k_tiles = (d.filters + tile_k - 1) / tile_k;
  const int group = int(blockIdx.y) / k_tiles, k0 = int(blockIdx.y) % k_tiles * tile_k;
  const int t = int(blockIdx.x) % d.t, column0 = int(blockIdx.x) / d.t * 32 * J;
  const int c0 = column0 / taps;
  const int channels = min(d.channels, (min(column0 + 32 * J, all_columns) - 1) / taps + 1) - c0;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;

  const Range slices = d.slices_of(t);
  const int slice_count = slices.end - slices.begin;
  const std::int64_t tiles = std::int64_t(d.n) * slice_count * d.tiles_down * d.tiles_across;
  const int part = int(blockIdx.z);
  const int begin = int(tiles * part / d.split), end = int(tiles * (part + 1) / d.split);
  const int buffer = d.x_elements + tile_k * gradient_plane<A>;
  const int stride_w = UnitStride ? 1 : d.stride_w;

  const auto stage_tile = [&](int tile, A* to) {
    const int row = tile / d.tiles_across, q = tile % d.tiles_across * d.tile_w;
    const int slice = row / d.tiles_down, p = row % d.tiles_down * d.tile_h;
    const int n = slice / slice_count, z = slices.begin + slice % slice_count;
    const int x_slice = z * d.stride_d - d.pad_d + t * d.dilation_d;
    stage(d.x,
          x + n * d.x.image + std::int64_t(group * d.channels + c0) * d.x.channel +
              x_slice * d.x.slice(),
          channels, channels, p * d.stride_h - d.pad_h, q * d.stride_w - d.pad_w, d.box, to);
    stage(d.dy,
          dy + n * d.dy.image + std::int64_t(group * d.filters + k0) * d.dy.channel +
              z * d.dy.slice(),
          tile_k, d.filters - k0, p, q, d.dy_box, to + d.x_elements);
  };

  int offset[J];  // in the box, of the tile's first pixel
#pragma unroll
  for (int j = 0; j < J; ++j) {
    const int column = min(column0 + j * 32 + lane, all_columns - 1), c = column / taps;
    const int r = column % taps / d.s, s = column % d.s;
    offset[j] = (c - c0) * d.box.plane + r * d.dilation_h * d.box.pitch + s * d.dilation_w;
  }
  const int next_row = d.stride_h * d.box.pitch - d.tile_w * stride_w;
  A sum[K][J] = {};
  if (begin < end) stage_tile(begin, shared);
  cp_async_commit();
  int turn = 0;
  for (int tile = begin; tile < end; ++tile, turn ^= 1) {
    if (tile + 1 < end) stage_tile(tile + 1, shared + (turn ^ 1) * buffer);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    const A* const box = shared + turn * buffer;
    const A* gradient = box + d.x_elements + warp * K * gradient_plane<A>;
    const A* pixel = box;  // of the first tap
    for (int p = 0; p < d.tile_h; ++p) {
#pragma unroll 1
      for (int q = 0; q < d.tile_w; q += step, gradient += step) {
        A value[step][J];
#pragma unroll
        for (int v = 0; v < step; ++v)
#pragma unroll
          for (int j = 0; j < J; ++j)
            value[v][j] = load_shared<A>(pixel + offset[j] + v * stride_w);
#pragma unroll
        for (int i = 0; i < K; ++i) {
          const auto g = load_shared<Quad<A>>(gradient + i * gradient_plane<A>);
#pragma unroll
          for (int v = 0; v < step; ++v)
#pragma unroll
            for (int j = 0; j < J; ++j) sum[i][j] += g.at[v] * value[v][j];
        }
        pixel += step * stride_w;
      }
      pixel += next_row;
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < K; ++i) {
    const int k = k0 + warp * K + i;
    if (k >= d.filters) break;
#pragma unroll
    for (int j = 0; j < J; ++j) {
      const int column = column0 + j * 32 + lane;
      if (column < all_columns)
        sums.store(part,
                   std::int64_t(group * d.filters + k) * all_columns * d.t + column +
                       std::int64_t(column / taps * (d.t - 1) + t) * taps,
                   sum[i][j]);
    }
  }
}

// Without staging, through L1, for groups with few channels: each thread sums up to plain_taps taps
// of one filter's channel over some of the pixels, and the block adds up its threads' sums. In NCHW
// the block's threads share one channel of one filter and take neighbouring pixels. In NHWC the
// lanes of a warp take 32 pairs of a filter and a channel, and the warps differ in the pixels.
constexpr int plain_block = 128, plain_taps = 9;

template <class T>
__global__ void __launch_bounds__(plain_block)
    sum_products_plain(DirectFilter d, const T* x, const T* dy, Sums<T> sums) {
  using A = Accumulator<T>;
  SHARED(A, shared, [plain_taps][plain_block]);
  const int lanes = d.x.channels_last ? 32 : 1, workers = plain_block / lanes;
  const int thread = int(threadIdx.x), worker = thread / lanes;
  const int taps = d.r * d.s, chunks = (taps + plain_taps - 1) / plain_taps;
  const int tap0 = int(blockIdx.x) % chunks * plain_taps, t = int(blockIdx.x) / chunks % d.t;
  const int pairs = d.groups * d.filters * d.channels;
  const int pair = int(blockIdx.x) / chunks / d.t * lanes + thread % lanes;  // k * channels + c
  const int k = min(pair, pairs - 1) / d.channels, c = min(pair, pairs - 1) % d.channels;

  const int part = int(blockIdx.z);
  const std::int64_t all = std::int64_t(d.n) * d.image_pixels.divisor;
  const std::int64_t begin = all * part / d.split, end = all * (part + 1) / d.split;
  const T* const x_channel = x + std::int64_t(k / d.filters * d.channels + c) * d.x.channel;
  const T* const dy_channel = dy + std::int64_t(k) * d.dy.channel;
  // The input of output pixel (0, 0); outside if there is no such tap.
  int row[plain_taps], column[plain_taps], offset[plain_taps];
#pragma unroll
  for (int e = 0; e < plain_taps; ++e) {
    const int tap = tap0 + e;
    row[e] = tap < taps ? tap / d.s * d.dilation_h - d.pad_h : d.x.h;
    column[e] = tap % d.s * d.dilation_w - d.pad_w;
    offset[e] = row[e] * d.x.row + column[e] * d.x.column;
  }
  A sum[plain_taps] = {};
  for (std::int64_t i = begin + worker; i < end; i += workers) {
    const int n = d.image_pixels.quotient(int(i)), in_image = int(i) - n * d.image_pixels.divisor;
    const int z = d.slice_pixels.quotient(in_image);
    const int pixel = in_image - z * d.slice_pixels.divisor;
    const int p = d.row_pixels.quotient(pixel), q = pixel - p * d.row_pixels.divisor;
    const int slice = z * d.stride_d - d.pad_d + t * d.dilation_d;
    if (unsigned(slice) >= unsigned(d.d)) continue;
    const A g = widen(load_global<T>(dy_channel + n * d.dy.image + z * d.dy.slice() + p * d.dy.row +
                                     q * d.dy.column));
    const int h0 = p * d.stride_h, w0 = q * d.stride_w;
    const T* const at =
        x_channel + n * d.x.image + slice * d.x.slice() + h0 * d.x.row + w0 * d.x.column;
#pragma unroll
    for (int e = 0; e < plain_taps; ++e)
      if (unsigned(row[e] + h0) < unsigned(d.x.h) && unsigned(column[e] + w0) < unsigned(d.x.w))
        sum[e] += g * widen(load_global<T>(at + offset[e]));
  }
#pragma unroll
  for (int e = 0; e < plain_taps; ++e) shared[e][thread] = sum[e];
  for (int half = workers / 2; half > 0; half /= 2) {
    __syncthreads();
    if (worker < half)
      for (int e = 0; e < plain_taps; ++e) shared[e][thread] += shared[e][thread + half * lanes];
  }
  if (worker == 0 && pair < pairs)
    for (int e = 0; e < plain_taps && tap0 + e < taps; ++e)
      sums.store(part, (std::int64_t(pair) * d.t + t) * taps + tap0 + e, shared[e][thread]);
}

}  // namespace

DirectFilter::DirectFilter(const ConvProblem& p, const DeviceInfo& card, DirectKernel kernel_,
                           int warps_, int split_)
    : x(p.x_desc(), p.h),
      dy(p.y_desc(), p.p),
      n(int(p.n)),
      groups(int(p.groups)),
      channels(int(p.c / p.groups)),
      filters(int(p.k / p.groups)),
      d(int(p.d)),
      z(int(p.z)),
      t(int(p.t)),
      stride_d(int(p.stride_d)),
      pad_d(int(p.pad_d)),
      dilation_d(int(p.dilation_d)),
      r(int(p.r)),
      s(int(p.s)),
      stride_h(int(p.stride_h)),
      stride_w(int(p.stride_w)),
      pad_h(int(p.pad_h)),
      pad_w(int(p.pad_w)),
      dilation_h(int(p.dilation_h)),
      dilation_w(int(p.dilation_w)),
      image_pixels(p.z * p.p * p.q),
      slice_pixels(p.p * p.q),
      row_pixels(p.q),
      kernel(kernel_),
      warps(warps_),
      split(split_),
      tile_h(0),
      tile_w(0),
      tiles_down(0),
      tiles_across(0),
      max_channels(0),
      x_elements(0),
      shared_bytes(0) {
  if (kernel == DirectKernel::plain) return;
  const int taps = r * s, element = p.dtype == DType::f64 ? 8 : 4;
  const int plane_of_dy = element == 8 ? gradient_plane<double> : gradient_plane<float>;
  // 32 * columns consecutive (c, r, s) start anywhere in a channel.
  const int most_channels = 32 * columns % taps == 0 || taps % (32 * columns) == 0
                                ? int(ceil_div(32 * columns, taps))
                                : (32 * columns - 2) / taps + 2;
  max_channels = std::min(channels, most_channels);
  const auto lay_out = [&](int rows, int width) {
    tile_h = rows, tile_w = width;
    tiles_down = int(ceil_div(dy.h, tile_h)), tiles_across = int(ceil_div(dy.w, tile_w));
    box.h = (tile_h - 1) * stride_h + (r - 1) * dilation_h + 1;
    box.w = (tile_w - 1) * stride_w + (s - 1) * dilation_w + 1;
    int best = 33;
    for (int pitch = box.w; pitch < box.w + 32 && best > 1; ++pitch)
      for (int plane = box.h * pitch; plane < box.h * pitch + 32 && best > 1; ++plane) {
        const int conflicts = bank_conflicts(element, [&](int i) {
          return i / taps * plane + i % taps / s * dilation_h * pitch + i % s * dilation_w;
        });
        if (conflicts < best) best = conflicts, box.pitch = pitch, box.plane = plane;
      }
    x_elements = int(round_up(std::int64_t(max_channels) * box.plane, 4));
    dy_box = {tile_h, tile_w, tile_w, plane_of_dy, 1, tile_w};
    shared_bytes = std::size_t(x_elements + tile_k() * dy_box.plane) * 2 * element;
  };
  // The largest tile that leaves room for other blocks; the smallest if none does.
  const auto share = std::size_t(shared_bytes_of(3, card));
  const int width = dy.w > 16 ? 32 : dy.w > 8 ? 16 : 8;
  for (int area = element == 8 ? max_area<double> : max_area<float>; area >= 16; area /= 2)
    for (int w = std::min(width, area); w >= 4; w /= 2) {
      lay_out(area / w, w);
      if (shared_bytes <= share) return;
    }
}

void DirectFilter::run(const ConvProblem& problem, const ConvArgs& args, Workspace workspace,
                       Stream& stream) const {
  with_element(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Sums<T> sums{split > 1 ? reinterpret_cast<Accumulator<T>*>(workspace.data()) : nullptr,
                       elements(), output_epilogue<T>(problem.epilogue, problem.accumulate, args)};
    const auto* from = static_cast<const T*>(args.x);
    const auto* gradient = static_cast<const T*>(args.dy);
    run_phase(args.phases, 0, stream, [&] {
      if (kernel == DirectKernel::plain) {
        const std::int64_t pairs = std::int64_t(groups) * filters * channels;
        launch(sum_products_plain<T>,
               dim3(unsigned(ceil_div(pairs, x.channels_last ? 32 : 1) * t *
                             ceil_div(r * s, plain_taps)),
                    1, unsigned(split)),
               plain_block, 0, stream, *this, from, gradient, sums);
      } else {
        launch(stride_w == 1 ? sum_products<T, true> : sum_products<T, false>,
               dim3(unsigned(ceil_div(std::int64_t(channels) * r * s, 32 * columns) * t),
                    unsigned(groups * ceil_div(filters, tile_k())), unsigned(split)),
               unsigned(32 * warps), shared_bytes, stream, *this, from, gradient, sums);
      }
    });
    if (split > 1)
      run_phase(args.phases, 1, stream, [&] {
        add_parts<T>(sums.partial, split, sums.elements, 1, 1, sums.epilogue, stream);
      });
  });
}

}  // namespace convlab::cuda
