// Bias and batch normalisation: sums over each channel, and y = a[c] * x + b[c].
//
// A channel's sums take two stages. Each block sums a part of one channel (NCHW) or of some
// neighbouring channels (NHWC) and writes it to the workspace, in double. Then the parts are added,
// and the statistics computed, once a channel. The split into parts depends on the tensor's shape
// alone, and so does the result.
//
// The variance is that of x shifted by one of its own elements, sum (x - x0)^2 / M - (sum (x - x0)
// / M)^2: one pass, and little cancellation since x0 is some deviations from the mean at most
// (Chan, Golub & LeVeque 1983). Runs of up to 32 elements are summed in T, the runs in double.
//
// For a batch that several devices share, one call ends with the second stage, the caller combines
// what the devices found, and another call applies the result.
#include <cmath>

#include "kernels_cuda/layers/layer_ops.h"
#include "kernels_cuda/layers/layer_work.h"

namespace convlab::cuda {
namespace {

constexpr int run_length = 32;

template <class T>
const T* typed(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* typed(void* p) {
  return static_cast<T*>(p);
}

double elements_a_channel(const TensorDesc& x) { return double(x.n * x.h * x.w); }

// ---- The sums: two terms of each element ----
//
// load<V>() reads the operands of V elements from `offset` on. add() adds the terms of the k-th of
// them, given channel() of its channel.

template <class T>
struct PlainTerms {
  const T* x;

  struct Channel {};
  __device__ Channel channel(std::int64_t, std::int64_t) const { return {}; }
  template <int V>
  __device__ Pack<T, V> load(std::int64_t offset) const {
    return cuda::load<V>(x + offset);
  }
  template <int V>
  __device__ void add(const Pack<T, V>& p, int k, Channel, T* sums, int) const {
    sums[0] += p.v[k];
  }
};

// x and x^2, less the channel's first element.
template <class T>
struct Moments {
  const T* x;

  struct Channel {
    T x0;
  };
  __device__ Channel channel(std::int64_t, std::int64_t first) const { return {x[first]}; }
  template <int V>
  __device__ Pack<T, V> load(std::int64_t offset) const {
    return cuda::load<V>(x + offset);
  }
  template <int V>
  __device__ void add(const Pack<T, V>& p, int k, Channel c, T* sums, int step) const {
    const T d = p.v[k] - c.x0;
    sums[0] += d;
    sums[step] += d * d;
  }
};

// The factor and the constant of the forward pass. The backward pass recomputes them to the last
// bit.
template <class T>
struct Affine {
  T a, b;

  Affine() = default;
  __device__ Affine(T factor, T constant) : a(factor), b(constant) {}
  __device__ Affine(T scale, T shift, T mean, T inverse_deviation)
      : a(T(double(scale) * double(inverse_deviation))),
        b(T(std::fma(-double(mean), double(a), double(shift)))) {}
  __device__ T operator()(T x) const { return std::fma(a, x, b); }
};

// The gradient through the ReLU, dy itself without one. Without a residual y is recomputed from x.
enum class Mask { none, from_x, from_y };

template <class T>
struct Gradient {
  Mask mask;
  const T *x, *y, *dy, *scale, *shift, *mean, *inverse_deviation;

  static Gradient of(const BatchNormDesc& desc, const BatchNormBackward& io) {
    const Mask mask = !desc.relu ? Mask::none : desc.residual ? Mask::from_y : Mask::from_x;
    return {mask,
            typed<T>(io.x),
            mask == Mask::from_y ? typed<T>(io.y) : nullptr,
            typed<T>(io.dy),
            typed<T>(io.scale),
            typed<T>(io.shift),
            typed<T>(io.mean),
            typed<T>(io.inverse_deviation)};
  }
  bool packed() const { return aligned(x, y, dy); }

  struct Channel {
    Affine<T> affine;
    T mean;
  };
  __device__ Channel channel(std::int64_t c, std::int64_t) const {
    return {Affine<T>(scale[c], shift[c], mean[c], inverse_deviation[c]), mean[c]};
  }
  template <int V>
  struct Operands {
    Pack<T, V> x, y, dy;
  };
  template <int V>
  __device__ Operands<V> load(std::int64_t offset) const {
    Operands<V> o{cuda::load<V>(x + offset), {}, cuda::load<V>(dy + offset)};
    if (mask == Mask::from_y) o.y = cuda::load<V>(y + offset);
    return o;
  }
  template <int V>
  __device__ T incoming(const Operands<V>& o, int k, const Affine<T>& affine) const {
    if (mask == Mask::none) return o.dy.v[k];
    return relu_gradient(mask == Mask::from_y ? o.y.v[k] : affine(o.x.v[k]), o.dy.v[k]);
  }
  template <int V>
  __device__ void add(const Operands<V>& o, int k, const Channel& c, T* sums, int step) const {
    const T g = incoming(o, k, c.affine);
    sums[0] += g;
    sums[step] += g * (o.x.v[k] - c.mean);
  }
};

// ---- The first stage: partial[part][term][channel] ----

struct ChannelSums {
  std::int64_t images, channels, pixels;  // NHWC: all rows of channels are one image's pixels
  bool inner;                             // channels are contiguous
  std::int64_t parts;

  static constexpr int block = 256, warps = block / 32;     // at most
  static constexpr std::int64_t segment = 32 * run_length;  // of a plane, for one warp
  static constexpr std::int64_t part_rows = 128;            // of NHWC, at least
  static constexpr std::int64_t blocks = 1024;              // to aim for: a wave on a large card

  explicit ChannelSums(const TensorDesc& t)
      : images(t.n), channels(t.c), pixels(t.h * t.w), inner(channels_inner(t)) {
    if (inner) pixels *= images, images = 1;
    const std::int64_t most = inner ? ceil_div(pixels, part_rows) : ceil_div(segments(), warps);
    const std::int64_t side_by_side = inner ? ceil_div(channels, 32) : channels;
    parts = std::clamp<std::int64_t>(blocks / side_by_side, 1, most);
  }
  std::int64_t segments() const { return images * ceil_div(pixels, segment); }
};

// NCHW. A warp takes a segment of a plane, and a lane sums its elements in T.
template <class T, class Terms>
__global__ void __launch_bounds__(ChannelSums::block)
    sum_planes(ChannelSums t, bool packed, Terms terms, double* partial) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const std::int64_t warps = blockDim.x / 32;
  const std::int64_t a_plane = (t.pixels + t.segment - 1) / t.segment;
  for (std::int64_t c = blockIdx.y; c < t.channels; c += gridDim.y) {
    const auto channel = terms.channel(c, c * t.pixels);
    double totals[2] = {};
    for (std::int64_t s = blockIdx.x * warps + warp; s < t.images * a_plane;
         s += gridDim.x * warps) {
      const auto image = std::int64_t(unsigned(s) / unsigned(a_plane));
      const std::int64_t first = (s - image * a_plane) * t.segment;
      const std::int64_t offset = (image * t.channels + c) * t.pixels + first;
      const int count = int(min(t.segment, t.pixels - first));
      T sums[2] = {};
      const auto sum = [&](auto width) {
        constexpr int v = decltype(width)::value;
        for (int i = lane * v; i < count; i += 32 * v) {
          const auto operands = terms.template load<v>(offset + i);
          for (int k = 0; k < v; ++k) terms.add(operands, k, channel, sums, 1);
        }
      };
      if (packed)
        sum(Width<whole_pack<T>>());
      else
        sum(Width<1>());
      totals[0] += double(sums[0]);
      totals[1] += double(sums[1]);
    }
    for (int term = 0; term < 2; ++term) {
      const double total = block_sum(totals[term]);
      if (threadIdx.x == 0) partial[(blockIdx.x * 2 + term) * t.channels + c] = total;
    }
  }
}

// NHWC. A thread sums down V neighbouring channels; the rows of threads are added at the end.
template <class T, int V, class Terms>
__global__ void __launch_bounds__(ChannelSums::block)
    sum_columns(ChannelSums t, Terms terms, double* partial) {
  SHARED(double, rows, [2][V][ChannelSums::block]);
  const int width = int(blockDim.x), thread = int(threadIdx.y) * width + int(threadIdx.x);
  const int block = width * int(blockDim.y);
  const std::int64_t tile = std::int64_t(blockIdx.x) * width;  // of V channels
  const std::int64_t c = (tile + threadIdx.x) * V;
  double totals[2][V] = {};
  if (c < t.channels) {
    decltype(terms.channel(0, 0)) channels[V] = {terms.channel(c, c)};
    for (int k = 1; k < V; ++k) channels[k] = terms.channel(c + k, c + k);
    const std::int64_t step = std::int64_t(gridDim.y) * blockDim.y;
    for (std::int64_t row = std::int64_t(blockIdx.y) * blockDim.y + threadIdx.y; row < t.pixels;) {
      T sums[2 * V] = {};
      for (int i = 0; i < run_length && row < t.pixels; ++i, row += step) {
        const auto operands = terms.template load<V>(row * t.channels + c);
        for (int k = 0; k < V; ++k) terms.add(operands, k, channels[k], sums + k, V);
      }
      for (int term = 0; term < 2; ++term)
        for (int k = 0; k < V; ++k) totals[term][k] += double(sums[term * V + k]);
    }
  }
  for (int term = 0; term < 2; ++term)
    for (int k = 0; k < V; ++k) rows[term][k][thread] = totals[term][k];
  __syncthreads();
  // One thread adds each sum over the rows of threads.
  for (int i = thread; i < 2 * V * width; i += block) {
    const int x = i % width, k = i / width % V, term = i / width / V;
    double total = 0;
    for (int at = x; at < block; at += width) total += rows[term][k][at];
    const std::int64_t to = (tile + x) * V + k;
    if (to < t.channels) partial[(blockIdx.y * 2 + term) * t.channels + to] = total;
  }
}

// Operands of the terms are 16-byte aligned if `packed`.
template <class T, class Terms>
void sum_channels(const ChannelSums& t, bool packed, const Terms& terms, double* partial,
                  Stream& stream) {
  constexpr int whole = whole_pack<T>;
  if (!t.inner) {
    const dim3 grid(unsigned(t.parts), unsigned(std::min<std::int64_t>(t.channels, 65535)));
    const int block = 32 * int(std::min<std::int64_t>(t.warps, t.segments()));
    return launch(sum_planes<T, Terms>, grid, block, 0, stream, t, packed && t.pixels % whole == 0,
                  terms, partial);
  }
  with_width<T>(packed && t.channels % whole == 0, [&](auto width) {
    constexpr int v = decltype(width)::value;
    const auto packs = std::uint64_t(t.channels / v);
    const unsigned across = unsigned(std::min<std::uint64_t>(32, std::bit_ceil(packs)));
    launch(sum_columns<T, v, Terms>,
           dim3(unsigned(ceil_div(std::int64_t(packs), across)), unsigned(t.parts)),
           dim3(across, rows_of_threads(across, t.block / across, t.pixels)), 0, stream, t, terms,
           partial);
  });
}

// ---- The second stage: finish(channel, sums) ----

constexpr int finish_channels = 8, finish_rows = 32;  // at most as many

template <class Finish>
__global__ void __launch_bounds__(finish_channels* finish_rows)
    finish_sums(std::int64_t channels, std::int64_t parts, const double* partial, Finish finish) {
  SHARED(double, rows, [2][finish_rows][finish_channels]);
  const int x = int(threadIdx.x), y = int(threadIdx.y), height = int(blockDim.y);
  const std::int64_t c = std::int64_t(blockIdx.x) * finish_channels + x;
  double totals[2] = {};
  if (c < channels)
    for (std::int64_t part = y; part < parts; part += height)
      for (int term = 0; term < 2; ++term)
        totals[term] += partial[(part * 2 + term) * channels + c];
  for (int term = 0; term < 2; ++term) rows[term][y][x] = totals[term];
  __syncthreads();
  if (y != 0 || c >= channels) return;
  for (int row = 1; row < height; ++row)
    for (int term = 0; term < 2; ++term) totals[term] += rows[term][row][x];
  finish(c, totals);
}

template <class Finish>
void finish(const ChannelSums& t, const double* partial, const Finish& f, Stream& stream) {
  launch(finish_sums<Finish>, dim3(unsigned(ceil_div(t.channels, finish_channels))),
         dim3(finish_channels, rows_of_threads(finish_channels, finish_rows, t.parts)), 0, stream,
         t.channels, t.parts, partial, f);
}

template <class T>
struct FinishBias {
  T* dbias;
  __device__ void operator()(std::int64_t c, const double* total) const { dbias[c] = T(total[0]); }
};

// The mean and the biased variance, for `then`.
template <class T, class Then>
struct FinishMoments {
  double count;
  std::int64_t first_step;  // from the first element of one channel to that of the next
  const T* x;
  Then then;

