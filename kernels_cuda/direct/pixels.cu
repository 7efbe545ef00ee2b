// The kernels of direct for forward and backward_data, which are the same (see Direction).
//
// Staged: a block's tile of pixels of one image needs, for each channel of the source, a box of the
// image with a halo. All taps and all of the block's output channels use it. Boxes and filters of
// `depth` channels are copied into shared memory while the previous ones are multiplied. The lanes
// of a warp are pixels: they read neighbours of the box, and the same value of the filter.
//
// With depth a block's pixels belong to one slice, and the filter's taps in depth are summed one
// after the other, as if they were more channels.
#include <algorithm>

#include "kernels_cuda/device/shared_memory.h"
#include "kernels_cuda/direct/direct.h"

namespace convlab::cuda {
namespace {

// The plain kernel's warps a block, pixels a thread, and so pixels a block: its warps differ in the
// channel in NCHW, and in the pixels in NHWC.
constexpr int plain_warps = 4;
__host__ __device__ constexpr int plain_strips(bool channels_last) {
  return channels_last ? plain_warps : 32;
}
// Strips of `rows` rows that cover `count` rows, where a strip's rows lie `apart`.
__host__ __device__ inline int strips_of(int count, int apart, int rows) {
  return apart * ((count + apart * rows - 1) / (apart * rows));
}

// The block's stride phase, and the start of its filters.
struct StridePhase {
  Axis d, h, w;
  std::int64_t taps_before;

  __device__ StridePhase(const DirectPixels& p, int index) {
    const int c = index % p.w.phases(), rest = index / p.w.phases();
    const int b = rest % p.h.phases(), a = rest / p.h.phases();
    d = p.d.axis(a), h = p.h.axis(b), w = p.w.axis(c);
    taps_before = std::int64_t(p.h.taps_before(b)) * p.w.taps + h.taps * p.w.taps_before(c);
    taps_before = std::int64_t(p.d.taps_before(a)) * p.h.taps * p.w.taps + d.taps * taps_before;
  }
  __device__ int taps() const { return h.taps * w.taps; }  // of one tap in depth
};

// The image and the slice of a block's outputs, from the number of both.
struct Slice {
  int n, z;
  bool exists;  // in the block's stride phase
  Range taps;   // in depth, which meet a slice of the source
  int first;    // the source's slice of tap 0

  __device__ Slice(const DirectPixels& p, const StridePhase& phase, int index) {
    const int slices = p.d.phase_count();
    n = index / slices, z = index - n * slices;
    exists = z < phase.d.count;
    first = z * phase.d.step + phase.d.first;
    taps = indices_inside(first, phase.d.dilation, phase.d.taps, p.d.in);
  }
  // The source's slice of the first tap, and where the outputs begin.
  template <class T>
  __device__ const T* of(const T* in, const DirectPixels& p, const StridePhase& phase,
                         int group) const {
    return in + n * p.in.image + std::int64_t(group) * p.in_channels * p.in.channel +
           (first + taps.begin * phase.d.dilation) * p.in.slice();
  }
  __device__ std::int64_t out(const DirectPixels& p, const StridePhase& phase) const {
    return n * p.out.image + (phase.d.out_first + z * phase.d.out_step) * p.out.slice();
  }
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
  rest /= d.w.taps * d.h.taps;
  const int t = int(rest % d.d.taps), c = int(rest / d.d.taps);
  const StridePhase phase(
      d, (d.d.phase_of(t) * d.h.phases() + d.h.phase_of(r)) * d.w.phases() + d.w.phase_of(s));
  const int slice = (t - phase.d.filter_first) / phase.d.filter_step;
  const int tap = (r - phase.h.filter_first) / phase.h.filter_step * phase.w.taps +
                  (s - phase.w.filter_first) / phase.w.filter_step;
  const std::int64_t row = phase.taps_before * d.in_channels +
                           (std::int64_t(slice) * d.in_channels + c) * phase.taps() + tap;
  // In w, forward's output channels are K; backward_data's are C.
  const int filter = d.h.backward ? group * d.in_channels + c : group * d.out_channels + k;
  const int channel = d.h.backward ? k : c;
  const int channels = d.h.backward ? d.out_channels : d.in_channels;
  const std::int64_t from =
      (((std::int64_t(filter) * channels + channel) * d.d.taps + t) * d.h.taps + r) * d.w.taps + s;
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
  const int across = (d.w.phase_count() + d.tile_w - 1) / d.tile_w;
  const int down = (d.h.phase_count() + tile_h - 1) / tile_h;
  const int tile = int(blockIdx.x) % (across * down);
  const Slice slice(d, phase, int(blockIdx.x) / (across * down));
  if (!slice.exists) return;
  const int p0 = tile / across * tile_h, q0 = tile % across * d.tile_w;
  const int k_tiles = d.padded_channels / tile_k;
  const int group = int(blockIdx.y) / k_tiles, k0 = int(blockIdx.y) % k_tiles * tile_k;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;

