// Bias and batch normalisation: sums over each channel, and y = a[c] * x + b[c].
//
// A channel's sums run over all images, so the tensor is read twice: once for the sums, once to
// apply what follows from them. Groups of channel blocks stay in the threads' L2 between the two,
// if a block is small enough.
//
// The variance is that of x shifted by one of its own elements, sum (x - x0)^2 / M - (sum (x - x0)
// / M)^2: one pass, and little cancellation since x0 is some deviations from the mean at most
// (Chan, Golub & LeVeque 1983). Short runs are summed in T, the runs in double.
//
// For a batch that several devices share, each of the two passes over x is a call of its own. The
// caller combines the devices' sums in between.
#include <cmath>

#include "conv/math/relu.h"
#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/batch_norm.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/half/stored-inl.h"
#include "kernels_cpu/simd/relu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// f(at, i, channel) for every vector of a piece, where i counts elements from the piece's first
// one, and channel(values) gives the per-channel values of its lanes.
template <class T, class F>
HWY_INLINE void ForEachOfPiece(std::int64_t pixels, std::int64_t lanes, F&& f) {
  if (lanes == 1)
    ForEachStored<T>(pixels, [&](auto at, std::int64_t i) HWY_ATTR {
      f(at, i, [](const auto* values) HWY_ATTR { return hn::Set(VectorTag<T>(), T(*values)); });
    });
  else
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel)
      ForEachStored<T>(lanes, [&](auto at, std::int64_t lane) HWY_ATTR {
        f(at, pixel * lanes + lane,
          [&](const auto* values) HWY_ATTR { return at.Load(values + lane); });
      });
}

template <class T>
HWY_INLINE void AddLanes(VectorOf<T> v, std::int64_t count, double* sums) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(VectorTag<T>()));
  HWY_ALIGN T values[kLanes];
  hn::Store(v, VectorTag<T>(), values);
  for (std::int64_t i = 0; i < std::min(count, kLanes); ++i) sums[i] += double(values[i]);
}

// sums[s][lane] over a piece of the kSums vectors that f(at, i, channel, terms) gives.
template <class T, int kSums, class F>
HWY_INLINE void SumPiece(std::int64_t pixels, std::int64_t lanes, double* sums, F&& f) {
  const auto zero = hn::Zero(VectorTag<T>());
  std::fill(sums, sums + kSums * lanes, 0.0);
  if (lanes == 1) {
    constexpr std::int64_t run = 2048;
    for (std::int64_t first = 0; first < pixels; first += run) {
      VectorOf<T> total[2] = {zero, zero};
      ForEachStored<T>(std::min(run, pixels - first), [&](auto at, std::int64_t i) HWY_ATTR {
        VectorOf<T> terms[2] = {zero, zero};
        f(
            at, first + i,
            [](const auto* values) HWY_ATTR { return hn::Set(VectorTag<T>(), T(*values)); }, terms);
        for (int s = 0; s < kSums; ++s) total[s] = hn::Add(total[s], at.template Keep<T>(terms[s]));
      });
      for (int s = 0; s < kSums; ++s) sums[s] += double(SumLanes<T>(total[s]));
    }
    return;
  }
  // A run of pixels stays in L1 while its vectors are walked one after the other.
  const std::int64_t run = std::max<std::int64_t>(8, 2048 / lanes);
  for (std::int64_t first = 0; first < pixels; first += run) {
    const std::int64_t last = std::min(first + run, pixels);
    ForEachStored<T>(lanes, [&](auto at, std::int64_t lane) HWY_ATTR {
      VectorOf<T> total[2] = {zero, zero};
      for (std::int64_t pixel = first; pixel < last; ++pixel) {
        VectorOf<T> terms[2] = {zero, zero};
        f(
            at, pixel * lanes + lane,
            [&](const auto* values) HWY_ATTR { return at.Load(values + lane); }, terms);
        for (int s = 0; s < kSums; ++s) total[s] = hn::Add(total[s], terms[s]);
      }
      for (int s = 0; s < kSums; ++s) AddLanes<T>(total[s], lanes - lane, sums + s * lanes + lane);
    });
  }
}

template <class S>
void PlainSums(const ChannelPieces& pieces, const S* x, std::int64_t index, double* sums) {
  using T = Computed<S>;
  const auto piece = pieces.piece(index);
  x += piece.offset;
  SumPiece<T, 1>(piece.pixels, pieces.planes.lanes, sums,
                 [&](auto at, std::int64_t i, auto, VectorOf<T>* terms)
                     HWY_ATTR { terms[0] = at.Load(x + i); });
}