  __device__ void operator()(std::int64_t c, const double* total) const {
    const double shifted = total[0] / count;
    const double spread = total[1] / count - shifted * shifted;
    const double moments[2] = {double(x[c * first_step]) + shifted, relu(spread)};
    then(c, moments);
  }
};

template <class T>
struct Normalise {
  double count, epsilon, momentum;
  const T *scale, *shift;
  T *running_mean, *running_variance, *batch_mean, *inverse_deviation, *a, *b;

  __device__ void operator()(std::int64_t c, const double* moments) const {
    const double mean = moments[0], variance = moments[1];
    const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
    running_mean[c] = T((1 - momentum) * double(running_mean[c]) + momentum * mean);
    running_variance[c] = T((1 - momentum) * double(running_variance[c]) + momentum * unbiased);
    const T inverse = T(1 / std::sqrt(variance + epsilon));
    batch_mean[c] = T(mean);
    inverse_deviation[c] = inverse;
    const Affine<T> affine(scale[c], shift[c], T(mean), inverse);
    a[c] = affine.a;
    b[c] = affine.b;
  }
};

template <class T>
struct NormaliseByRunning {
  double epsilon;
  const T *scale, *shift, *mean, *variance;
  T *a, *b;

  __device__ void operator()(std::int64_t c) const {
    const T inverse = T(1 / std::sqrt(double(variance[c]) + epsilon));
    const Affine<T> affine(scale[c], shift[c], mean[c], inverse);
    a[c] = affine.a;
    b[c] = affine.b;
  }
};

template <class T, class Then>
struct FinishParameters {
  const T* inverse_deviation;
  T *dscale, *dshift;
  Then then;

