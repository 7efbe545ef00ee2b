// The kernels of direct for forward and backward_data, which are the same (see Direction).
//
// Staged: a block's tile of pixels of one image needs, for each channel of the source, a box of the
// image with a halo. All taps and all of the block's output channels use it. Boxes and filters of
// `depth` channels are copied into shared memory while the previous ones are multiplied. The lanes
// of a warp are pixels: they read neighbours of the box, and the same value of the filter.
#include <algorithm>

#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/direct/direct.h"

namespace convlab::cuda {
namespace {

// The plain kernel's warps a block, pixels a thread, and so pixels a block: its warps differ in the
// channel in NCHW, and in the pixels in NHWC.
constexpr int plain_warps = 4, plain_pixels = 4;
__host__ __device__ constexpr int plain_tile(bool channels_last) {
  return (channels_last ? plain_warps : 32) * plain_pixels;
}

// The block's stride phase, and the start of its filters.
struct StridePhase {
  Axis h, w;
  std::int64_t taps_before;

  __device__ StridePhase(const DirectPixels& d, int index) {
    const int a = index / d.w.phases(), b = index % d.w.phases();
    h = d.h.axis(a), w = d.w.axis(b);
    taps_before = std::int64_t(d.h.taps_before(a)) * d.w.taps + h.taps * d.w.taps_before(b);
  }
  __device__ int taps() const { return h.taps * w.taps; }
};

template <class T>
__global__ void __launch_bounds__(256)
    pack_filter(DirectPixels d, const T* w, T* packed, std::int64_t count) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  // Threads count the taps of the whole filter, since the phases' sizes differ. k is fastest, then
  // the group, so that writes are coalesced.
  const int k = int(i % d.padded_channels);
  std::int64_t rest = i / d.padded_channels;
  const int group = int(rest % d.groups);
  rest /= d.groups;
  const int s = int(rest % d.w.taps), r = int(rest / d.w.taps % d.h.taps);
  const int c = int(rest / d.w.taps / d.h.taps);
  const int a = d.h.phase_of(r), b = d.w.phase_of(s);
  const StridePhase phase(d, a * d.w.phases() + b);
  const int tap = (r - phase.h.filter_first) / phase.h.filter_step * phase.w.taps +
                  (s - phase.w.filter_first) / phase.w.filter_step;
  const std::int64_t row = phase.taps_before * d.in_channels + std::int64_t(c) * phase.taps() + tap;
  // In w, forward's output channels are K; backward_data's are C.
  const int filter = d.h.backward ? group * d.in_channels + c : group * d.out_channels + k;
  const int channel = d.h.backward ? k : c;
  const int channels = d.h.backward ? d.out_channels : d.in_channels;
  const std::int64_t from =
      ((std::int64_t(filter) * channels + channel) * d.h.taps + r) * d.w.taps + s;
  packed[(row * d.groups + group) * d.padded_channels + k] =
      k < d.out_channels ? w[from] : narrow<T>(0);
}

// sum[k][pixel] += w[k] x[pixel], both from shared memory.
template <class A, int K, int Pixels>
__device__ __forceinline__ void multiply_add(const A* filter, const A* const (&x)[Pixels], int at,
                                             A (&sum)[K][Pixels]) {
  constexpr int step = Quad<A>::size;
  Quad<A> w[K / step];
  A value[Pixels];
#pragma unroll
  for (int i = 0; i < K / step; ++i) w[i] = load_shared<Quad<A>>(filter + i * step);
#pragma unroll
  for (int j = 0; j < Pixels; ++j) value[j] = load_shared<A>(x[j] + at);
#pragma unroll
  for (int i = 0; i < K; ++i)
#pragma unroll
    for (int j = 0; j < Pixels; ++j) sum[i][j] += w[i / step].at[i % step] * value[j];
}

// Rows of `Row` dense taps of step 1 are unrolled; 0 takes any taps.
template <class T, int K, int Pixels, int Row>
__global__ void __launch_bounds__(32 * most_warps(K, Pixels, sizeof(Accumulator<T>)),
                                  most_warps(K, Pixels, sizeof(Accumulator<T>)) == 8 ? 2 : 3)
    correlate(DirectPixels d, const T* in, const T* packed, OutputEpilogue<T> epilogue) {
  using A = Accumulator<T>;
  SHARED_DYN(A, shared);
  const StridePhase phase(d, int(blockIdx.z));
  const int tile_h = 32 * Pixels / d.tile_w, tile_k = d.warps * K;
  const int tiles_h = (d.h.out + d.h.phases() - 1) / d.h.phases();
  const int tiles_w = (d.w.out + d.w.phases() - 1) / d.w.phases();
  const int across = (tiles_w + d.tile_w - 1) / d.tile_w, down = (tiles_h + tile_h - 1) / tile_h;
  const int tile = int(blockIdx.x) % (across * down), n = int(blockIdx.x) / (across * down);
  const int p0 = tile / across * tile_h, q0 = tile % across * d.tile_w;
  const int k_tiles = d.padded_channels / tile_k;
  const int group = int(blockIdx.y) / k_tiles, k0 = int(blockIdx.y) % k_tiles * tile_k;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;

  const T* const image = in + n * d.in.image + std::int64_t(group) * d.in_channels * d.in.channel;
  const std::int64_t row_pitch = std::int64_t(d.groups) * d.padded_channels;
  const T* const filters = packed + phase.taps_before * d.in_channels * row_pitch +
                           std::int64_t(group) * d.padded_channels + k0;
  const int buffer = d.depth * (d.box.plane + d.max_taps * tile_k);

  const auto stage_chunk = [&](int c0, A* to) {
    const int channels = min(d.depth, d.in_channels - c0);
    stage(d.in, image + std::int64_t(c0) * d.in.channel, channels, channels,
          p0 * phase.h.step + phase.h.first, q0 * phase.w.step + phase.w.first, d.box,
          to + d.depth * d.max_taps * tile_k);
    constexpr int step = Quad<A>::size;
    const int quads = tile_k / step, quad = int(threadIdx.x) % quads;
    for (int row = int(threadIdx.x) / quads; row < channels * phase.taps();
         row += int(blockDim.x) / quads) {
      const T* const from = filters + (std::int64_t(c0) * phase.taps() + row) * row_pitch;
      A* const target = to + row * tile_k + quad * step;
      if constexpr (sizeof(T) >= 4)
        cp_async<16>(target, from + quad * step);
      else
        for (int i = 0; i < step; ++i) target[i] = widen(from[quad * step + i]);
    }
  };

  int offset[Pixels];  // in the box, of tap 0
#pragma unroll
  for (int j = 0; j < Pixels; ++j) {
    const int pixel = j * 32 + lane;
    offset[j] = pixel / d.tile_w * phase.h.step * d.box.pitch + pixel % d.tile_w;
  }
  int* const tap_offsets = reinterpret_cast<int*>(shared + 2 * buffer);
  if (Row == 0)
    for (int tap = int(threadIdx.x); tap < phase.taps(); tap += int(blockDim.x)) {
      const int r = tap / phase.w.taps, column = tap % phase.w.taps * phase.w.dilation;
      tap_offsets[tap] = r * phase.h.dilation * d.box.pitch + column % phase.w.step * d.box.part +
                         column / phase.w.step;
    }
  A sum[K][Pixels] = {};
  if (phase.taps() > 0) {
    stage_chunk(0, shared);
    cp_async_commit();
    for (int c0 = 0, turn = 0; c0 < d.in_channels; c0 += d.depth, turn ^= 1) {
      if (c0 + d.depth < d.in_channels) stage_chunk(c0 + d.depth, shared + (turn ^ 1) * buffer);
      cp_async_commit();
      cp_async_wait<1>();
      __syncthreads();
      const A* filter = shared + turn * buffer + warp * K;
      const A* x[Pixels];  // of tap 0
#pragma unroll
      for (int j = 0; j < Pixels; ++j)
        x[j] = shared + turn * buffer + d.depth * d.max_taps * tile_k + offset[j];
      const int channels = min(d.depth, d.in_channels - c0);
      if constexpr (Row > 0) {
        const int next_channel = d.box.plane - phase.h.taps * phase.h.dilation * d.box.pitch;
        for (int c = 0; c < channels; ++c) {
          for (int r = 0; r < phase.h.taps; ++r) {
#pragma unroll
            for (int s = 0; s < Row; ++s, filter += tile_k) multiply_add(filter, x, s, sum);
#pragma unroll
            for (int j = 0; j < Pixels; ++j) x[j] += phase.h.dilation * d.box.pitch;
          }
#pragma unroll
          for (int j = 0; j < Pixels; ++j) x[j] += next_channel;
        }
      } else {
        for (int c = 0; c < channels; ++c) {
          for (int tap = 0; tap < phase.taps(); ++tap, filter += tile_k)
            multiply_add(filter, x, tap_offsets[tap], sum);
#pragma unroll
          for (int j = 0; j < Pixels; ++j) x[j] += d.box.plane;
        }
      }
      __syncthreads();
    }
  }
#pragma unroll
  for (int j = 0; j < Pixels; ++j) {
    const int p = p0 + (j * 32 + lane) / d.tile_w, q = q0 + (j * 32 + lane) % d.tile_w;
    if (p >= phase.h.count || q >= phase.w.count) continue;
    const std::int64_t pixel =
        n * d.out.image + std::int64_t(phase.h.out_first + p * phase.h.out_step) * d.out.row +
        std::int64_t(phase.w.out_first + q * phase.w.out_step) * d.out.column;
#pragma unroll
    for (int i = 0; i < K; i += 4) {
      const int k = k0 + warp * K + i, channel = group * d.out_channels + k;
      if (d.out.channels_last && d.out_channels % 4 == 0) {
        constexpr int together = sizeof(T) == 8 ? 2 : 4;
        if (k < d.out_channels)
#pragma unroll
          for (int first = 0; first < 4; first += together) {
            A sums[together];
#pragma unroll
            for (int e = 0; e < together; ++e) sums[e] = sum[i + first + e][j];
            epilogue.add_bias(channel + first, 1, sums);
            epilogue.store(pixel + channel + first, sums);
          }
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (k + e < d.out_channels)
          epilogue.store(pixel + std::int64_t(channel + e) * d.out.channel, channel + e,
                         sum[i + e][j]);
    }
  }
}

// Without staging, through L1, for groups so small that a thread's output channels would share no
// input. The lanes of a warp are 32 columns in NCHW, 32 channels in NHWC.
template <class T>
__global__ void __launch_bounds__(32 * plain_warps, 5)
    correlate_plain(DirectPixels d, const T* in, const T* packed, OutputEpilogue<T> epilogue) {
  using A = Accumulator<T>;
  const StridePhase phase(d, int(blockIdx.z));
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int pixels = phase.h.count * phase.w.count;
  const bool last = d.out.channels_last;
  const int k = last ? int(blockIdx.y) * 32 + lane : int(blockIdx.y) * plain_warps + warp;
  const int most =
      ((d.h.out + d.h.phases() - 1) / d.h.phases()) * ((d.w.out + d.w.phases() - 1) / d.w.phases());
  const int across = (most + plain_tile(last) - 1) / plain_tile(last);
  const int n = int(blockIdx.x) / across;
  const int first =
      int(blockIdx.x) % across * plain_tile(last) + (last ? warp * plain_pixels : lane);
  const int apart = last ? 1 : 32;
  if (k >= d.groups * d.out_channels || first >= pixels) return;

  const int group = k / d.out_channels;
  const T* const image = in + n * d.in.image + std::int64_t(group) * d.in_channels * d.in.channel;
  const int row_pitch = d.groups * d.padded_channels;
  const T* filter = packed + phase.taps_before * d.in_channels * row_pitch + k;
  int h[plain_pixels], w[plain_pixels];  // input of tap 0
#pragma unroll
  for (int j = 0; j < plain_pixels; ++j) {
    const int pixel = first + j * apart, p = pixel / phase.w.count;
    h[j] = pixel < pixels ? p * phase.h.step + phase.h.first : d.in.h;
    w[j] = (pixel - p * phase.w.count) * phase.w.step + phase.w.first;
  }
  A sum[plain_pixels] = {};
  for (int c = 0; c < d.in_channels; ++c)
    for (int r = 0; r < phase.h.taps; ++r) {
      const T* row[plain_pixels];
      int column[plain_pixels];  // none is inside if the row is not
#pragma unroll
      for (int j = 0; j < plain_pixels; ++j) {
        const int y = h[j] + r * phase.h.dilation;
        const bool inside = unsigned(y) < unsigned(d.in.h);
        column[j] = inside ? w[j] : d.in.w;
        row[j] = image + std::int64_t(c) * d.in.channel +
                 (inside ? y * d.in.row + w[j] * d.in.column : 0);
      }
      for (int s = 0; s < phase.w.taps; ++s, filter += row_pitch) {
        const A f = widen(load_global<T>(filter));
        const int right = s * phase.w.dilation;
#pragma unroll
        for (int j = 0; j < plain_pixels; ++j)
          if (unsigned(column[j] + right) < unsigned(d.in.w))
            sum[j] += f * widen(load_global<T>(row[j] + right * d.in.column));
      }
    }
#pragma unroll
  for (int j = 0; j < plain_pixels; ++j) {
    const int pixel = first + j * apart, p = pixel / phase.w.count, q = pixel - p * phase.w.count;
    if (pixel >= pixels) break;
    epilogue.store(n * d.out.image +
                       std::int64_t(phase.h.out_first + p * phase.h.out_step) * d.out.row +
                       std::int64_t(phase.w.out_first + q * phase.w.out_step) * d.out.column +
                       std::int64_t(k) * d.out.channel,
                   k, sum[j]);
  }
}

Direction direction(const ConvProblem& p, bool down) {
  const bool backward = p.pass == Pass::backward_data;
  if (down)
    return {int(backward ? p.h : p.p), int(p.r), int(p.stride_h), int(p.pad_h),
            int(p.dilation_h),         backward};
  return {int(backward ? p.w : p.q), int(p.s), int(p.stride_w), int(p.pad_w),
          int(p.dilation_w),         backward};
}

}  // namespace

DirectPixels::DirectPixels(const ConvProblem& p, const DeviceInfo& card, DirectKernel kernel_,
                           int k_, int pixels_, int warps_, int tile_w_)
    : in(p.pass == Pass::forward ? p.x_desc() : p.y_desc()),
      out(p.pass == Pass::forward ? p.y_desc() : p.x_desc()),
      n(int(p.n)),
      groups(int(p.groups)),
      in_channels(in.channels / groups),
      out_channels(out.channels / groups),
      h(direction(p, true)),
      w(direction(p, false)),
      kernel(kernel_),
      k(k_),
      pixels(pixels_),
      warps(warps_),
      tile_w(tile_w_) {
  const std::int64_t tile_k = k * warps;
  padded_channels = int(round_up(out_channels, tile_k));
  depth = 0, max_taps = 0, shared_bytes = 0;
  if (kernel == DirectKernel::plain) return;
  // The box holds the stride phase with most taps.
  Axis rows{}, columns{};
  for (int a = 0; a < h.phases(); ++a)
    if (const Axis axis = h.axis(a); axis.taps > rows.taps) rows = axis;
  for (int b = 0; b < w.phases(); ++b)
    if (const Axis axis = w.axis(b); axis.taps > columns.taps) columns = axis;
  max_taps = rows.taps * columns.taps;
  const int tile_h = 32 * pixels / tile_w;
  box.h = (tile_h - 1) * rows.step + (rows.taps - 1) * rows.dilation + 1;
  box.w = (tile_w - 1) * columns.step + (columns.taps - 1) * columns.dilation + 1;
  box.step = columns.step;
  box.part = int(ceil_div(box.w, box.step));
  const int element = p.dtype == DType::f64 ? 8 : 4;
  int best = 33;
  const int least = box.part * box.step;
  for (int pitch = least; pitch < least + 32; ++pitch) {
    const int conflicts =
        bank_conflicts(element, [&](int i) { return i / tile_w * rows.step * pitch + i % tile_w; });
    if (conflicts < best) best = conflicts, box.pitch = pitch;
  }
  // NHWC writes 8 channels of 4 pixels at a time: planes 4 banks apart do not conflict.
  box.plane = box.h * box.pitch;
  while (box.plane % 32 != 4) ++box.plane;
  // A quarter of a multiprocessor's shared memory, so that several blocks fill it.
  const std::size_t channel =
      (std::size_t(box.plane) + max_taps * std::size_t(tile_k)) * 2 * element;
  const auto fit = std::size_t(shared_bytes_of(4, card)) / channel;
  depth = int(std::clamp<std::size_t>(fit, 1, std::min(16, in_channels)));
  shared_bytes = depth * channel + std::size_t(max_taps) * sizeof(int);
}

void DirectPixels::pack(DType dtype, const void* weights, void* packed, Stream& stream) const {
  const std::int64_t count = packed_elements();
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(pack_filter<T>, unsigned(ceil_div(count, 256)), 256, 0, stream, *this,
           static_cast<const T*>(weights), static_cast<T*>(packed), count);
  });
}