// x and x^2, less the channel's first element.
template <class S>
void Moments(const ChannelPieces& pieces, const S* x, std::int64_t index, double* sums) {
  using T = Computed<S>;
  const auto piece = pieces.piece(index);
  const S* const x0 = x + pieces.planes.offset(0, piece.channel, 0);
  x += piece.offset;
  SumPiece<T, 2>(piece.pixels, pieces.planes.lanes, sums,
                 [&](auto at, std::int64_t i, auto channel, VectorOf<T>* terms) HWY_ATTR {
                   terms[0] = hn::Sub(at.Load(x + i), channel(x0));
                   terms[1] = hn::Mul(terms[0], terms[0]);
                 });
}

template <class S>
void Affine(const AffineJob& job, std::int64_t index) {
  using T = Computed<S>;
  const auto piece = job.pieces.piece(index);
  const S* const x = static_cast<const S*>(job.x) + piece.offset;
  const T* const a = static_cast<const T*>(job.a) + piece.channel;
  const T* const b = static_cast<const T*>(job.b) + piece.channel;
  const S* const residual =
      job.residual == nullptr ? nullptr : static_cast<const S*>(job.residual) + piece.offset;
  S* const y = static_cast<S*>(job.y) + piece.offset;
  ForEachOfPiece<T>(piece.pixels, job.pieces.planes.lanes,
                    [&](auto at, std::int64_t i, auto channel) HWY_ATTR {
                      auto v = hn::MulAdd(channel(a), at.Load(x + i), channel(b));
                      if (residual != nullptr) v = hn::Add(v, at.Load(residual + i));
                      if (job.relu) v = Relu(v);
                      at.Store(v, y + i);
                    });
}

// The operands of a piece, and the values that both passes over it need.
template <class S>
struct NormGradient {
  using T = Computed<S>;
  const S *x, *y, *dy;
  const T *a, *b, *mean, *x_scale, *constant;
  S *dx, *dresidual;
  NormGradientJob::Mask mask;

  NormGradient(const NormGradientJob& job, const ChannelPieces::Piece& piece)
      : x(static_cast<const S*>(job.x) + piece.offset),
        y(job.y == nullptr ? nullptr : static_cast<const S*>(job.y) + piece.offset),
        dy(static_cast<const S*>(job.dy) + piece.offset),
        a(static_cast<const T*>(job.a) + piece.channel),
        b(static_cast<const T*>(job.b) + piece.channel),
        mean(static_cast<const T*>(job.mean) + piece.channel),
        x_scale(static_cast<const T*>(job.x_scale) + piece.channel),
        constant(static_cast<const T*>(job.constant) + piece.channel),
        dx(job.dx == nullptr ? nullptr : static_cast<S*>(job.dx) + piece.offset),
        dresidual(job.dresidual == nullptr ? nullptr
                                           : static_cast<S*>(job.dresidual) + piece.offset),
        mask(job.mask) {}

  // g
  template <class At, class Channel>
  HWY_INLINE VectorOf<T> Incoming(At at, std::int64_t i, VectorOf<T> vx, Channel channel) const {
    const auto g = at.Load(dy + i);
    if (mask == NormGradientJob::Mask::from_x)
      return ReluGradient(hn::MulAdd(channel(a), vx, channel(b)), g);
    if (mask == NormGradientJob::Mask::from_y) return ReluGradient(at.Load(y + i), g);
    return g;
  }
};

template <class S>
void NormGradientSums(const NormGradientJob& job, std::int64_t index, double* sums) {
  using T = Computed<S>;
  const auto piece = job.pieces.piece(index);
  const NormGradient<S> p(job, piece);
  SumPiece<T, 2>(piece.pixels, job.pieces.planes.lanes, sums,
                 [&](auto at, std::int64_t i, auto channel, VectorOf<T>* terms) HWY_ATTR {
                   const auto x = at.Load(p.x + i);
                   terms[0] = p.Incoming(at, i, x, channel);
                   terms[1] = hn::Mul(terms[0], hn::Sub(x, channel(p.mean)));
                 });
}