  // The next chunk's channels and taps.
  const std::int64_t row_pitch = std::int64_t(d.groups) * d.padded_channels;
  const T* image = slice.of(in, d, phase, group);
  const T* filters = packed +
                     (phase.taps_before + std::int64_t(slice.taps.begin) * phase.taps()) *
                         d.in_channels * row_pitch +
                     std::int64_t(group) * d.padded_channels + k0;
  const std::int64_t out_slice = slice.out(d, phase);
  const int buffer = d.depth * (d.box.plane + d.max_taps * tile_k);

  const auto stage_chunk = [&](int channels, A* to) {
    stage(d.in, image, channels, channels, p0 * phase.h.step + phase.h.first,
          q0 * phase.w.step + phase.w.first, d.box, to + d.depth * d.max_taps * tile_k);
    constexpr int step = Quad<A>::size;
    const int quads = tile_k / step, quad = int(threadIdx.x) % quads;
    for (int row = int(threadIdx.x) / quads; row < channels * phase.taps();
         row += int(blockDim.x) / quads) {
      const T* const from = filters + row * row_pitch;
      A* const target = to + row * tile_k + quad * step;
      if constexpr (sizeof(T) >= 4)
        cp_async<16>(target, from + quad * step);
      else
        for (int i = 0; i < step; ++i) target[i] = widen(from[quad * step + i]);
    }
    image += std::int64_t(channels) * d.in.channel;
    filters += channels * phase.taps() * row_pitch;
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
  int slices = phase.taps() > 0 ? slice.taps.end - slice.taps.begin : 0;  // to be staged
  if (slices > 0) {
    int channels = min(d.depth, d.in_channels), left = d.in_channels - channels;  // of the slice
    stage_chunk(channels, shared);
    cp_async_commit();
    for (int turn = 0; channels > 0; turn ^= 1) {
      if (left == 0 && --slices > 0) {
        left = d.in_channels;
        image += phase.d.dilation * d.in.slice() - std::int64_t(d.in_channels) * d.in.channel;
      }
      const int next = min(d.depth, left);
      left -= next;
      if (next > 0) stage_chunk(next, shared + (turn ^ 1) * buffer);
      cp_async_commit();
      cp_async_wait<1>();
      __syncthreads();
      const A* filter = shared + turn * buffer + warp * K;
      const A* x[Pixels];  // of tap 0
#pragma unroll
      for (int j = 0; j < Pixels; ++j)
        x[j] = shared + turn * buffer + d.depth * d.max_taps * tile_k + offset[j];
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
      channels = next;
      __syncthreads();
    }
  }
#pragma unroll
  for (int j = 0; j < Pixels; ++j) {
    const int p = p0 + (j * 32 + lane) / d.tile_w, q = q0 + (j * 32 + lane) % d.tile_w;
    if (p >= phase.h.count || q >= phase.w.count) continue;
    const std::int64_t pixel =
        out_slice + std::int64_t(phase.h.out_first + p * phase.h.out_step) * d.out.row +
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
// input. The lanes of a warp are neighbouring columns in NCHW, 32 channels in NHWC.
//
// A thread sums a strip of `Rows` rows of one column and channel. Rows p of the strip lie
// dilation / gcd apart, and the taps r fall into stride / gcd classes by their remainder. Then
// within a class, the row of x that tap i of row j reads depends on i + j alone. So each row of x
// is loaded once for all taps and rows of the strip that read it, and each tap once for the strip,
// for filters of any size, stride and dilation.
template <class T, int Rows>
__global__ void __launch_bounds__(32 * plain_warps, 5)
    correlate_plain(DirectPixels d, const T* in, const T* packed, OutputEpilogue<T> epilogue) {
  using A = Accumulator<T>;
  const StridePhase phase(d, int(blockIdx.z));
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const bool last = d.out.channels_last;
  const int k = last ? int(blockIdx.y) * 32 + lane : int(blockIdx.y) * plain_warps + warp;
  const int apart = d.h.strip_apart();
  const int across =
      (strips_of(d.h.phase_count(), apart, Rows) * d.w.phase_count() + plain_strips(last) - 1) /
      plain_strips(last);
  const Slice slice(d, phase, int(blockIdx.x) / across);
  const int index = int(blockIdx.x) % across * plain_strips(last) + (last ? warp : lane);
  const int strip = phase.w.count == 0 ? 0 : index / phase.w.count;
  const int q = index - strip * phase.w.count, p0 = strip / apart * apart * Rows + strip % apart;
  if (k >= d.groups * d.out_channels || !slice.exists || p0 >= phase.h.count || q >= phase.w.count)
    return;

  const int group = k / d.out_channels;
  const T* image = slice.of(in, d, phase, group);
  const std::int64_t row_pitch = std::int64_t(d.groups) * d.padded_channels;
  const T* taps = packed +
                  (phase.taps_before + std::int64_t(slice.taps.begin) * phase.taps()) *
                      d.in_channels * row_pitch +
                  k;
  // Known before the sums, so that the stride phase takes no registers in the loop.
  std::int64_t out = slice.out(d, phase) +
                     std::int64_t(phase.h.out_first + p0 * phase.h.out_step) * d.out.row +
                     std::int64_t(phase.w.out_first + q * phase.w.out_step) * d.out.column +
                     std::int64_t(k) * d.out.channel;
  const std::int64_t out_pitch = std::int64_t(apart) * phase.h.out_step * d.out.row;
  const int rows = (phase.h.count - p0 + apart - 1) / apart;
  const int y0 = p0 * phase.h.step + phase.h.first, x0 = q * phase.w.step + phase.w.first;
  const int pitch = d.h.strip_pitch(), classes = d.h.strip_classes();
  A sum[Rows] = {};
  for (int slices = slice.taps.end - slice.taps.begin; slices > 0; --slices) {
    const T* channel = image;
    image += phase.d.dilation * d.in.slice();
    for (int c = 0; c < d.in_channels; ++c) {
      for (int s = 0; s < phase.w.taps; ++s) {
        const int column = x0 + s * phase.w.dilation;
        if (unsigned(column) >= unsigned(d.in.w)) continue;
        for (int r = 0; r < classes && r < phase.h.taps; ++r) {
          const T* filter = taps + (r * phase.w.taps + s) * row_pitch;
          int y = y0 + r * phase.h.dilation;
          const T* at = channel + std::int64_t(y) * d.in.row + column * d.in.column;
          const auto next = [&] {
            const A v = unsigned(y) < unsigned(d.in.h) ? A(widen(load_global<T>(at))) : A(0);
            y += pitch, at += std::int64_t(pitch) * d.in.row;
            return v;
          };
          A x[Rows];
#pragma unroll
          for (int j = 0; j < Rows - 1; ++j) x[j] = next();
          for (int tap = r; tap < phase.h.taps;) {
#pragma unroll
            for (int i = 0; i < Rows && tap < phase.h.taps; ++i, tap += classes) {
              x[(i + Rows - 1) % Rows] = next();
              const A f = widen(load_global<T>(filter));
              filter += classes * phase.w.taps * row_pitch;
#pragma unroll
              for (int j = 0; j < Rows; ++j) sum[j] += f * x[(i + j) % Rows];
            }
          }
        }
      }
      channel += d.in.channel;
      taps += phase.taps() * row_pitch;
    }
  }
#pragma unroll
  for (int j = 0; j < Rows; ++j, out += out_pitch) {
    if (j >= rows) break;
    epilogue.store(out, k, sum[j]);
  }
}

}  // namespace

DirectPixels::DirectPixels(const ConvProblem& p, int rows_)
    : in(p.pass == Pass::forward ? View(p.x_desc(), p.h) : View(p.y_desc(), p.p)),
      out(p.pass == Pass::forward ? View(p.y_desc(), p.p) : View(p.x_desc(), p.h)),
      n(int(p.n)),
      groups(int(p.groups)),
      in_channels(in.channels / groups),
      out_channels(out.channels / groups),
      d(p.pass == Pass::backward_data, p.d, p.z, p.t, p.stride_d, p.pad_d, p.dilation_d),
      h(p.pass == Pass::backward_data, p.h, p.p, p.r, p.stride_h, p.pad_h, p.dilation_h),
      w(p.pass == Pass::backward_data, p.w, p.q, p.s, p.stride_w, p.pad_w, p.dilation_w),
      padded_channels(out_channels),
      kernel(DirectKernel::plain),
      k(1),
      pixels(1),
      warps(plain_warps),
      tile_w(1),
      rows(rows_),
      depth(0),
      max_taps(0),
      shared_bytes(0) {}

DirectPixels::DirectPixels(const ConvProblem& p, const DeviceInfo& card, int k_, int pixels_,
                           int warps_, int tile_w_)
    : DirectPixels(p, 0) {
  kernel = DirectKernel::staged;
  k = k_, pixels = pixels_, warps = warps_, tile_w = tile_w_;
  const std::int64_t tile_k = k * warps;
  padded_channels = int(round_up(out_channels, tile_k));
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
  const std::int64_t images = std::int64_t(n) * d.phase_count();  // a slice is an image
  dim3 grid(0, 0, unsigned(phases()));
  const bool plain = kernel == DirectKernel::plain;
  if (plain) {
    const std::int64_t strips = strips_of(h.phase_count(), h.strip_apart(), rows);
    grid.x = unsigned(images * ceil_div(strips * w.phase_count(), plain_strips(out.channels_last)));
    grid.y = unsigned(ceil_div(out.channels, out.channels_last ? 32 : plain_warps));
  } else {
    grid.x = unsigned(images * ceil_div(h.phase_count(), 32 * pixels / tile_w) *
                      ceil_div(w.phase_count(), tile_w));
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
      go(rows == 8 ? correlate_plain<T, 8> : correlate_plain<T, 4>);
    else if (k == 8 && pixels == 2)
      go(dense ? correlate<T, 8, 2, 3> : correlate<T, 8, 2, 0>);
    else if (k == 8)
      go(dense ? correlate<T, 8, 4, 3> : correlate<T, 8, 4, 0>);
    else if constexpr (!std::is_same_v<T, double>)
      go(dense ? correlate<T, 16, 4, 3> : correlate<T, 16, 4, 0>);
  });
}

}  // namespace convlab::cuda