  __device__ void operator()(std::int64_t c, const double* total) const {
    dshift[c] = T(total[0]);
    dscale[c] = T(total[1] * double(inverse_deviation[c]));
    then(c, total);
  }
};

// With xhat = (x - mean) / deviation and M elements a channel,
//   dx = scale / deviation * (g - mean of g - xhat * mean of (g xhat))
//      = a g + x_scale (x - mean) + constant.
template <class T>
struct GradientCoefficients {
  double count;
  const T *scale, *shift, *mean, *inverse_deviation;
  T *a, *b, *x_scale, *constant;

  __device__ void operator()(std::int64_t c, const double* total) const {
    const double inverse = double(inverse_deviation[c]);
    const Affine<T> affine(scale[c], shift[c], mean[c], inverse_deviation[c]);
    a[c] = affine.a;
    b[c] = affine.b;
    x_scale[c] = T(-double(affine.a) * inverse * inverse * total[1] / count);
    constant[c] = T(-double(affine.a) * total[0] / count);
  }
};

// Between the two passes over a part of a batch: WholeBatch::pairs.
struct StorePair {
  std::int64_t channels;
  double* pairs;

  __device__ void operator()(std::int64_t c, const double* pair) const {
    pairs[c] = pair[0];
    pairs[channels + c] = pair[1];
  }
};
template <class Then>
struct LoadPair {
  std::int64_t channels;
  const double* pairs;
  Then then;