template <class S>
void NormGradientApply(const NormGradientJob& job, std::int64_t index) {
  using T = Computed<S>;
  const auto piece = job.pieces.piece(index);
  const NormGradient<S> p(job, piece);
  ForEachOfPiece<T>(
      piece.pixels, job.pieces.planes.lanes, [&](auto at, std::int64_t i, auto channel) HWY_ATTR {
        const auto x = at.Load(p.x + i);
        const auto g = p.Incoming(at, i, x, channel);
        const auto centred = hn::Sub(x, channel(p.mean));
        const auto rest = hn::MulAdd(channel(p.x_scale), centred, channel(p.constant));
        if (p.dresidual != nullptr) at.Store(g, p.dresidual + i);
        at.Store(hn::MulAdd(channel(p.a), g, rest), p.dx + i);
      });
}

// One piece of each kind of work.
void PlainSumsPiece(DType dtype, const ChannelPieces& pieces, const void* x, std::int64_t index,
                    double* sums) {
  with_stored_type(dtype, [&](auto zero) {
    PlainSums(pieces, static_cast<const decltype(zero)*>(x), index, sums);
  });
}
void MomentsPiece(DType dtype, const ChannelPieces& pieces, const void* x, std::int64_t index,
                  double* sums) {
  with_stored_type(dtype, [&](auto zero) {
    Moments(pieces, static_cast<const decltype(zero)*>(x), index, sums);
  });
}
void AffinePiece(const AffineJob& job, std::int64_t index) {
  with_stored_type(job.dtype, [&](auto zero) { Affine<decltype(zero)>(job, index); });
}
void NormGradientSumsPiece(const NormGradientJob& job, std::int64_t index, double* sums) {
  with_stored_type(job.dtype,
                   [&](auto zero) { NormGradientSums<decltype(zero)>(job, index, sums); });
}
void NormGradientPiece(const NormGradientJob& job, std::int64_t index) {
  with_stored_type(job.dtype, [&](auto zero) { NormGradientApply<decltype(zero)>(job, index); });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(PlainSumsPiece);
HWY_EXPORT(MomentsPiece);
HWY_EXPORT(AffinePiece);
HWY_EXPORT(NormGradientSumsPiece);
HWY_EXPORT(NormGradientPiece);

// ---- Scratch: per-channel arrays of T, then two sums for each piece and lane ----

constexpr int channel_arrays = 5;

template <class T>
struct ChannelScratch {
  T* array[channel_arrays];
  double* sums;

  ChannelScratch(const ChannelPieces& pieces, Workspace workspace) {
    const std::int64_t c = pieces.planes.padded_channels();
    sums = reinterpret_cast<double*>(workspace.data());
    T* const arrays = reinterpret_cast<T*>(sums + pieces.count() * 2 * pieces.planes.lanes);
    for (int i = 0; i < channel_arrays; ++i) array[i] = arrays + i * c;
  }
};

// ---- The order of the passes ----

struct Schedule {
  ChannelPieces pieces;
  int threads;
  std::int64_t group;  // blocks

  // `bytes`: of one element, in both passes.
  Schedule(const ChannelPieces& p, std::int64_t bytes, int threads_used, std::int64_t l2_bytes)
      : pieces(p), threads(threads_used) {
    const std::int64_t block = p.planes.images * p.planes.pixels * p.planes.lanes * bytes;
    group = std::clamp<std::int64_t>(threads * l2_bytes / 2 / block, 1, p.planes.blocks);
  }

  // sum(piece, sums) for all pieces of a group, finish(channel, totals) for its channels, and
  // map(piece) for the pieces again, each by the thread that has just read it.
  template <int kSums, class Sum, class Finish, class Map>
  void run(double* sums, Sum sum, Finish finish, Map map) const {
    const std::int64_t lanes = pieces.planes.lanes, per_block = pieces.per_block();
#pragma omp parallel num_threads(threads) if (pieces.planes.elements() > serial_elements)
    for (std::int64_t block = 0; block < pieces.planes.blocks; block += group) {
      const std::int64_t end = std::min(block + group, pieces.planes.blocks);
#pragma omp for schedule(static)
      for (std::int64_t i = block * per_block; i < end * per_block; ++i)
        sum(i, sums + i * kSums * lanes);
#pragma omp for schedule(static)
      for (std::int64_t c = block * lanes; c < end * lanes; ++c) {
        double total[2] = {};
        const double* from = sums + c / lanes * per_block * kSums * lanes + c % lanes;
        for (std::int64_t i = 0; i < per_block; ++i, from += kSums * lanes)
          for (int s = 0; s < kSums; ++s) total[s] += from[s * lanes];
        finish(c, total);
      }
#pragma omp for schedule(static) nowait
      for (std::int64_t i = block * per_block; i < end * per_block; ++i) map(i);
    }
  }
};

// map(piece) for all pieces.
template <class Map>
void for_each_piece(const ChannelPieces& pieces, int threads, Map map) {
  const std::int64_t count = pieces.count();
#pragma omp parallel for num_threads(threads) \
    schedule(static) if (pieces.planes.elements() > serial_elements)
  for (std::int64_t i = 0; i < count; ++i) map(i);
}

void run_affine(const AffineJob& job, int threads) {
  for_each_piece(job.pieces, threads, [&](std::int64_t i) {
    HWY_DYNAMIC_DISPATCH(AffinePiece)(job, i);
  });
}

// The coefficients that the forward pass applies; the backward pass needs them again to the last
// bit.
template <class T>
struct NormCoefficients {
  T a, b;
  NormCoefficients(T scale, T shift, T mean, T inverse_deviation)
      : a(T(double(scale) * double(inverse_deviation))),
        b(T(double(shift) - double(mean) * double(a))) {}
};

template <class T>
const T* typed(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* typed(void* p) {
  return static_cast<T*>(p);
}

// A channel's two numbers, and their place among those of all channels: WholeBatch::pairs.
struct Pair {
  double first, second;

  static Pair load(const double* pairs, std::int64_t channels, std::int64_t c) {
    return {pairs[c], pairs[channels + c]};
  }
  void store(double* pairs, std::int64_t channels, std::int64_t c) const {
    pairs[c] = first;
    pairs[channels + c] = second;
  }
};

double elements_a_channel(const TensorDesc& x) { return double(x.n * x.h * x.w); }

// The first pass forward, and what follows from its sums.
template <class S>
struct MomentSums {
  DType dtype;
  ChannelPieces pieces;
  const void* x;
  double count;

  void operator()(std::int64_t i, double* sums) const {
    HWY_DYNAMIC_DISPATCH(MomentsPiece)(dtype, pieces, x, i, sums);
  }
  // The mean and the biased variance.
  Pair moments(std::int64_t c, const double* total) const {
    const double shifted = total[0] / count;
    return {double(typed<S>(x)[pieces.planes.offset(0, c, 0)]) + shifted,
            relu(total[1] / count - shifted * shifted)};  // rounding made it < 0
  }
};

template <class S>
void find_moments(DType dtype, const TensorDesc& desc, const void* x, double* pairs,
                  Workspace workspace, int threads, std::int64_t l2_bytes) {
  const MomentSums<S> sum{dtype, ChannelPieces(desc), x, elements_a_channel(desc)};
  Schedule(sum.pieces, sizeof(S), threads, l2_bytes)
      .run<2>(
          ChannelScratch<Computed<S>>(sum.pieces, workspace).sums, sum,
          [&](std::int64_t c, const double* total) {
            if (c < desc.c) sum.moments(c, total).store(pairs, desc.c, c);
          },
          [](std::int64_t) {});
}

template <class S>
void train(DType dtype, const BatchNormDesc& desc, const BatchNormForward& io,
           const BatchNormStatistics& statistics, Workspace workspace, int threads,
           std::int64_t l2_bytes) {
  using T = Computed<S>;
  const MomentSums<S> sum{dtype, ChannelPieces(desc.x), io.x, elements_a_channel(desc.x)};
  const ChannelScratch<T> scratch(sum.pieces, workspace);
  const WholeBatch& whole = statistics.whole;
  const double count = whole.pairs != nullptr ? double(whole.count) : sum.count;
  T* const a = scratch.array[0];
  T* const b = scratch.array[1];
  for (std::int64_t c = desc.x.c; c < sum.pieces.planes.padded_channels(); ++c) a[c] = b[c] = 0;
  const auto normalise = [&](std::int64_t c, const Pair& moments) {
    const auto [mean, variance] = moments;
    const auto average = [&](void* running, double batch) {
      T& value = typed<T>(running)[c];
      value = T((1 - statistics.momentum) * double(value) + statistics.momentum * batch);
    };
    average(statistics.running_mean, mean);
    average(statistics.running_variance, variance * count / std::max(1.0, count - 1));
    const T inverse = T(1 / std::sqrt(variance + desc.epsilon));
    typed<T>(statistics.mean)[c] = T(mean);
    typed<T>(statistics.inverse_deviation)[c] = inverse;
    const NormCoefficients<T> k(typed<T>(io.scale)[c], typed<T>(io.shift)[c], T(mean), inverse);
    a[c] = k.a;
    b[c] = k.b;
  };
  const AffineJob affine{dtype, sum.pieces, io.x,      desc.residual ? io.residual : nullptr,
                         a,     b,          desc.relu, io.y};
  const auto apply = [&](std::int64_t i) { HWY_DYNAMIC_DISPATCH(AffinePiece)(affine, i); };
  if (whole.pairs != nullptr) {
    for (std::int64_t c = 0; c < desc.x.c; ++c) normalise(c, Pair::load(whole.pairs, desc.x.c, c));
    return for_each_piece(sum.pieces, threads, apply);
  }
  Schedule(sum.pieces, sizeof(S), threads, l2_bytes)
      .run<2>(
          scratch.sums, sum,
          [&](std::int64_t c, const double* total) {
            if (c < desc.x.c) normalise(c, sum.moments(c, total));
          },
          apply);
}

// With xhat = (x - mean) / deviation and M elements a channel,
//   dx = scale / deviation * (g - mean of g - xhat * mean of (g xhat)).
// `pairs`: null, or where the sums go in place of dx.
template <class S>
void backward(DType dtype, const BatchNormDesc& desc, const BatchNormBackward& io, double* pairs,
              Workspace workspace, int threads, std::int64_t l2_bytes) {
  using T = Computed<S>;
  const ChannelPieces pieces(desc.x);
  const ChannelScratch<T> scratch(pieces, workspace);
  T *const a = scratch.array[0], *const b = scratch.array[1], *const mean = scratch.array[2],
           *const x_scale = scratch.array[3], *const constant = scratch.array[4];
  for (std::int64_t c = 0; c < pieces.planes.padded_channels(); ++c) {
    a[c] = b[c] = mean[c] = x_scale[c] = constant[c] = 0;
    if (c >= desc.x.c) continue;
    mean[c] = typed<T>(io.mean)[c];
    const NormCoefficients<T> k(typed<T>(io.scale)[c], typed<T>(io.shift)[c], mean[c],
                                typed<T>(io.inverse_deviation)[c]);
    a[c] = k.a;
    b[c] = k.b;
  }
  using Mask = NormGradientJob::Mask;
  const Mask mask = !desc.relu ? Mask::none : desc.residual ? Mask::from_y : Mask::from_x;
  const NormGradientJob job{mask,
                            dtype,
                            pieces,
                            io.x,
                            io.y,
                            io.dy,
                            a,
                            b,
                            mean,
                            x_scale,
                            constant,
                            io.dx,
                            desc.residual ? io.dresidual : nullptr};
  const auto inverse = [&](std::int64_t c) { return double(typed<T>(io.inverse_deviation)[c]); };
  const auto sum = [&](std::int64_t i, double* sums) {
    HWY_DYNAMIC_DISPATCH(NormGradientSumsPiece)(job, i, sums);
  };
  const auto parameters = [&](std::int64_t c, const Pair& total) {
    typed<T>(io.dshift)[c] = T(total.first);
    typed<T>(io.dscale)[c] = T(total.second * inverse(c));
  };
  const auto coefficients = [&](std::int64_t c, const Pair& total, double count) {
    x_scale[c] = T(-double(a[c]) * inverse(c) * inverse(c) * total.second / count);
    constant[c] = T(-double(a[c]) * total.first / count);
  };
  const auto apply = [&](std::int64_t i) { HWY_DYNAMIC_DISPATCH(NormGradientPiece)(job, i); };

  const int tensors = mask == Mask::from_y ? 3 : 2;
  const Schedule schedule(pieces, tensors * std::int64_t{sizeof(S)}, threads, l2_bytes);
  if (io.whole.pairs != nullptr) {
    for (std::int64_t c = 0; c < desc.x.c; ++c)
      coefficients(c, Pair::load(io.whole.pairs, desc.x.c, c), double(io.whole.count));
    for_each_piece(pieces, threads, apply);
    return;
  }
  schedule.run<2>(
      scratch.sums, sum,
      [&](std::int64_t c, const double* total) {
        if (c >= desc.x.c) return;
        const Pair pair{total[0], total[1]};
        parameters(c, pair);
        if (pairs != nullptr)
          pair.store(pairs, desc.x.c, c);
        else
          coefficients(c, pair, elements_a_channel(desc.x));
      },
      [&](std::int64_t i) {
        if (pairs == nullptr) apply(i);
      });
}

}  // namespace

std::size_t channel_workspace_bytes(const TensorDesc& desc) {
  const ChannelPieces pieces(desc);
  return std::size_t(pieces.count() * 2 * pieces.planes.lanes +
                     channel_arrays * pieces.planes.padded_channels()) *
         sizeof(double);
}

void CpuLayerOps::bias_forward(DType dtype, const TensorDesc& desc, const void* x, const void* bias,
                               void* y, Workspace workspace, Stream&) const {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const ChannelPieces pieces(desc);
    const ChannelScratch<T> scratch(pieces, workspace);
    for (std::int64_t c = 0; c < pieces.planes.padded_channels(); ++c) {
      scratch.array[0][c] = 1;
      scratch.array[1][c] = c < desc.c ? typed<T>(bias)[c] : 0;
    }
    run_affine({dtype, pieces, x, nullptr, scratch.array[0], scratch.array[1], false, y}, threads_);
  });
}

