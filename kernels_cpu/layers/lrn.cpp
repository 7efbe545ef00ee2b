// Local response normalisation across channels. With s_c = k + alpha * sum of x_j^2 over the
// neighbours j of c,
//   y_c  = x_c s_c^-beta
//   dx_c = dy_c s_c^-beta - 2 alpha beta x_c * sum over the j that have c as neighbour of
//          dy_j x_j s_j^(-beta - 1).
// Whatever the layout, some pixels' channels are copied to a buffer [channel][pixel], where vectors
// run over pixels and neighbouring channels are neighbouring rows.
#include <omp.h>

#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/lrn.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels_cpu/half/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// s^-beta for s > 0. The usual 3/4 is two square roots.
template <class T>
HWY_INLINE VectorOf<T> NegativePower(VectorOf<T> s, double beta) {
  const VectorTag<T> d;
  if (beta == 0.75) {
    const auto root = hn::Sqrt(s);
    return hn::Div(hn::Set(d, T(1)), hn::Mul(root, hn::Sqrt(root)));
  }
  const auto power = hn::Exp(d, hn::Mul(hn::Set(d, T(-beta)), hn::Log(d, s)));
  return hn::IfThenElse(hn::IsNaN(s), s, power);  // which Exp takes for a very small number
}

// The pixels [first, first + count) of an image as [channel][lrn_pixels].
struct PixelTile {
  const Planes& planes;
  std::int64_t image, first, count;

  template <class S>
  void Read(const S* from, Computed<S>* tile) const {
    for (std::int64_t c = 0; c < planes.channels; ++c, tile += lrn_pixels) {
      const S* const row = from + planes.offset(image, c, first);
      for (std::int64_t i = 0; i < count; ++i) tile[i] = row[i * planes.lanes];
      for (std::int64_t i = count; i < lrn_pixels; ++i) tile[i] = 0;
    }
  }
  template <class S>
  void Write(const Computed<S>* tile, S* to) const {
    for (std::int64_t c = 0; c < planes.channels; ++c, tile += lrn_pixels) {
      S* const row = to + planes.offset(image, c, first);
      for (std::int64_t i = 0; i < count; ++i) row[i * planes.lanes] = S(tile[i]);
    }
    for (std::int64_t c = planes.channels; c < planes.padded_channels(); ++c)
      for (std::int64_t i = 0; i < count; ++i) to[planes.offset(image, c, first + i)] = S(0);
  }
};

// The sum of rows [begin, end) of a tile, clipped to its channels.
template <class T>
HWY_INLINE VectorOf<T> SumRows(const T* tile, std::int64_t begin, std::int64_t end,
                               std::int64_t channels, std::int64_t pixel) {
  const VectorTag<T> d;
  auto sum = hn::Zero(d);
  for (std::int64_t c = std::max<std::int64_t>(begin, 0); c < std::min(end, channels); ++c)
    sum = hn::Add(sum, hn::LoadU(d, tile + c * lrn_pixels + pixel));
  return sum;
}

template <class S>
void RunLrnTile(const LrnJob& job, const PixelTile& pixels, Computed<S>* scratch) {
  using T = Computed<S>;
  const VectorTag<T> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  const LrnDesc& lrn = job.lrn;
  const std::int64_t channels = pixels.planes.channels, tile = channels * lrn_pixels;
  const std::int64_t before = lrn.size / 2, after = lrn.size - 1 - before;
  T* const x = scratch;
  T* const squares = scratch + tile;
  T* const out = scratch + 2 * tile;
  T* const dy = scratch + 3 * tile;
  pixels.Read(static_cast<const S*>(job.x), x);
  for (std::int64_t i = 0; i < tile; i += kLanes) {
    const auto v = hn::LoadU(d, x + i);
    hn::StoreU(hn::Mul(v, v), d, squares + i);
  }
  const auto k = hn::Set(d, T(lrn.k)), alpha = hn::Set(d, T(lrn.alpha));
  // f(element, s, s^-beta)
  const auto for_each = [&](auto f) HWY_ATTR {
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t p = 0; p < lrn_pixels; p += kLanes) {
        const auto sum = SumRows(squares, c - before, c + after + 1, channels, p);
        const auto s = hn::MulAdd(alpha, sum, k);
        f(c * lrn_pixels + p, s, NegativePower<T>(s, lrn.beta));
      }
  };
  if (job.dy == nullptr) {
    for_each([&](std::int64_t i, VectorOf<T>, VectorOf<T> power)
                 HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, x + i), power), d, out + i); });
  } else {
    pixels.Read(static_cast<const S*>(job.dy), dy);
    // out = dy s^-beta; dy becomes dy x s^(-beta - 1).
    for_each([&](std::int64_t i, VectorOf<T> s, VectorOf<T> power) HWY_ATTR {
      const auto direct = hn::Mul(hn::LoadU(d, dy + i), power);
      hn::StoreU(direct, d, out + i);
      hn::StoreU(hn::Div(hn::Mul(direct, hn::LoadU(d, x + i)), s), d, dy + i);
    });
    const auto factor = hn::Set(d, T(-2 * lrn.alpha * lrn.beta));
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t p = 0; p < lrn_pixels; p += kLanes) {
        const std::int64_t i = c * lrn_pixels + p;
        const auto sum = SumRows(dy, c - after, c + before + 1, channels, p);
        const auto indirect = hn::Mul(hn::Mul(factor, hn::LoadU(d, x + i)), sum);
        hn::StoreU(hn::Add(hn::LoadU(d, out + i), indirect), d, out + i);
      }
  }
  pixels.Write(out, static_cast<S*>(job.out));
}

void LrnTile(const LrnJob& job, std::int64_t image, std::int64_t first, std::byte* scratch) {
  const Planes planes(job.lrn.x);
  const PixelTile pixels{planes, image, first, std::min(lrn_pixels, planes.pixels - first)};
  with_stored_type(job.dtype, [&](auto zero) {
    using S = decltype(zero);
    RunLrnTile<S>(job, pixels, reinterpret_cast<Computed<S>*>(scratch));
  });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(LrnTile);

std::int64_t thread_bytes(const TensorDesc& desc) {
  return lrn_tiles * desc.c * lrn_pixels * std::int64_t{sizeof(double)};
}

void run_lrn(const LrnJob& job, Workspace workspace, int threads) {
  validate(job.lrn);
  const TensorDesc& desc = job.lrn.x;
#pragma omp parallel num_threads(threads) if (desc.elements() > serial_elements)
  {
    std::byte* const scratch = workspace.data() + omp_get_thread_num() * thread_bytes(desc);
#pragma omp for collapse(2) schedule(static)
    for (std::int64_t n = 0; n < desc.n; ++n)
      for (std::int64_t p = 0; p < desc.h * desc.w; p += lrn_pixels)
        HWY_DYNAMIC_DISPATCH(LrnTile)(job, n, p, scratch);
  }
}

}  // namespace

std::size_t lrn_workspace_bytes(const TensorDesc& desc, int threads) {
  return std::size_t(threads * thread_bytes(desc));
}

void CpuLayerOps::lrn_forward(DType dtype, const LrnDesc& lrn, const void* x, void* y,
                              Workspace workspace, Stream&) const {
  run_lrn({dtype, lrn, x, nullptr, y}, workspace, threads_);
}

void CpuLayerOps::lrn_backward(DType dtype, const LrnDesc& lrn, const void* x, const void* dy,
                               void* dx, Workspace workspace, Stream&) const {
  run_lrn({dtype, lrn, x, dy, dx}, workspace, threads_);
}

}  // namespace convlab::cpu
#endif