  __device__ void operator()(std::int64_t c) const {
    const double pair[2] = {pairs[c], pairs[channels + c]};
    then(c, pair);
  }
};

template <class F>
__global__ void each_channel(std::int64_t channels, F f) {
  const std::int64_t c = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c < channels) f(c);
}

template <class F>
void for_each_channel(std::int64_t channels, const F& f, Stream& stream) {
  constexpr int block = 128;
  launch(each_channel<F>, dim3(unsigned(ceil_div(channels, block))), block, 0, stream, channels, f);
}

// ---- Applying the result ----

// Rows of V elements: planes of one channel, or contiguous channels.
struct ChannelRows {
  Rows rows;
  bool inner, packed;

  template <class T>
  static ChannelRows of(const TensorDesc& t, bool aligned_operands) {
    ChannelRows r{{t.n, t.c, t.h * t.w}, channels_inner(t), false};
    if (r.inner) r.rows = {1, t.n * t.h * t.w, t.c};
    r.packed = aligned_operands && r.rows.inner % whole_pack<T> == 0;
    if (r.packed) r.rows.inner /= whole_pack<T>;
    return r;
  }
};

// f(offset, values) with values(array, k) of the channel of the k-th of V elements.
template <int V, class F>
__device__ __forceinline__ void for_each_of_channels(const ChannelRows& t, F f) {
  for_each_in_rows(t.rows, [&](std::int64_t outer, std::int64_t middle, std::int64_t i) {
    const std::int64_t c = t.inner ? i * V : middle, step = t.inner ? 1 : 0;
    f(((outer * t.rows.middle + middle) * t.rows.inner + i) * V,
      [=](const auto* array, int k) { return array[c + k * step]; });
  });
}

// y = a x + b + residual, then ReLU. a is null for 1.
template <class T, int V>
__global__ void apply_affine(ChannelRows t, const T* x, const T* residual, const T* __restrict__ a,
                             const T* __restrict__ b, bool rectify, T* y) {
  for_each_of_channels<V>(t, [&](std::int64_t offset, auto channel) {
    auto v = load<V>(x + offset);
    Pack<T, V> r{};
    if (residual != nullptr) r = load<V>(residual + offset);
    for (int k = 0; k < V; ++k) {
      const Affine<T> affine(a == nullptr ? T(1) : channel(a, k), channel(b, k));
      const T value = affine(v.v[k]) + r.v[k];
      v.v[k] = rectify ? relu(value) : value;
    }
    store(v, y + offset);
  });
}

template <class T, int V>
__global__ void apply_gradient(ChannelRows t, Gradient<T> gradient, const T* __restrict__ a,
                               const T* __restrict__ b, const T* __restrict__ x_scale,
                               const T* __restrict__ constant, T* dx, T* dresidual) {
  for_each_of_channels<V>(t, [&](std::int64_t offset, auto channel) {
    const auto o = gradient.template load<V>(offset);
    Pack<T, V> incoming, out;
    for (int k = 0; k < V; ++k) {
      const Affine<T> affine(channel(a, k), channel(b, k));
      const T g = gradient.incoming(o, k, affine);
      const T centred = o.x.v[k] - channel(gradient.mean, k);
      incoming.v[k] = g;
      out.v[k] = affine.a * g + (channel(x_scale, k) * centred + channel(constant, k));
    }
    if (dresidual != nullptr) store(incoming, dresidual + offset);
    store(out, dx + offset);
  });
}

template <class T>
void run_affine(const TensorDesc& desc, const T* x, const T* residual, const T* a, const T* b,
                bool relu, T* y, int multiprocessors, Stream& stream) {
  const auto t = ChannelRows::of<T>(desc, aligned(x, residual, y));
  const RowLaunch shape = row_launch(t.rows, multiprocessors);
  with_width<T>(t.packed, [&](auto width) {
    launch(apply_affine<T, decltype(width)::value>, shape.grid, shape.block, 0, stream, t, x,
           residual, a, b, relu, y);
  });
}

// ---- Scratch: the partial sums, then per-channel arrays of T ----

constexpr int channel_arrays = 4;

template <class T>
struct ChannelScratch {
  double* partial;
  T* array[channel_arrays];