void CpuLayerOps::bias_backward(DType dtype, const TensorDesc& desc, const void* dy, void* dbias,
                                Workspace workspace, Stream&) const {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const ChannelPieces pieces(desc);
    Schedule(pieces, size_of(dtype), threads_, l2_bytes_)
        .run<1>(
            ChannelScratch<T>(pieces, workspace).sums,
            [&](std::int64_t i, double* sums) {
              HWY_DYNAMIC_DISPATCH(PlainSumsPiece)(dtype, pieces, dy, i, sums);
            },
            [&](std::int64_t c, const double* total) {
              if (c < desc.c) typed<T>(dbias)[c] = T(total[0]);
            },
            [](std::int64_t) {});
  });
}

void CpuLayerOps::batch_norm_moments(DType dtype, const TensorDesc& desc, const void* x,
                                     double* pairs, Workspace workspace, Stream&) const {
  with_stored_type(dtype, [&](auto zero) {
    find_moments<decltype(zero)>(dtype, desc, x, pairs, workspace, threads_, l2_bytes_);
  });
}

void CpuLayerOps::batch_norm_training(DType dtype, const BatchNormDesc& desc,
                                      const BatchNormForward& io,
                                      const BatchNormStatistics& statistics, Workspace workspace,
                                      Stream&) const {
  validate(desc, statistics.whole);
  with_stored_type(dtype, [&](auto zero) {
    train<decltype(zero)>(dtype, desc, io, statistics, workspace, threads_, l2_bytes_);
  });
}

