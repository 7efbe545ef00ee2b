// Losses. An image's part of a batch is small, so threads split the images.
#include <cmath>
#include <limits>

#include "kernels_cpu/layers/layer_jobs.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/layers/layer_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/layers/loss.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "kernels_cpu/half/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

// p = e^(x - max) / sum; loss = log(sum) + max - x[label]. Subtracting the greatest keeps every
// exponential within [0, 1].
template <class S>
void SoftmaxRow(const SoftmaxJob& job, std::int64_t row) {
  using T = Computed<S>;
  const VectorTag<T> d;
  const S* const x = static_cast<const S*>(job.x) + row * job.pitch;
  T* const p = static_cast<T*>(job.p) + row * job.pitch;
  T greatest = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < job.classes; ++i) greatest = x[i] < greatest ? greatest : T(x[i]);
  const std::int64_t label = job.label == nullptr ? -1 : job.label[row];
  const bool counts = label >= 0 && label < job.classes;
  const double distance = counts ? double(greatest) - double(x[label]) : 0;  // before p is written

  const auto shift = hn::Set(d, greatest);
  auto sums = hn::Zero(d);
  ForEachStored<T>(job.classes, [&](auto at, std::int64_t i) HWY_ATTR {
    const auto exponent = hn::Sub(at.Load(x + i), shift);
    // Exp takes a NaN for a very small number.
    const auto e = hn::IfThenElse(hn::IsNaN(exponent), exponent, hn::Exp(d, exponent));
    at.Store(e, p + i);
    sums = hn::Add(sums, at.template Keep<T>(e));
  });
  const T sum = SumLanes<T>(sums);
  const auto factor = hn::Set(d, 1 / sum);
  ForEachStored<T>(job.classes, [&](auto at, std::int64_t i)
                                    HWY_ATTR { at.Store(hn::Mul(at.Load(p + i), factor), p + i); });
  std::fill(p + job.classes, p + job.pitch, T(0));
  if (job.loss != nullptr)
    static_cast<T*>(job.loss)[row] = T(counts ? std::log(double(sum)) + distance : 0);
}

template <class S>
void CrossEntropyGradientRow(const CrossEntropyGradientJob& job, std::int64_t row) {
  using T = Computed<S>;
  const VectorTag<T> d;
  const T* const p = static_cast<const T*>(job.p) + row * job.pitch;
  S* const dx = static_cast<S*>(job.dx) + row * job.pitch;
  const std::int64_t label = job.label[row];
  if (label < 0 || label >= job.classes) {
    std::fill(dx, dx + job.pitch, S(0));
    return;
  }
  const S at_label = S((p[label] - 1) * T(job.factor));  // before dx, which may be p, is written
  const auto factor = hn::Set(d, T(job.factor));
  ForEachStored<T>(job.pitch, [&](auto at, std::int64_t i)
                                  HWY_ATTR { at.Store(hn::Mul(at.Load(p + i), factor), dx + i); });
  dx[label] = at_label;
}

template <class S>
void SquaredErrorImage(const SquaredErrorJob& job, std::int64_t image) {
  using T = Computed<S>;
  const VectorTag<T> d;
  const S* const x = static_cast<const S*>(job.x) + image * job.count;
  const T* const target = static_cast<const T*>(job.target) + image * job.count;
  if (job.loss != nullptr) {
    // A chunk is summed in T, the chunks in double.
    constexpr std::int64_t chunk = 1024;
    double total = 0;
    for (std::int64_t first = 0; first < job.count; first += chunk) {
      auto sum = hn::Zero(d);
      ForEachStored<T>(std::min(chunk, job.count - first), [&](auto at, std::int64_t i) HWY_ATTR {
        const auto difference = hn::Sub(at.Load(x + first + i), at.Load(target + first + i));
        sum = hn::MulAdd(difference, difference, sum);
      });
      total += double(SumLanes<T>(sum));
    }
    static_cast<T*>(job.loss)[image] = T(total / double(job.values));
  }
  if (job.dx != nullptr) {
    S* const dx = static_cast<S*>(job.dx) + image * job.count;
    const auto factor = hn::Set(d, T(2 * job.factor / double(job.values)));
    ForEachStored<T>(job.count, [&](auto at, std::int64_t i) HWY_ATTR {
      at.Store(hn::Mul(factor, hn::Sub(at.Load(x + i), at.Load(target + i))), dx + i);
    });
  }
}

void Softmax(const SoftmaxJob& job, std::int64_t row) {
  with_stored_type(job.dtype, [&](auto zero) { SoftmaxRow<decltype(zero)>(job, row); });
}
void CrossEntropyGradient(const CrossEntropyGradientJob& job, std::int64_t row) {
  with_stored_type(job.dtype,
                   [&](auto zero) { CrossEntropyGradientRow<decltype(zero)>(job, row); });
}
void SquaredError(const SquaredErrorJob& job, std::int64_t image) {
  with_stored_type(job.dtype, [&](auto zero) { SquaredErrorImage<decltype(zero)>(job, image); });
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {
namespace {

HWY_EXPORT(Softmax);
HWY_EXPORT(CrossEntropyGradient);
HWY_EXPORT(SquaredError);

template <class Job>
void for_each_image(const TensorDesc& desc, int threads, const Job& job,
                    void (*kernel)(const Job&, std::int64_t)) {
#pragma omp parallel for num_threads(threads) \
    schedule(static) if (desc.elements() > serial_elements)
  for (std::int64_t n = 0; n < desc.n; ++n) kernel(job, n);
}

}  // namespace

void CpuLayerOps::softmax(DType dtype, const TensorDesc& desc, const void* x, void* p,
                          Stream& stream) const {
  cross_entropy_forward(dtype, desc, x, nullptr, p, nullptr, stream);
}

void CpuLayerOps::cross_entropy_forward(DType dtype, const TensorDesc& desc, const void* x,
                                        const std::int32_t* label, void* p, void* loss,
                                        Stream&) const {
  validate_classes(desc, "softmax");
  for_each_image(desc, threads_, SoftmaxJob{dtype, desc.c, desc.padded_c(), x, label, p, loss},
                 HWY_DYNAMIC_DISPATCH(Softmax));
}

void CpuLayerOps::cross_entropy_backward(DType dtype, const TensorDesc& desc, const void* p,
                                         const std::int32_t* label, double factor, void* dx,
                                         Stream&) const {
  validate_classes(desc, "cross_entropy");
  for_each_image(desc, threads_,
                 CrossEntropyGradientJob{dtype, desc.c, desc.padded_c(), p, label, factor, dx},
                 HWY_DYNAMIC_DISPATCH(CrossEntropyGradient));
}

void CpuLayerOps::squared_error_forward(DType dtype, const TensorDesc& desc, const void* x,
                                        const void* target, void* loss, Stream&) const {
  const std::int64_t pixels = desc.h * desc.w;
  for_each_image(desc, threads_,
                 SquaredErrorJob{dtype, desc.padded_c() * pixels, desc.c * pixels, x, target, 0,
                                 loss, nullptr},
                 HWY_DYNAMIC_DISPATCH(SquaredError));
}

void CpuLayerOps::squared_error_backward(DType dtype, const TensorDesc& desc, const void* x,
                                         const void* target, double factor, void* dx,
                                         Stream&) const {
  const std::int64_t pixels = desc.h * desc.w;
  for_each_image(desc, threads_,
                 SquaredErrorJob{dtype, desc.padded_c() * pixels, desc.c * pixels, x, target,
                                 factor, nullptr, dx},
                 HWY_DYNAMIC_DISPATCH(SquaredError));
}

}  // namespace convlab::cpu
#endif