void DirectPixels::run(const ConvProblem& problem, const ConvArgs& args, Stream& stream) const {
  const std::int64_t rows = ceil_div(h.out, h.phases()), columns = ceil_div(w.out, w.phases());
  dim3 grid(0, 0, unsigned(h.phases() * w.phases()));
  const bool plain = kernel == DirectKernel::plain;
  if (plain) {
    grid.x = unsigned(n * ceil_div(rows * columns, plain_tile(out.channels_last)));
    grid.y = unsigned(ceil_div(out.channels, out.channels_last ? 32 : plain_warps));
  } else {
    grid.x = unsigned(n * ceil_div(rows, 32 * pixels / tile_w) * ceil_div(columns, tile_w));
    grid.y = unsigned(groups * (padded_channels / (k * warps)));
  }
  const bool dense = w.taps == 3 && w.stride == 1 && w.dilation == 1;
  with_element(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto epilogue = output_epilogue<T>(problem.epilogue, problem.accumulate, args);
    const auto go = [&](auto correlation) {
      launch(correlation, grid, unsigned(32 * (plain ? plain_warps : warps)), shared_bytes, stream,
             *this, static_cast<const T*>(problem.pass == Pass::forward ? args.x : args.dy),
             static_cast<const T*>(args.w), epilogue);
    };
    if (plain)
      go(correlate_plain<T>);
    else if (k == 8 && pixels == 2)
      go(dense ? correlate<T, 8, 2, 3> : correlate<T, 8, 2, 0>);
    else if (k == 8)
      go(dense ? correlate<T, 8, 4, 3> : correlate<T, 8, 4, 0>);
    else if constexpr (!std::is_same_v<T, double>)
      go(dense ? correlate<T, 16, 4, 3> : correlate<T, 16, 4, 0>);
  });
}

}  // namespace convlab::cuda