void CpuLayerOps::batch_norm_inference(DType dtype, const BatchNormDesc& desc,
                                       const BatchNormForward& io, const void* running_mean,
                                       const void* running_variance, Workspace workspace,
                                       Stream&) const {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const ChannelPieces pieces(desc.x);
    const ChannelScratch<T> scratch(pieces, workspace);
    T* const a = scratch.array[0];
    T* const b = scratch.array[1];
    for (std::int64_t c = 0; c < pieces.planes.padded_channels(); ++c) {
      a[c] = b[c] = 0;
      if (c >= desc.x.c) continue;
      const double variance = double(typed<T>(running_variance)[c]);
      const NormCoefficients<T> k(typed<T>(io.scale)[c], typed<T>(io.shift)[c],
                                  typed<T>(running_mean)[c],
                                  T(1 / std::sqrt(variance + desc.epsilon)));
      a[c] = k.a;
      b[c] = k.b;
    }
    run_affine({dtype, pieces, io.x, desc.residual ? io.residual : nullptr, a, b, desc.relu, io.y},
               threads_);
  });
}

void CpuLayerOps::batch_norm_gradient_sums(DType dtype, const BatchNormDesc& desc,
                                           const BatchNormBackward& io, double* pairs,
                                           Workspace workspace, Stream&) const {
  with_stored_type(dtype, [&](auto zero) {
    backward<decltype(zero)>(dtype, desc, io, pairs, workspace, threads_, l2_bytes_);
  });
}

void CpuLayerOps::batch_norm_backward(DType dtype, const BatchNormDesc& desc,
                                      const BatchNormBackward& io, Workspace workspace,
                                      Stream&) const {
  validate(desc, io.whole);
  with_stored_type(dtype, [&](auto zero) {
    backward<decltype(zero)>(dtype, desc, io, nullptr, workspace, threads_, l2_bytes_);
  });
}

}  // namespace convlab::cpu
#endif