  ChannelScratch(const ChannelSums& t, Workspace workspace)
      : partial(reinterpret_cast<double*>(workspace.data())) {
    T* const arrays = reinterpret_cast<T*>(partial + t.parts * 2 * t.channels);
    for (int i = 0; i < channel_arrays; ++i) array[i] = arrays + i * t.channels;
  }
};

// then(channel, its moments)
template <class T, class Then>
void find_moments(const TensorDesc& desc, const T* x, const Then& then, Workspace workspace,
                  Stream& stream) {
  const ChannelSums sums(desc);
  double* const partial = ChannelScratch<T>(sums, workspace).partial;
  sum_channels<T>(sums, aligned(x), Moments<T>{x}, partial, stream);
  finish(sums, partial,
         FinishMoments<T, Then>{elements_a_channel(desc), sums.inner ? 1 : sums.pixels, x, then},
         stream);
}

// dscale and dshift, and then(channel, its sums)
template <class T, class Then>
void sum_gradient(const BatchNormDesc& desc, const BatchNormBackward& io,
                  const Gradient<T>& gradient, const Then& then, Workspace workspace,
                  Stream& stream) {
  const ChannelSums sums(desc.x);
  double* const partial = ChannelScratch<T>(sums, workspace).partial;
  sum_channels<T>(sums, gradient.packed(), gradient, partial, stream);
  finish(sums, partial,
         FinishParameters<T, Then>{gradient.inverse_deviation, typed<T>(io.dscale),
                                   typed<T>(io.dshift), then},
         stream);
}

}  // namespace

std::size_t CudaLayerOps::workspace_bytes(DType dtype, const TensorDesc& desc) const {
  const ChannelSums t(desc);
  const std::size_t per_channel =
      std::size_t(t.parts) * 2 * sizeof(double) + channel_arrays * std::size_t(size_of(dtype));
  return std::max(std::size_t(t.channels) * per_channel, pixel_workspace_bytes(desc));
}

void CudaLayerOps::bias_forward(DType dtype, const TensorDesc& desc, const void* x,
                                const void* bias, void* y, Workspace, Stream& stream) const {
  validate(dtype, "bias_forward");
  require_plain(desc, "bias_forward");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    run_affine<T>(desc, typed<T>(x), nullptr, nullptr, typed<T>(bias), false, typed<T>(y),
                  multiprocessors_, stream);
  });
}

void CudaLayerOps::bias_backward(DType dtype, const TensorDesc& desc, const void* dy, void* dbias,
                                 Workspace workspace, Stream& stream) const {
  validate(dtype, "bias_backward");
  require_plain(desc, "bias_backward");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const ChannelSums sums(desc);
    const ChannelScratch<T> scratch(sums, workspace);
    sum_channels<T>(sums, aligned(dy), PlainTerms<T>{typed<T>(dy)}, scratch.partial, stream);
    finish(sums, scratch.partial, FinishBias<T>{typed<T>(dbias)}, stream);
  });
}

void CudaLayerOps::batch_norm_moments(DType dtype, const TensorDesc& desc, const void* x,
                                      double* pairs, Workspace workspace, Stream& stream) const {
  validate(dtype, "batch_norm");
  require_plain(desc, "batch_norm");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    find_moments<T>(desc, typed<T>(x), StorePair{desc.c, pairs}, workspace, stream);
  });
}

void CudaLayerOps::batch_norm_training(DType dtype, const BatchNormDesc& desc,
                                       const BatchNormForward& io,
                                       const BatchNormStatistics& statistics, Workspace workspace,
                                       Stream& stream) const {
  validate(dtype, "batch_norm");
  validate(desc, statistics.whole);
  require_plain(desc.x, "batch_norm");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const ChannelScratch<T> scratch(ChannelSums(desc.x), workspace);
    T *const a = scratch.array[0], *const b = scratch.array[1];
    const WholeBatch& whole = statistics.whole;
    const Normalise<T> normalise{
        .count = whole.pairs != nullptr ? double(whole.count) : elements_a_channel(desc.x),
        .epsilon = desc.epsilon,
        .momentum = statistics.momentum,
        .scale = typed<T>(io.scale),
        .shift = typed<T>(io.shift),
        .running_mean = typed<T>(statistics.running_mean),
        .running_variance = typed<T>(statistics.running_variance),
        .batch_mean = typed<T>(statistics.mean),
        .inverse_deviation = typed<T>(statistics.inverse_deviation),
        .a = a,
        .b = b};
    if (whole.pairs != nullptr)
      for_each_channel(desc.x.c, LoadPair<Normalise<T>>{desc.x.c, whole.pairs, normalise}, stream);
    else
      find_moments<T>(desc.x, typed<T>(io.x), normalise, workspace, stream);
    run_affine<T>(desc.x, typed<T>(io.x), desc.residual ? typed<T>(io.residual) : nullptr, a, b,
                  desc.relu, typed<T>(io.y), multiprocessors_, stream);
  });
}

void CudaLayerOps::batch_norm_inference(DType dtype, const BatchNormDesc& desc,
                                        const BatchNormForward& io, const void* running_mean,
                                        const void* running_variance, Workspace workspace,
                                        Stream& stream) const {
  validate(dtype, "batch_norm");
  require_plain(desc.x, "batch_norm");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const ChannelScratch<T> scratch(ChannelSums(desc.x), workspace);
    T *const a = scratch.array[0], *const b = scratch.array[1];
    for_each_channel(
        desc.x.c,
        NormaliseByRunning<T>{desc.epsilon, typed<T>(io.scale), typed<T>(io.shift),
                              typed<T>(running_mean), typed<T>(running_variance), a, b},
        stream);
    run_affine<T>(desc.x, typed<T>(io.x), desc.residual ? typed<T>(io.residual) : nullptr, a, b,
                  desc.relu, typed<T>(io.y), multiprocessors_, stream);
  });
}

void CudaLayerOps::batch_norm_gradient_sums(DType dtype, const BatchNormDesc& desc,
                                            const BatchNormBackward& io, double* pairs,
                                            Workspace workspace, Stream& stream) const {
  validate(dtype, "batch_norm");
  require_plain(desc.x, "batch_norm");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    sum_gradient(desc, io, Gradient<T>::of(desc, io), StorePair{desc.x.c, pairs}, workspace,
                 stream);
  });
}

void CudaLayerOps::batch_norm_backward(DType dtype, const BatchNormDesc& desc,
                                       const BatchNormBackward& io, Workspace workspace,
                                       Stream& stream) const {
  validate(dtype, "batch_norm");
  validate(desc, io.whole);
  require_plain(desc.x, "batch_norm");
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const ChannelScratch<T> scratch(ChannelSums(desc.x), workspace);
    T *const a = scratch.array[0], *const b = scratch.array[1], *const x_scale = scratch.array[2],
             *const constant = scratch.array[3];
    const auto gradient = Gradient<T>::of(desc, io);
    const WholeBatch& whole = io.whole;
    const GradientCoefficients<T> coefficients{
        whole.pairs != nullptr ? double(whole.count) : elements_a_channel(desc.x),
        gradient.scale,
        gradient.shift,
        gradient.mean,
        gradient.inverse_deviation,
        a,
        b,
        x_scale,
        constant};
    if (whole.pairs != nullptr)
      for_each_channel(
          desc.x.c, LoadPair<GradientCoefficients<T>>{desc.x.c, whole.pairs, coefficients}, stream);
    else
      sum_gradient(desc, io, gradient, coefficients, workspace, stream);
    T* const dresidual = desc.residual ? typed<T>(io.dresidual) : nullptr;
    const auto t =
        ChannelRows::of<T>(desc.x, gradient.packed() && aligned(typed<T>(io.dx), dresidual));
    const RowLaunch shape = row_launch(t.rows, multiprocessors_);
    with_width<T>(t.packed, [&](auto width) {
      launch(apply_gradient<T, decltype(width)::value>, shape.grid, shape.block, 0, stream, t,
             gradient, a, b, x_scale, constant, typed<T>(io.dx), dresidual);
    });
  });
}

}  // namespace convlab::cuda
